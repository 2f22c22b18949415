"""`tfimg build`.

Functions import what a build with nothing to do does without: that would take most of its time.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfimg.build.batch import plan_batch
from tfimg.build.builder import Builder, BuildResult, BuildSettings, Validated, choose_turn
from tfimg.build.results import (
    SUMMARY_SUFFIXES,
    BatchResult,
    ImageResult,
    failed_result,
    format_summary,
    raise_for_results,
)
from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    FreshBase,
    ImageOptions,
    ValidationOptions,
    flag,
    option,
    select_buildable,
    values,
    with_project_file,
)
from tfimg.cli.output.fields import print_fields
from tfimg.cli.output.progress import render_events
from tfimg.cli.output.streams import fold_lines
from tfimg.cli.trust_options import SigningOptions
from tfimg.cli.values import positive_number
from tfimg.core.errors import (
    BaseImageError,
    BuildError,
    Interrupted,
    InvalidSource,
    NoEmulation,
    UnsupportedPlatform,
    UsageError,
)
from tfimg.core.events import Event
from tfimg.core.files import write_atomically
from tfimg.core.levels import Level
from tfimg.core.text import format_size
from tfimg.engine.buildx import parse_cache_options
from tfimg.engine.interface import Engine
from tfimg.matrix.devices import CPU, GPU
from tfimg.matrix.spec import EXTRA_SUFFIX, ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.lock import read_packages
from tfimg.recipe.shards import make_shard_image, predict_disk, predict_load
from tfimg.validation.suite import CheckSelection

if TYPE_CHECKING:
    from tfimg.project.source_wheels import KeptWheels, MakeWheels, Unmade
    from tfimg.recipe.plan import Plan
    from tfimg.validation.report import Report


@dataclass(frozen=True)
class Build(Command, ImageOptions, SigningOptions, FreshBase, ValidationOptions):
    """Build images, validate them from the inside, and tag them.

    Examples:
      tfimg build --tf 2.15 --python 3.11
      tfimg build '2.1[5-8]*-cpu-*' --report summary.xml
      tfimg build --tf 2.15 --with tensorflow-text,pandas
      tfimg build '2.18*-slim'
      tfimg build --recorded 2
      tfimg build --wheel dist/tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl
    """

    all: bool = flag("every image of the matrix")
    yes: bool = flag("build many images without the question that a terminal gets", name=("--yes", "-y"))
    recorded: int | None = option(
        "N images with records, other ones each day: build them again, compare them with it, and tag none",
        "N",
        parse=positive_number,
    )
    jobs: int | None = option(
        "images at once on each builder (default: 2, or 1 where its machine has less than 4 GB of memory)",
        "N",
        parse=positive_number,
    )
    revalidate: bool = flag("run the suite again in images that have not changed")
    target: str | None = option("publish the images to REGISTRY/NAME; see `tfimg publish`", "REPOSITORY", name="--push")
    cache_from: tuple[str, ...] = values(
        "import build cache from a registry: a reference, or buildx's type=…,ref=…", "REF"
    )
    cache_to: tuple[str, ...] = values("export build cache of all stages to a registry", "REF")
    compression: Literal["fast", "small", "smallest", "gzip"] | None = option(
        "of the layers: fast (zstd, default), small (slower zstd, default of slim), smallest (minutes more), or gzip, "
        "for Docker before 23"
    )
    no_cache: bool = flag("run every build step again")
    profile: Literal["standard", "full"] = option(
        "how much of the suite to run (default: standard)", default="standard"
    )

    def run(self, context: Context) -> int:
        """Build one image or many, without any named that of tfimg.toml; with --push, publish those that are green."""
        if self._is_many or self.wheel or self.given_options():
            return self._build(context)
        return with_project_file(self, context, signs=self.target is not None)._build(context)

    @property
    def _is_many(self) -> bool:
        """Whether the options select any number of images."""
        return bool(self.patterns or self.all or self.recorded)

    def _build(self, context: Context) -> int:
        self._check_options(context)
        settings, project = self.settings(), self.project(context)
        if not self._is_many:
            plan = project.plan(self.find_image(context, project))
            _say_missing(context, plan.spec)
            engine = context.engines(self.builder)[0]
            self._build_one(context, project, engine, settings, plan)
            self._publish(context, project, engine, [plan.spec])
            return 0
        specs, failed, is_confirmed = self._select_buildable(context, project)
        for spec in specs[:1]:
            _say_missing(context, spec)
        if self.recorded:
            proven = [spec for spec in specs if project.status(spec).level != Level.DECLARED]
            specs = list(choose_turn(proven, context.services.today, self.recorded))
        engines = context.engines(self.builder)
        batch = self._build_many(context, project, engines, settings, specs, failed, is_confirmed)
        green = {result.identifier for result in batch.results if result.is_green}
        self._publish(context, project, engines[0], [spec for spec in specs if spec.identifier in green])
        raise_for_results(batch.results, needs_all=not (self.all or self.recorded))
        return 0

    def _select_buildable(self, context: Context, project: Project) -> tuple[list[ImageSpec], list[ImageResult], bool]:
        """Return the images of the patterns with extra packages, and the results of those without a wheel of a source.

        Also return whether `_confirm` was necessary: it comes before the first wheel. What is wrong with the request is
        raised.
        """
        specs, failed, is_confirmed = [], [], False
        selected = select_buildable(context, project, self.patterns, variant=self.variant)
        make_wheels = self.wheel_maker(context, project)

        def make(kept: KeptWheels, sources: Sequence[Unmade]) -> Mapping[Unmade, Path | None]:
            nonlocal is_confirmed
            if len(selected) > 1 and not is_confirmed:
                builder = Builder(project, context.engines(self.builder)[0], self.settings())
                self._confirm(context, project, builder, selected)
                is_confirmed = True
            return make_wheels(kept, sources)

        for spec in selected:
            try:
                specs.append(self.add_packages(context, project, spec, self.as_of, make))
            except (BaseImageError, BuildError, InvalidSource, NoEmulation, UnsupportedPlatform) as error:
                failed.append(failed_result(f"{spec.identifier}{EXTRA_SUFFIX}", error))
        return specs, failed, is_confirmed

    def wheel_maker(self, context: Context, project: Project) -> MakeWheels:
        """Return what makes wheels of sources in the first engine, which is looked for when it is needed."""

        def make(kept: KeptWheels, sources: Sequence[Unmade]) -> Mapping[Unmade, Path | None]:
            from tfimg.build.source_wheels import WheelMaker

            builder = Builder(project, context.engines(self.builder)[0], self.settings())
            with render_events(context, verbose=self.verbose) as render:
                return WheelMaker(builder, kept, render).make(sources)

        return make

    def _publish(self, context: Context, project: Project, engine: Engine, specs: Sequence[ImageSpec]) -> None:
        """Publish images to --push, if it and they are named."""
        if not (self.target and specs):
            return
        from tfimg.cli.commands.publish import publish_images
        from tfimg.publish.publisher import Publisher
        from tfimg.registry.reference import parse_repository

        key = self.signing_key(context.services.environ)
        repository = self.signed_repository(context, project, parse_repository(self.target), key)
        publisher = Publisher(project=project, engine=engine, level=self.required_level(), revalidate=self.revalidate)
        publish_images(context, publisher, repository, specs)

    def _check_options(self, context: Context) -> None:
        """Raise `UsageError` for options that do not go together, before anything is asked or built."""
        excluded = {
            "--all": self.all,
            "--jobs": self.jobs,
            "--record": self.record,
            "--recorded": self.recorded,
        }
        self.check_image_options(excluded)
        others = {"--push": self.target, "--record": self.record}
        others |= {"extra packages": self.names_packages}
        if self.recorded and (given := [name for name, value in others.items() if value]):
            raise UsageError(
                f"{', '.join(given)} and --recorded cannot be combined: it compares images with their record, and "
                "tags none.",
                next_step="Leave --recorded out, or the others.",
            )
        signing = {"--key": self.key, "--policy": self.policy, "--publisher": self.publisher}
        if self.target:
            from tfimg.registry.reference import parse_repository

            parse_repository(self.target)
            self.signing_key(context.services.environ)  # a build takes too long to find out afterwards
        elif unused := [name for name, value in (signing | {"--public-key": self.public_key}).items() if value]:
            raise UsageError(
                f"{', '.join(unused)} without --push: nothing would be published.",
                next_step="Name where to with --push REGISTRY/NAME, or leave them out.",
            )
        if not self._is_many:
            if self.jobs:
                raise UsageError(
                    "--jobs needs patterns or --all; a request is one image.",
                    next_step="Write the request as a pattern, such as 2.15.1-cpu-py3.11, or leave the option out.",
                )
            self._check_report_files()
            return
        if self.all and self.patterns:
            raise UsageError("--all and patterns cannot be combined.", next_step="Leave --all out, or the patterns.")
        if given := [name for name in self.given_options() if name != "--variant"]:
            many = "--all" if self.all else "patterns" if self.patterns else "--recorded"
            raise UsageError(
                f"{', '.join(given)} and {many} cannot be combined: a request means one image.",
                next_step="Write it as a pattern: '2.15*-cpu-*', '*-cuda12*-py3.11'.",
            )
        self._check_report_files(SUMMARY_SUFFIXES)

    def _check_report_files(self, *suffixes: Sequence[str]) -> None:
        if self.report:
            from tfimg.cli.commands.validate import check_report_files

            check_report_files(self.report, *suffixes)

    def settings(self) -> BuildSettings:
        """Return the settings that the options ask for. Raises `UsageError`."""
        return replace(
            self.base_settings(),
            compression=self.compression,
            no_cache=self.no_cache,
            cache=parse_cache_options(self.cache_from, self.cache_to),
            level=self.required_level(),
            checks=CheckSelection(profile=self.profile),
            reuse_reports=not (self.no_cache or self.revalidate or self.recorded),
            record=self.record,
            record_only=self.record and self._is_many and not self.target,
            recheck=self.recorded is not None,
            jobs=self.jobs,
        )

    def _build_one(
        self, context: Context, project: Project, engine: Engine, settings: BuildSettings, plan: Plan
    ) -> None:
        """Build an image, unless it is unchanged: then its result is the same document as one of many images."""
        with render_events(context, verbose=self.verbose) as render:
            batch = plan_batch(project, [engine], settings, [plan], render)
        (builder,) = batch.builders
        for result in batch.results:
            if self.report and result.proven:
                self._write_report(_read_report(builder, plan))
            context.print_result(result.to_json(), partial(_print_unchanged, plan.spec, result))
        with render_events(context, verbose=self.verbose) as render:

            def on_event(event: Event) -> None:
                if isinstance(event, Validated):
                    self._write_report(event.report)
                elif isinstance(event, BuildResult) and not context.json:
                    _print_result(event)
                else:
                    render(event)

            if batch.plans:
                builder.build(plan, on_event)

    def _write_report(self, report: Report) -> None:
        from tfimg.cli.commands.validate import write_reports

        write_reports(self.report, report)

    def _build_many(
        self,
        context: Context,
        project: Project,
        engines: Sequence[Engine],
        settings: BuildSettings,
        specs: Sequence[ImageSpec],
        failed: Sequence[ImageResult],
        is_confirmed: bool,
    ) -> BatchResult:
        with render_events(context, verbose=self.verbose) as on_event:
            batch = plan_batch(project, engines, settings, specs, on_event, failed)
        if len(batch.plans) > 1 and not is_confirmed:
            self._confirm(context, project, batch.builders[0], [plan.spec for plan in batch.plans])
        with render_events(context, verbose=self.verbose) as on_event:
            ended = batch.build(on_event)
        for name in self.report:
            write_atomically(Path(name), format_summary(ended, name))
        context.print_result({"event": "summary", "identifier": None, **ended.to_json()}, ended.summary)
        if len(specs) == 1 and not context.json:
            result = ended.results[-1]
            if result.status == "unchanged":
                _print_unchanged(specs[0], result)
            elif run := _format_run(specs[0], result):
                print(f"run  {run}")
        return ended

    def _confirm(self, context: Context, project: Project, builder: Builder, specs: Sequence[ImageSpec]) -> None:
        """Say what many images take, and ask on a terminal. Raises `Interrupted` for no."""
        packed = builder.capabilities.accepts_layers
        images = [make_shard_image(spec, project.locks.read_predictable(spec)) for spec in specs]
        disk = predict_disk(images, bases=len({spec.base.image for spec in specs}), packed=packed)
        free = builder.engine.find_free_bytes()
        room = f" ({free / 1e9:.0f} GB are free)" if free is not None else ""
        one = [specs[0].identifier.removesuffix(EXTRA_SUFFIX)]
        if len(self.patterns) == 1 and re.fullmatch(r"\d+(\.\d+)+", self.patterns[0]):
            one = ["--tf", self.patterns[0], *(["--variant", self.variant] if self.variant else [])]
        command = shlex.join(["tfimg", "build", *one, *self.package_arguments(context, self.as_of)])
        text = (
            f"{len(specs)} images to build: up to {predict_load(images) / 1e9:.1f} GB of wheels to load, and about "
            f"{disk / 1e9:.0f} GB of disk{room}.\n`{command}` builds one."
        )
        is_answered = self.yes or context.json or context.services.environ.get("CI")
        if is_answered or not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
            context.say(text)
            return
        print(f"{fold_lines(text)}\nBuild all {len(specs)}? [y/N] ", end="", file=sys.stderr, flush=True)
        answer = ""
        try:
            answer = sys.stdin.readline()
        finally:
            if not answer.endswith("\n"):  # the terminal has shown no line end
                print(file=sys.stderr)
        if answer.strip().lower() not in ("y", "yes"):
            raise Interrupted("Nothing was built.", next_step="--yes builds them without a question.")


def _print_result(result: BuildResult) -> None:
    from tfimg.validation.report import level_words

    report, stored, asked = result.report, result.image.stored, result.image.output.compression
    compression = stored.compression if stored.compression == asked else f"{stored.compression}, not {asked} as asked"
    checks = f"{len(report.results)} passed in {report.seconds:.0f} s" if report else "none could run here"
    print_fields(
        {
            "image": stored.digest,
            "tags": list(result.plan.tags),
            "base": f"{result.image.base.kind} {result.image.base.name}",
            "size": f"{_format_sizes(result.summary)} ({compression})",
            "checks": f"{checks} on {report.date[:10]}" if report and result.reused else checks,
            "level": level_words(report) if report else result.summary.level,
            "run": _format_run(result.spec, result.summary),
        }
    )


def _print_unchanged(spec: ImageSpec, result: ImageResult) -> None:
    print_fields(
        {
            "image": result.digest,
            "status": result.status,
            "tags": list(result.tags),
            "size": _format_sizes(result),
            "level": result.level_and_date,
            "run": _format_run(spec, result),
        }
    )


def _format_sizes(result: ImageResult) -> str:
    return f"{format_size(result.unpacked_bytes)} unpacked, {format_size(result.compressed_bytes)} compressed"


def _read_report(builder: Builder, plan: Plan) -> Report:
    """Return the report on an unchanged image, which is kept."""
    name = plan.tags[0]
    stored = builder.engine.read_image(name)
    return builder.validator.validate(plan, name, digest=stored.digest, content=stored.content)[0]


def _format_run(spec: ImageSpec, result: ImageResult) -> str | None:
    """Return the command that runs an image on this machine; None for one that it cannot run, or that has no tag."""
    on_device = result.level == Level.VALIDATED
    if not result.tags or result.level == Level.BUILT or not (on_device or spec.device in (CPU, GPU)):
        return None
    if spec.variant == "serve":
        return f"tfimg serve MODEL --image {min(result.tags, key=len)}"
    start = {"jupyter": "jupyter", "dev": "shell"}.get(spec.variant, "run")
    device = "" if on_device or spec.device == CPU else " --no-gpu"
    return f"tfimg {start} {min(result.tags, key=len)}{device}{' -- python' if start == 'run' else ''}"


def _say_missing(context: Context, spec: ImageSpec) -> None:
    """Say which of Debian's packages the extra packages need beside those of the image."""
    if spec.extra and spec.extra.lock:
        from tfimg.recipe.additions import list_missing_system_packages

        names = [package.name for package in read_packages({"own": spec.extra.lock})]
        for note in list_missing_system_packages(spec, names):
            context.say(note)

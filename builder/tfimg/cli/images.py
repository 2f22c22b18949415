"""`tfimg build`, `reproduce`, `validate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.build.batch import build_many
from tfimg.build.builder import Builder, BuildResult, Validated
from tfimg.build.reproduce import reproduce
from tfimg.build.results import SUMMARY_SUFFIXES, format_summary, raise_for_results
from tfimg.build.settings import BuildSettings
from tfimg.cli.commands.publish import publish_images, require_publishable
from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.output.checks import level_words
from tfimg.cli.report_files import check_report_files, write_reports
from tfimg.cli.show import size
from tfimg.core.errors import UsageError
from tfimg.core.events import Event, OnEvent
from tfimg.core.files import write_atomically
from tfimg.engine.build_cache import parse_cache_options
from tfimg.matrix.spec import ImageSpec
from tfimg.project.validator import Validator
from tfimg.recipe.labels import IDENTIFIER_LABEL, LOCK_LABEL
from tfimg.recipe.lockfile import hash_lock
from tfimg.recipe.plan import Plan
from tfimg.validation.explain import explaining
from tfimg.validation.run import CheckSelection
from tfimg.validation.verdict import raise_for_verdict

if TYPE_CHECKING:
    from tfimg.cli.commands.build import Build
    from tfimg.cli.commands.reproduce import Reproduce
    from tfimg.cli.commands.validate import Validate


def build(command: Build, context: Context) -> int:
    """`tfimg build`: build one image or many; publish them with --push."""
    _check_push(command, context)
    if command.patterns or command.all:
        return _build_many(command, context)
    if command.jobs or command.revalidate:
        raise UsageError("--jobs and --revalidate are for many images.", next_step="Name patterns, or --all.")
    check_report_files(command.report)
    settings = build_settings(command)
    plan = context.project.plan(context.resolve(command).spec)
    with context.render_events() as on_event:
        Builder(context.project, context.engine, settings).build(plan, _with_reports(command, on_event))
    _push(command, context, [plan.spec])
    return 0


def _with_reports(command: Build, on_event: OnEvent) -> OnEvent:
    """Forward events; write the report where --report says; on standard output, print what was built."""

    def forward(event: Event) -> None:
        if isinstance(event, Validated):
            write_reports(command.report, event.report)
        elif isinstance(event, BuildResult) and not command.json:
            _print_result(event)
        else:
            on_event(event)

    return forward


def _print_result(result: BuildResult) -> None:
    stored, asked = result.image.stored, result.image.output.compression
    compression = stored.compression if stored.compression == asked else f"{stored.compression}, not {asked} as asked"
    print_fields(
        {
            "image": stored.digest,
            "tags": list(result.plan.tags),
            "base": f"{result.image.base.kind} {result.image.base.name}",
            "size": f"{size(stored.unpacked_bytes)} unpacked, {size(stored.compressed_bytes)} compressed "
            f"({compression})",
            "checks": f"{len(result.report.results)} passed in {result.report.seconds:.0f} s",
            "level": level_words(result.report),
        }
    )


def _build_many(command: Build, context: Context) -> int:
    _check_many(command)
    reuse = not (command.no_cache or command.revalidate)
    settings = replace(build_settings(command), reuse_reports=reuse)
    specs = context.buildable(command.patterns)
    with context.render_events(many=True) as on_event:
        batch = build_many(context.project, context.engines, settings, specs, on_event)
    for name in command.report:
        write_atomically(Path(name), format_summary(batch, name))
    if command.json:
        context.emit({"event": "summary", "identifier": None, **batch.to_json()})
    else:
        print(batch.sentence, flush=True)
    green = {result.identifier for result in batch.results if result.is_green}
    _push(command, context, [spec for spec in specs if spec.identifier in green])
    raise_for_results(batch.results)
    return 0


def _check_many(command: Build) -> None:
    """Raise `UsageError` for options that many images do not have, before anything is asked or built."""
    if command.all and command.patterns:
        raise UsageError("--all and patterns do not go together.", next_step="Leave --all out, or the patterns.")
    if given := command.given_options():
        raise UsageError(
            f"{', '.join(given)} and {'--all' if command.all else 'patterns'} do not go together: a request means "
            "one image.",
            next_step="Say it as a pattern: '2.15*-cpu-*', '*-cuda12*-py3.11'.",
        )
    for name in command.report:
        if Path(name).suffix.lower() == ".html":
            raise UsageError(
                f"--report {name}: the summary of many images is written as JSON or JUnit XML, not as HTML.",
                next_step="Name FILE.json or FILE.xml. `tfimg report REPORT.json --report FILE.html` writes one "
                "image's report as HTML.",
            )
    check_report_files(command.report, SUMMARY_SUFFIXES)


def build_settings(command: Build) -> BuildSettings:
    """Return the settings that the options ask for. Raises `UsageError`."""
    return BuildSettings(
        base=command.base,
        mirrors=parse_mirrors(command.mirror),
        snapshot=command.snapshot,
        renew_base=command.renew_base,
        compression=command.compression,
        no_cache=command.no_cache,
        cache=parse_cache_options(command.cache_from, command.cache_to),
        level=command.level,
        checks=_checks(command),
        record=command.record,
        jobs=command.jobs,
    )


def parse_mirrors(mirrors: Sequence[str]) -> dict[str, str]:
    """Return the values of `--mirror` as registry → its mirror. Raises `UsageError`."""
    pairs = [mirror.partition("=") for mirror in mirrors]
    for registry, equal, host in pairs:
        if not (registry and equal and host):
            raise UsageError(
                f"--mirror {registry}{equal}{host} does not name a registry and its mirror.",
                next_step="Write --mirror docker.io=HOST:PORT.",
            )
    return {registry: host for registry, _, host in pairs}


def _checks(command: Build | Validate) -> CheckSelection:
    return CheckSelection(profile=command.profile, only=command.only, skip=command.skip)


def _check_push(command: Build, context: Context) -> None:
    """Check what --push needs before a long build. Raises `UsageError`, `InvalidKey`."""
    names = [name for name in ("key", "policy", "publisher", "public_key") if getattr(command, name)]
    options = ", ".join("--" + name.replace("_", "-") for name in names)
    if command.target:
        require_publishable(command, context)
    elif options:
        raise UsageError(
            f"{options} without --push: nothing would be published.",
            next_step="Name where to with --push REGISTRY/NAME, or leave them out.",
        )


def _push(command: Build, context: Context, specs: Sequence[ImageSpec]) -> None:
    if command.target and specs:
        publish_images(command, context, specs, named=True)


def reproduce_image(command: Reproduce, context: Context) -> int:
    """`tfimg reproduce`: build an image twice from nothing and compare the layers. Raises `NotReproducible`."""
    settings = BuildSettings(
        base=command.base,
        mirrors=parse_mirrors(command.mirror),
        snapshot=command.snapshot,
        renew_base=command.renew_base,
        no_cache=True,
    )
    plan = context.project.plan(context.resolve(command).spec)
    with context.render_events() as on_event:
        found = reproduce(context.project, context.engine, settings, plan, on_event)
    if command.json:
        context.emit(found.to_json())
    found.require_same()
    if not command.json:
        print(f"{found.identifier}: built twice from nothing, all {len(found.pairs)} layers are the same bytes.")
    return 0


def validate(command: Validate, context: Context) -> int:
    """`tfimg validate IMAGE`: run the suite in an image that the engine has."""
    project, engine = context.project, context.engine
    check_report_files(command.report)
    image = command.image
    digest = project.require_image(engine, image)
    spec = project.spec_of_image(engine, image, command.identifier)
    plan = project.plan(spec)
    labels = engine.find_labels(image) or {}
    if labels.get(IDENTIFIER_LABEL) not in (None, "", spec.identifier):
        context.say(f"{image} is labelled {labels[IDENTIFIER_LABEL]}; it is validated as {spec.identifier}.")
    if command.record:
        _require_lock(image, labels.get(LOCK_LABEL), plan)
    validator = Validator(project=project, engine=engine, level=command.level, checks=_checks(command))
    with (
        explaining(project.workspace.validation),
        context.render_events() as on_event,
    ):
        target = validator.target(spec, on_event)
        report, _ = validator.validate(
            plan, target, image, digest=digest, from_lock=bool(labels.get(LOCK_LABEL)), on_event=on_event
        )
    write_reports(command.report, report)
    if command.record:
        project.record(report)
    if command.json:
        context.emit({"event": "report", **report.to_json()})
    raise_for_verdict(report, subject=f"{image} was validated", consequence="Its tags are as they were.")
    if not command.json:
        passed = sum(result.outcome == "passed" for result in report.results)
        print(f"{image}: {passed} check{'' if passed == 1 else 's'} passed, level {level_words(report)}")
    return 0


def _require_lock(image: str, label: str | None, plan: Plan) -> None:
    """Raise `UsageError` for an image that was not built from the lock that its evidence would name."""
    if label != hash_lock(plan.lock):
        raise UsageError(
            f"{image} was not built from the lock of {plan.spec.identifier}; its label says {label or 'none'}.",
            next_step="Build it anew with --record, or leave --record out.",
        )

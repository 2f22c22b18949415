"""`tfimg build`, `reproduce`, `validate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfimg.build.batch import build_many
from tfimg.build.builder import Builder, BuildResult, Validated
from tfimg.build.reproduce import reproduce
from tfimg.build.results import SUMMARY_SUFFIXES, format_summary, raise_for_results
from tfimg.build.settings import BuildSettings
from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.options import REQUEST
from tfimg.cli.output.checks import level_words
from tfimg.cli.output.render import render_events
from tfimg.cli.publish import publish_images, require_publishable
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


def build(context: Context) -> int:
    """`tfimg build`: build one image or many; publish them with --push."""
    arguments = context.arguments
    _check_push(context)
    if arguments.patterns or arguments.all:
        return _build_many(context)
    if arguments.jobs or arguments.revalidate:
        raise UsageError("--jobs and --revalidate are for many images.", next_step="Name patterns, or --all.")
    check_report_files(context)
    settings = build_settings(arguments)
    plan = context.project.plan(context.resolve().spec)
    with render_events(as_json=arguments.json, quiet=arguments.quiet) as on_event:
        Builder(context.project, context.engine, settings).build(plan, _with_reports(context, on_event))
    _push(context, [plan.spec])
    return 0


def _with_reports(context: Context, on_event: OnEvent) -> OnEvent:
    """Forward events; write the report where --report says; on standard output, print what was built."""

    def forward(event: Event) -> None:
        if isinstance(event, Validated):
            write_reports(context, event.report)
        elif isinstance(event, BuildResult) and not context.arguments.json:
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


def _build_many(context: Context) -> int:
    arguments = context.arguments
    _check_many(context)
    reuse = not (arguments.no_cache or arguments.revalidate)
    settings = replace(build_settings(arguments), reuse_reports=reuse)
    specs = context.buildable(arguments.patterns)
    with render_events(as_json=arguments.json, quiet=arguments.quiet, many=True) as on_event:
        batch = build_many(context.project, context.engines, settings, specs, on_event)
    for name in arguments.report:
        write_atomically(Path(name), format_summary(batch, name))
    if arguments.json:
        context.emit({"event": "summary", "identifier": None, **batch.to_json()})
    else:
        print(batch.sentence, flush=True)
    green = {result.identifier for result in batch.results if result.is_green}
    _push(context, [spec for spec in specs if spec.identifier in green])
    raise_for_results(batch.results)
    return 0


def _check_many(context: Context) -> None:
    """Raise `UsageError` for options that many images do not have, before anything is asked or built."""
    arguments = context.arguments
    if arguments.all and arguments.patterns:
        raise UsageError("--all and patterns do not go together.", next_step="Leave --all out, or the patterns.")
    options = REQUEST | {"--device": "device"}
    if given := [option for option, name in options.items() if getattr(arguments, name) is not None]:
        raise UsageError(
            f"{', '.join(given)} and {'--all' if arguments.all else 'patterns'} do not go together: a request means "
            "one image.",
            next_step="Say it as a pattern: '2.15*-cpu-*', '*-cuda12*-py3.11'.",
        )
    for name in arguments.report:
        if Path(name).suffix.lower() == ".html":
            raise UsageError(
                f"--report {name}: the summary of many images is written as JSON or JUnit XML, not as HTML.",
                next_step="Name FILE.json or FILE.xml. `tfimg report REPORT.json --report FILE.html` writes one "
                "image's report as HTML.",
            )
    check_report_files(context, SUMMARY_SUFFIXES)


def build_settings(arguments: Any) -> BuildSettings:
    """Return the settings that the options of `build` or `reproduce` ask for. Raises `UsageError`."""
    return BuildSettings(
        base=arguments.base,
        mirrors=parse_mirrors(arguments.mirror),
        snapshot=arguments.snapshot,
        renew_base=arguments.renew_base,
        compression=arguments.compression,
        no_cache=arguments.no_cache,
        cache=parse_cache_options(arguments.cache_from, arguments.cache_to),
        level=getattr(arguments, "level", None),
        checks=_checks(arguments),
        record=getattr(arguments, "record", False),
        jobs=getattr(arguments, "jobs", None),
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


def _checks(arguments: Any) -> CheckSelection:
    return CheckSelection(profile=arguments.profile, only=tuple(arguments.only), skip=tuple(arguments.skip))


def _check_push(context: Context) -> None:
    """Check what --push needs before a long build. Raises `UsageError`, `InvalidKey`."""
    names = [name for name in ("key", "policy", "publisher", "public_key") if getattr(context.arguments, name)]
    options = ", ".join("--" + name.replace("_", "-") for name in names)
    if context.arguments.target:
        require_publishable(context)
    elif options:
        raise UsageError(
            f"{options} without --push: nothing would be published.",
            next_step="Name where to with --push REGISTRY/NAME, or leave them out.",
        )


def _push(context: Context, specs: Sequence[ImageSpec]) -> None:
    if context.arguments.target and specs:
        publish_images(context, specs, named=True)


def reproduce_image(context: Context) -> int:
    """`tfimg reproduce`: build an image twice from nothing and compare the layers. Raises `NotReproducible`."""
    arguments = context.arguments
    settings = build_settings(arguments)
    plan = context.project.plan(context.resolve().spec)
    with render_events(as_json=arguments.json, quiet=arguments.quiet) as on_event:
        found = reproduce(context.project, context.engine, settings, plan, on_event)
    if arguments.json:
        context.emit(found.to_json())
    found.require_same()
    if not arguments.json:
        print(f"{found.identifier}: built twice from nothing, all {len(found.pairs)} layers are the same bytes.")
    return 0


def validate(context: Context) -> int:
    """`tfimg validate IMAGE`: run the suite in an image that the engine has."""
    arguments, project, engine = context.arguments, context.project, context.engine
    check_report_files(context)
    image = arguments.image
    digest = project.require_image(engine, image)
    spec = project.spec_of_image(engine, image, arguments.identifier)
    plan = project.plan(spec)
    labels = engine.find_labels(image) or {}
    if labels.get(IDENTIFIER_LABEL) not in (None, "", spec.identifier):
        context.say(f"{image} is labelled {labels[IDENTIFIER_LABEL]}; it is validated as {spec.identifier}.")
    if arguments.record:
        _require_lock(image, labels.get(LOCK_LABEL), plan)
    validator = Validator(project=project, engine=engine, level=arguments.level, checks=_checks(arguments))
    with (
        explaining(project.workspace.validation),
        render_events(as_json=arguments.json, quiet=arguments.quiet) as on_event,
    ):
        target = validator.target(spec, on_event)
        report, _ = validator.validate(
            plan, target, image, digest=digest, from_lock=bool(labels.get(LOCK_LABEL)), on_event=on_event
        )
    write_reports(context, report)
    if arguments.record:
        project.record(report)
    if arguments.json:
        context.emit({"event": "report", **report.to_json()})
    raise_for_verdict(report, subject=f"{image} was validated", consequence="Its tags are as they were.")
    if not arguments.json:
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

"""`tfimg build`, `plan`, `validate`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.progress import Progress, follow
from tfimg.cli.recipes import read_templates
from tfimg.cli.show import print_fields, size
from tfimg.engine import build as building
from tfimg.engine.bases import Base, Bootstrap, choose_base
from tfimg.engine.build import BuiltImage
from tfimg.engine.connect import connect
from tfimg.engine.debian import find_mirrors
from tfimg.engine.docker import DockerEngine
from tfimg.engine.network import HostNetwork, host_network, pip_settings
from tfimg.errors import UsageError, ValidationBroken, ValidationFailed
from tfimg.matrix.resolve import resolve
from tfimg.matrix.spec import ImageSpec
from tfimg.process import uninterrupted
from tfimg.recipe.labels import build_labels
from tfimg.recipe.plan import Plan
from tfimg.recipe.plan import plan as make_plan
from tfimg.recipe.render import environment
from tfimg.validation.report import Report
from tfimg.validation.run import suite_files
from tfimg.validation.run import validate as run_suite
from tfimg.workspace import write_atomically


def build(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """`tfimg build`: resolve, plan, base, build, validate, tag."""
    context = Context(arguments, environ)
    planned = _plan(context)
    engine = connect(environ, context.state)
    capabilities = engine.capabilities()
    building.check_space(capabilities)
    network = _network(context)
    base = prepare_base(context, planned.spec, engine)
    with follow(context) as progress:
        built = building.build(
            planned, base=base, engine=engine, capabilities=capabilities, network=network,
            context=context.workspace.images, labels=_labels(context, base), fresh=arguments.no_cache,
            on_event=progress.build,
        )  # fmt: skip
        try:
            report = _validate(context, planned, built.name, built.stored.digest, engine, progress)
            _keep(context, report)
            _demand(report)
            with uninterrupted():
                engine.tag(built.name, planned.tags)
        finally:
            engine.remove(built.name)
    return _tell(context, planned, built, report)


def plan(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """`tfimg plan`."""
    context = Context(arguments, environ)
    planned = _plan(context)
    engine = connect(environ, context.state)
    output = building.choose_output(engine.capabilities(), "NAME")
    document = {
        "identifier": planned.spec.identifier,
        "engine": engine.host,
        "base": planned.spec.base.image,
        "layers": list(planned.lock),
        "compression": output.compression,
        "why": output.why,
        "tags": list(planned.tags),
    }
    if arguments.json:
        context.emit(document)
    else:
        print_fields(document)
    return 0


def validate(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """`tfimg validate IMAGE`."""
    context = Context(arguments, environ)
    engine = connect(environ, context.state)
    spec, digest = _claimed(context, engine)
    planned = _plan_for(context, spec)
    with follow(context) as progress:
        report = _validate(context, planned, arguments.image, digest, engine, progress)
    _keep(context, report)
    if arguments.json:
        context.emit({"event": "report", **report.to_json()})
    _demand(report)
    if not arguments.json:
        print(f"{arguments.image}: {len(report.results)} checks passed, level {report.level}")
    return 0


def _plan(context: Context) -> Plan:
    return _plan_for(context, resolve(context.specs, context.request), context.repository)


def _plan_for(context: Context, spec: ImageSpec, repository: str = "tfimg/tensorflow") -> Plan:
    lock = context.locked(spec)
    templates = environment(read_templates(context.workspace))
    return make_plan(spec, context.specs, lock, templates=templates, repository=repository)


def _claimed(context: Context, engine: DockerEngine) -> tuple[ImageSpec, str]:
    """What an image in the engine says it is, or is said to be, and its digest."""
    image = context.arguments.image
    digest, labels = engine.digest(image), engine.labels(image)
    if digest is None or labels is None:
        raise UsageError(f"The engine has no image {image}.", next_step="Build or pull it first.")
    identifier = context.arguments.identifier or labels.get("tfimg.identifier")
    if identifier is None:
        raise UsageError(
            f"{image} does not say what it is: it has no label tfimg.identifier.",
            next_step="Say it with --as IDENTIFIER; `tfimg list` shows all identifiers.",
        )
    return context.named(identifier), digest


def _network(context: Context) -> HostNetwork:
    network = host_network(context.environ, pip_settings())
    for setting in network.left_out:
        context.say(f"Not passed to the build: {setting}")
    return network


def prepare_base(context: Context, spec: ImageSpec, engine: DockerEngine) -> Base:
    """The base that the arguments choose, made where it must be, and a word on which it was and why."""
    template = environment(read_templates(context.workspace)).get_template("base.Dockerfile.j2")
    bootstrap = Bootstrap(
        mirrors=find_mirrors(), scratch=context.state / "scratch", template=template.render,
        environ=context.environ,
    )  # fmt: skip
    base = choose_base(
        spec, context.arguments.base, engine=engine, registries=_registries(context.arguments.mirror),
        bootstrap=bootstrap, say=context.say,
    )  # fmt: skip
    context.say(f"Base: {base.kind} {base.name}, because {base.why}")
    return base


def _registries(mirrors: list[str]) -> dict[str, str]:
    pairs = [mirror.partition("=") for mirror in mirrors]
    for registry, equal, host in pairs:
        if not (registry and equal and host):
            raise UsageError(
                f"--mirror {registry}{equal}{host} does not name a registry and its mirror.",
                next_step="Write --mirror docker.io=HOST:PORT.",
            )
    return {registry: host for registry, _, host in pairs}


def _labels(context: Context, base: Base) -> dict[str, str]:
    return build_labels(
        base=base.name, base_digest=base.digest, revision=context.workspace.revision(), version=__version__
    )


def _validate(
    context: Context, planned: Plan, image: str, digest: str, engine: DockerEngine, progress: Progress
) -> Report:
    return run_suite(
        planned.spec, planned.lock, image=image, image_digest=digest, engine=engine,
        suite=suite_files(context.workspace.validation),
        on_start=progress.check_started, on_result=progress.check_ended,
    )  # fmt: skip


def _keep(context: Context, report: Report) -> None:
    text = json.dumps(report.to_json(), indent=2) + "\n"
    if context.arguments.report:
        write_atomically(Path(context.arguments.report), text)
    if getattr(context.arguments, "record", False):
        write_atomically(context.workspace.evidence(report.identifier), text)


def _demand(report: Report) -> None:
    """Raises when an image may not be tagged: `ValidationFailed`, or `ValidationBroken` when the suite broke off."""
    if report.passed:
        return
    told = "; ".join(f"{one.check} {one.outcome}: {one.reason}" for one in report.culprits)
    if report.problem:
        raise ValidationBroken(
            f"{report.identifier} was built, but {report.problem}. {told}",
            next_step="No tag was given. Validate again; if it breaks at the same check, the image is at fault.",
        )
    raise ValidationFailed(
        f"{report.identifier} was built, and {len(report.culprits)} of {len(report.results)} checks did not pass. "
        f"{told}",
        next_step="No tag was given. --report FILE keeps the whole evidence.",
    )


def _tell(context: Context, planned: Plan, built: BuiltImage, report: Report) -> int:
    stored = built.stored
    if context.arguments.json:
        context.emit({"event": "built", **_document(planned, built, report)})
        return 0
    promised = built.output.compression
    kept = (
        stored.compression
        if stored.compression == promised
        else f"{stored.compression}, not {promised} as asked"
    )
    print_fields(
        {
            "image": stored.digest,
            "tags": list(planned.tags),
            "base": f"{built.base.kind} {built.base.name}",
            "size": f"{size(stored.unpacked_bytes)} unpacked, {size(stored.compressed_bytes)} compressed ({kept})",
            "checks": f"{len(report.results)} passed in {report.seconds:.0f} s",
            "level": report.level,
            "unproven": None if planned.spec.device == "cpu" else "nothing was run on the accelerator",
        }
    )
    return 0


def _document(planned: Plan, built: BuiltImage, report: Report) -> dict[str, Any]:
    return {
        "identifier": built.identifier,
        "digest": built.stored.digest,
        "tags": list(planned.tags),
        "base": asdict(built.base),
        "compression": {"asked": built.output.compression, "found": built.stored.compression},
        "unpacked_bytes": built.stored.unpacked_bytes,
        "compressed_bytes": built.stored.compressed_bytes,
        "layers": [asdict(layer) for layer in built.stored.layers],
        "labels": dict(built.stored.labels),
        "build_seconds": round(built.seconds, 1),
        "report": report.to_json(),
    }

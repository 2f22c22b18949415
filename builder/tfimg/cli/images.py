"""`tfimg build`, `validate`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.explain import explaining
from tfimg.cli.keep import check_report, keep
from tfimg.cli.progress import Progress, follow
from tfimg.cli.verdict import demand, tell, told_level
from tfimg.engine import build as building
from tfimg.engine.bases import Base, Bootstrap, choose_base
from tfimg.engine.cache import read_cache, require_export
from tfimg.engine.debian import find_mirrors
from tfimg.engine.protocol import Capabilities, Engine, StageEvent
from tfimg.errors import ForeignImage, UsageError
from tfimg.host.aim import Aim, aim
from tfimg.layers.make import LayerState
from tfimg.matrix.spec import ImageSpec
from tfimg.process import uninterrupted
from tfimg.recipe.labels import IDENTIFIER, LOCK, build_labels
from tfimg.recipe.lockfile import digest as lock_digest
from tfimg.recipe.plan import Plan
from tfimg.recipe.render import render_base
from tfimg.validation.report import Report
from tfimg.validation.run import Asking, suite_files
from tfimg.validation.run import validate as run_suite


def build(context: Context) -> int:
    """`tfimg build`: resolve, plan, base, build, validate, tag."""
    check_report(context)
    mirrors = registries(context.arguments.mirror)
    planned = _plan(context, context.resolve().spec)
    capabilities = context.engine.capabilities()
    building.check_space(capabilities, planned.spec.device)
    cache = read_cache(context.arguments.cache_from, context.arguments.cache_to)
    require_export(capabilities, cache)
    aimed = _aim(context, planned.spec)
    base = prepare_base(context, planned.spec, mirrors, fresh=context.arguments.renew_base)
    with explaining(context), follow(context) as progress:
        built = building.build(
            planned, base=base, engine=context.engine, capabilities=capabilities, network=context.network,
            context=context.workspace.images, labels=_labels(context, base), fresh=context.arguments.no_cache,
            stages=hand_in(context, planned, capabilities, progress), cache=cache, on_event=progress.build,
        )  # fmt: skip
        try:
            report = _validate(context, planned, built.name, built.stored.digest, aimed, progress)
            keep(context, report, as_evidence=context.arguments.record and report.level != "built")
            demand(report, of=f"{planned.spec.identifier} was built", end="No tag was given.")
            with uninterrupted():
                context.engine.tag(built.name, planned.tags)
                tell(context, planned, built, report)
        finally:
            building.discard(context.engine, built.name)
    return 0


def validate(context: Context) -> int:
    """`tfimg validate IMAGE`."""
    check_report(context)
    image = context.arguments.image
    spec, digest = claimed(context, image)
    planned = _plan(context, spec)
    labels = context.engine.labels(image) or {}
    ours = bool(labels.get(LOCK))
    if labels.get(IDENTIFIER) not in (None, "", spec.identifier):
        context.say(f"{image} is labelled {labels[IDENTIFIER]}; it is validated as {spec.identifier}.")
    if context.arguments.record:
        _require_lock(context, planned, image)
    aimed = _aim(context, spec)
    with explaining(context), follow(context) as progress:
        report = _validate(context, planned, image, digest, aimed, progress, ours=ours)
    keep(context, report, as_evidence=context.arguments.record and report.level != "built")
    if context.arguments.json:
        context.emit({"event": "report", **report.to_json()})
    demand(report, of=f"{image} was validated", end="Its tags are as they were.")
    if not context.arguments.json:
        passed = sum(result.outcome == "passed" for result in report.results)
        print(f"{image}: {passed} check{'' if passed == 1 else 's'} passed, level {told_level(report)}")
    return 0


def hand_in(
    context: Context, planned: Plan, capabilities: Capabilities, progress: Progress
) -> dict[str, str]:
    """The stages that are not built but made of wheels here, where the engine can take them.

    One on another machine fetches wheels faster by itself than layers from here.
    """
    if capabilities.store != "containerd" or capabilities.free_bytes is None:
        return {}

    def tell(layer: str, state: LayerState, seconds: float) -> None:
        progress.build(StageEvent(step=f"layer {layer}", state=state, seconds=round(seconds, 3)))

    return context.edge.stages(
        planned.lock, context.state / "layers", context.network,
        supplied=planned.wheels, compression="fast", on_event=tell,
    )  # fmt: skip


def _require_lock(context: Context, planned: Plan, image: str) -> None:
    """Raises `UsageError` for an image that was not built from the lock that its evidence would speak of."""
    built_from = (context.engine.labels(image) or {}).get(LOCK)
    if built_from != lock_digest(planned.lock):
        raise UsageError(
            f"{image} was not built from the lock of {planned.spec.identifier}; its label says {built_from or 'none'}.",
            next_step="Build it anew with --record, or leave --record out.",
        )


def _plan(context: Context, spec: ImageSpec) -> Plan:
    return context.planned(spec)


def claimed(context: Context, image: str) -> tuple[ImageSpec, str]:
    """What an image in the engine says it is, or is said to be, and its digest."""
    digest = context.engine.digest(image)
    if digest is None:
        raise _absent(image)
    return says(context, context.engine, image), digest


def says(context: Context, engine: Engine, image: str) -> ImageSpec:
    """What an image says it is, or is said to be. Raises `UsageError` or `ForeignImage`."""
    labels = engine.labels(image)
    if labels is None:
        raise _absent(image)
    identifier = context.arguments.identifier or labels.get(IDENTIFIER)
    if not identifier:
        raise ForeignImage(
            f"{image} does not say what it is: it has no label {IDENTIFIER}.",
            next_step="Say it with --as IDENTIFIER; `tfimg list` shows all identifiers.",
        )
    return context.named(identifier)


def _absent(image: str) -> UsageError:
    return UsageError(f"The engine has no image {image}.", next_step="Build or pull it first.")


def prepare_base(
    context: Context, spec: ImageSpec, registries: dict[str, str], *, fresh: bool = False
) -> Base:
    """The base that the arguments choose, made where it must be, and a word on which it was and why."""
    bootstrap = Bootstrap(
        mirrors=find_mirrors(), scratch=context.state / "scratch", environ=context.environ, fresh=fresh,
        template=partial(render_base, context.templates),
    )  # fmt: skip
    base = choose_base(
        spec, context.arguments.base, engine=context.engine, registries=registries,
        bootstrap=bootstrap, say=context.say,
    )  # fmt: skip
    context.say(f"Base: {base.kind} {base.name}, because {base.why}")
    return base


def registries(mirrors: Sequence[str]) -> dict[str, str]:
    """`--mirror`'s values as registry → its mirror. Raises `UsageError`."""
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


def _aim(context: Context, spec: ImageSpec) -> Aim:
    """What the validation is to show; says so where that is less than everything."""
    aimed = aim(spec, context.surroundings(context.engine), context.arguments.level)
    if aimed.why:
        context.say(f"Level {aimed.level} is the most that can be shown here. {aimed.why}")
    return aimed


def _validate(
    context: Context,
    planned: Plan,
    image: str,
    digest: str,
    aimed: Aim,
    progress: Progress,
    *,
    ours: bool = True,
) -> Report:
    arguments = context.arguments
    asking = Asking(profile=arguments.profile, only=tuple(arguments.only), skip=tuple(arguments.skip))
    return run_suite(
        planned.spec, planned.lock, image=image, image_digest=digest, engine=context.engine,
        suite=suite_files(context.workspace.validation), level=aimed.level, access=aimed.access, ours=ours,
        asking=asking, on_plan=progress.planned, on_start=progress.check_started, on_result=progress.check_ended,
    )  # fmt: skip

"""`tfimg build`, `validate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tfimg import __version__
from tfimg.build import candidate as building
from tfimg.build.pipeline import Means, Work, examine, make
from tfimg.build.report_cache import Inventories, Kept, accelerator
from tfimg.cli.context import Context
from tfimg.cli.explain import explaining
from tfimg.cli.keep import check_report, keep
from tfimg.cli.progress import follow
from tfimg.cli.verdict import tell, told_level
from tfimg.core.cancellation import run_ahead
from tfimg.core.errors import UnlabelledImage, UsageError
from tfimg.engine.base_images.choose import BaseImage, BootstrapSettings, choose_base
from tfimg.engine.base_images.debian import find_mirrors, snapshot_mirrors
from tfimg.engine.build_cache import check_cache_export, parse_cache_options
from tfimg.engine.disk_space import check_disk_space
from tfimg.engine.protocol import BuildEvent, Capabilities, Engine, StageEvent
from tfimg.host.survey import TargetHost
from tfimg.host.target_level import TargetLevel, choose_target_level
from tfimg.index.network import HostNetwork
from tfimg.layers.make import LayerState
from tfimg.layers.pack import LAYER_FORMAT
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import IDENTIFIER_LABEL, LOCK_LABEL, make_build_labels
from tfimg.recipe.lockfile import hash_lock
from tfimg.recipe.plan import Plan, hash_recipe
from tfimg.recipe.render import render_base
from tfimg.validation.run import CheckSelection, suite_digest, suite_files
from tfimg.validation.verdict import raise_for_verdict


def build(context: Context) -> int:
    """`tfimg build`: one image or many, and publish them with --push. Of many: see `tfimg.cli.batch`."""
    check_push(context)
    if context.arguments.patterns or context.arguments.all:
        from tfimg.cli.batch import build_many

        return build_many(context)
    if context.arguments.jobs or context.arguments.revalidate:
        raise UsageError("--jobs and --revalidate are for many images.", next_step="Name patterns, or --all.")
    spec = _build_one(context)
    push(context, [spec])
    return 0


def check_push(context: Context) -> None:
    """Raises where what --push needs is not there: a build is too long to find out then. `UsageError`, `InvalidKey`."""
    given = [name for name in ("key", "policy", "publisher", "trust") if getattr(context.arguments, name)]
    if context.arguments.target:
        from tfimg.cli.publish import require_publishable

        require_publishable(context)
    elif given:
        raise UsageError(
            f"{', '.join(f'--{name}' for name in given)} without --push: nothing would be published.",
            next_step="Name where to with --push REGISTRY/NAME, or leave them out.",
        )


def push(context: Context, specs: Sequence[ImageSpec]) -> None:
    """Publish what was built, where --push says so."""
    if context.arguments.target and specs:
        from tfimg.cli.publish import publish_images

        publish_images(context, specs, named=True)


def _build_one(context: Context) -> ImageSpec:
    """Resolve, plan, base, make: build, validate, tag."""
    check_report(context)
    mirrors = registries(context.arguments.mirror)
    planned = context.project.plan(context.resolve().spec)
    engine = context.engine
    capabilities = engine.get_capabilities()
    check_disk_space(capabilities, planned.spec.device)
    means = means_of(context, reuse=False)
    check_cache_export(capabilities, means.cache)
    target_host = context.project.target_host(engine)
    target = _choose_target(context, planned.spec, target_host)
    with (
        explaining(context),
        follow(context) as progress,
        run_ahead(partial(means.hand_in, planned, capabilities, progress.build)) as stages,
    ):
        base = prepare_base(context, planned.spec, mirrors, fresh=context.arguments.renew_base)
        work = Work(
            plan=planned,
            base=base,
            labels=labels_of(context, planned, base, capabilities),
            aim=target,
            accelerator=accelerator(target, target_host.host),
        )
        make(
            work,
            replace(means, hand_in=lambda *_: stages()),
            name=building.candidate(planned.spec.identifier),
            engine=engine,
            capabilities=capabilities,
            progress=progress,
            keep=partial(keep, context),
            conclude=lambda made: tell(context, planned, made.built, made.report),
        )
    return planned.spec


def means_of(context: Context, *, reuse: bool, network: HostNetwork | None = None) -> Means:
    """What the arguments say of how images are made. `reuse`: kept reports are believed.

    Without a `network` it is this machine's, and what a build cannot use of it is said.
    """
    arguments = context.arguments
    suite = suite_files(context.project.workspace.validation)
    return Means(
        network=network or context.use_network(),
        context=context.project.workspace.images,
        suite=suite,
        suite_digest=suite_digest(suite),
        selection=_selection(context),
        kept=Kept(folder=context.services.state / "reports"),
        inventories=inventories(context),
        fresh=arguments.no_cache,
        reuse=reuse,
        cache=parse_cache_options(arguments.cache_from, arguments.cache_to),
        compression=arguments.compression,
        hand_in=partial(hand_in, context, context.services.state / "layers"),
    )


def inventories(context: Context) -> Inventories:
    """Return the inventories that builds have kept in the state folder."""
    script = (context.project.workspace.images / "inventory.py").read_bytes()
    return Inventories(folder=context.services.state / "inventories", script=script)


def validate(context: Context) -> int:
    """`tfimg validate IMAGE`."""
    check_report(context)
    image = context.arguments.image
    spec, digest = claimed(context, image)
    planned = context.project.plan(spec)
    labels = context.engine.find_labels(image) or {}
    ours = bool(labels.get(LOCK_LABEL))
    if labels.get(IDENTIFIER_LABEL) not in (None, "", spec.identifier):
        context.say(f"{image} is labelled {labels[IDENTIFIER_LABEL]}; it is validated as {spec.identifier}.")
    if context.arguments.record:
        _require_lock(context, planned, image)
    target = _choose_target(context, spec, context.project.target_host(context.engine))
    with explaining(context), follow(context) as progress:
        report = examine(
            planned,
            image=image,
            digest=digest,
            engine=context.engine,
            suite=suite_files(context.project.workspace.validation),
            selection=_selection(context),
            aim=target,
            progress=progress,
            ours=ours,
        )
    keep(context, report)
    if context.arguments.json:
        context.emit({"event": "report", **report.to_json()})
    raise_for_verdict(report, subject=f"{image} was validated", consequence="Its tags are as they were.")
    if not context.arguments.json:
        passed = sum(result.outcome == "passed" for result in report.results)
        print(f"{image}: {passed} check{'' if passed == 1 else 's'} passed, level {told_level(report)}")
    return 0


def hand_in(
    context: Context,
    folder: Path,
    planned: Plan,
    capabilities: Capabilities,
    tell: Callable[[BuildEvent], None],
) -> dict[str, str]:
    """The stages that are not built but made of wheels here and kept in `folder`, where the engine can take them."""
    if not capabilities.accepts_layers:
        return {}

    def told(layer: str, state: LayerState, seconds: float) -> None:
        tell(StageEvent(step=f"layer {layer}", state=state, seconds=round(seconds, 3)))

    return context.services.stages(
        planned.lock,
        folder,
        supplied=planned.wheels,
        compression=context.arguments.compression,
        fresh=context.arguments.no_cache,
        on_event=told,
    )


def _require_lock(context: Context, planned: Plan, image: str) -> None:
    """Raises `UsageError` for an image that was not built from the lock that its evidence would speak of."""
    built_from = (context.engine.find_labels(image) or {}).get(LOCK_LABEL)
    if built_from != hash_lock(planned.lock):
        raise UsageError(
            f"{image} was not built from the lock of {planned.spec.identifier}; its label says {built_from or 'none'}.",
            next_step="Build it anew with --record, or leave --record out.",
        )


def claimed(context: Context, image: str) -> tuple[ImageSpec, str]:
    """What an image in the engine says it is, or is said to be, and its digest."""
    digest = context.engine.find_digest(image)
    if digest is None:
        raise _absent(image)
    return says(context, context.engine, image), digest


def says(context: Context, engine: Engine, image: str) -> ImageSpec:
    """What an image says it is, or is said to be. Raises `UsageError` or `UnlabelledImage`."""
    labels = engine.find_labels(image)
    if labels is None:
        raise _absent(image)
    identifier = context.arguments.identifier or labels.get(IDENTIFIER_LABEL)
    if not identifier:
        raise UnlabelledImage(
            f"{image} does not say what it is: it has no label {IDENTIFIER_LABEL}.",
            next_step="Say it with --as IDENTIFIER; `tfimg list` shows all identifiers.",
        )
    return context.project.spec(identifier)


def _absent(image: str) -> UsageError:
    return UsageError(f"The engine has no image {image}.", next_step="Build or pull it first.")


def prepare_base(
    context: Context,
    spec: ImageSpec,
    registries: Mapping[str, str],
    *,
    fresh: bool = False,
    engine: Engine | None = None,
) -> BaseImage:
    """The base that the arguments choose, made where it must be, and a word on which it was and why.

    In the engine at hand, unless another is given.
    """
    snapshot = context.arguments.snapshot
    bootstrap = BootstrapSettings(
        mirrors=snapshot_mirrors(snapshot) if snapshot else find_mirrors(),
        scratch=context.services.state / "scratch",
        environ=context.services.environ,
        fresh=fresh,
        template=partial(render_base, context.project.templates),
    )
    base = choose_base(
        spec,
        context.arguments.base,
        engine=engine or context.engine,
        registries=registries,
        bootstrap=bootstrap,
        say=context.say,
    )
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


def labels_of(context: Context, planned: Plan, base: BaseImage, capabilities: Capabilities) -> dict[str, str]:
    """The labels that only a build knows."""
    output = building.choose_output(capabilities, "NAME", context.arguments.compression).option
    recipe = hash_recipe(
        planned,
        base_digest=base.digest,
        ingredients=context.project.build_files_digest,
        output=f"{output} layers={LAYER_FORMAT if capabilities.accepts_layers else None}",
    )
    return make_build_labels(
        base=base.name,
        base_digest=base.digest,
        recipe=recipe,
        revision=context.project.revision,
        version=__version__,
    )


def _choose_target(context: Context, spec: ImageSpec, target_host: TargetHost) -> TargetLevel:
    """What the validation is to show; says so where that is less than everything."""
    target = choose_target_level(spec, target_host, context.arguments.level)
    if target.reason:
        context.say(f"Level {target.level} is the most that can be shown here. {target.reason}")
    return target


def _selection(context: Context) -> CheckSelection:
    arguments = context.arguments
    return CheckSelection(profile=arguments.profile, only=tuple(arguments.only), skip=tuple(arguments.skip))

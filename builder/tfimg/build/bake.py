"""Make the file from which `docker buildx bake` builds images, without tfimg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfimg import __version__
from tfimg.build.builder import Builder
from tfimg.build.settings import BuildSettings
from tfimg.core.errors import BaseImageError, NetworkError
from tfimg.core.events import OnEvent, ignore
from tfimg.engine.base_images.choose import apply_mirror
from tfimg.engine.protocol import Engine
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.bake import BakeTarget, make_bake_file
from tfimg.recipe.labels import make_build_labels


def make_bake_document(
    project: Project,
    connect: Callable[[], Engine],
    settings: BuildSettings,
    specs: Sequence[ImageSpec],
    *,
    secrets: Sequence[str] = (),
    on_event: OnEvent = ignore,
) -> dict[str, Any]:
    """Return the bake file of images as a JSON object. Raises `BaseImageError`.

    `connect` returns the engine that resolves or makes bases; `registry` as the source of bases asks none. Only
    `bootstrap` makes a base: a bake file is a document, and making it changes nothing else on this machine.
    """
    bases: dict[str, tuple[str, str, str | None]] = {}
    targets = []
    for plan in map(project.plan, specs):
        image = plan.spec.base.image
        if image not in bases:
            bases[image] = _resolve_base(project, connect, settings, plan.spec, on_event)
        reference, name, digest = bases[image]
        mirrors = settings.find_package_mirrors(plan.spec)
        labels = make_build_labels(
            base=name,
            base_digest=digest,
            base_kind="bootstrapped" if reference == name and digest else "official",
            recipe=None,
            revision=project.revision,
            version=__version__,
            snapshot=settings.public_snapshot if mirrors or settings.base == "bootstrap" else None,
        )
        committed = project.workspace.rendered(plan.spec.identifier)
        is_fresh = committed.is_file() and committed.read_text() == plan.dockerfile
        path = str(committed.relative_to(project.workspace.images)) if is_fresh else None
        targets.append(BakeTarget(plan=plan, base=reference, labels=labels, package_mirrors=mirrors, committed=path))
    return make_bake_file(targets, secrets=secrets)


def _resolve_base(
    project: Project, connect: Callable[[], Engine], settings: BuildSettings, spec: ImageSpec, on_event: OnEvent
) -> tuple[str, str, str | None]:
    """Return the value of `FROM`, the base's name and its digest."""
    name = apply_mirror(spec.base.image, settings.mirrors)
    if settings.base_digest:
        return f"{name}@{settings.base_digest}", name, settings.base_digest
    if settings.base == "bootstrap":
        base = Builder(project, connect(), settings).prepare_base(spec, on_event)
        return base.reference, base.name, base.digest
    if settings.base == "registry":
        return name, name, None
    try:
        digest = connect().resolve_digest(name)
    except NetworkError as error:
        raise BaseImageError(
            f"{name} is not available: {error.what}",
            next_step="`tfimg bake --base bootstrap` makes a base from Debian's packages in the engine, "
            "`--base registry` names the official image without asking for it, `--mirror` a registry that has it.",
        ) from None
    return f"{name}@{digest}", name, digest

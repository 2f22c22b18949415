"""Everything about one build that is decided before the engine is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment

from tfimg.errors import UnsupportedPlatform
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Layers
from tfimg.recipe.render import render
from tfimg.recipe.tags import tags


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to build and what to call it once it has passed. `wheels` are files that the package index lacks."""

    spec: ImageSpec
    lock: Layers
    dockerfile: str
    tags: tuple[str, ...]
    wheels: tuple[Path, ...] = ()


def require_buildable(spec: ImageSpec) -> None:
    """Raises `UnsupportedPlatform` for an image that this version cannot build."""
    if spec.platform != PLATFORMS[0]:
        raise UnsupportedPlatform(
            f"{spec.identifier} is for {spec.platform}, and this version of tfimg builds for {PLATFORMS[0]} only.",
            next_step=f"`tfimg resolve` has its facts, images/locks/{spec.identifier} its lock; for an image, ask for "
            f"--platform {PLATFORMS[0]}.",
        )


def buildable(specs: Sequence[ImageSpec]) -> tuple[ImageSpec, ...]:
    """Those that this version can build. Raises `UnsupportedPlatform` where it can build none of them."""
    found = tuple(spec for spec in specs if spec.platform == PLATFORMS[0])
    if specs and not found:
        require_buildable(specs[0])
    return found


def plan(
    spec: ImageSpec, lock: Layers, *, templates: Environment, repository: str, wheels: tuple[Path, ...] = ()
) -> Plan:
    """Put a plan together. Raises `RenderError` when a template is wrong."""
    return Plan(
        spec=spec,
        lock=lock,
        dockerfile=render(spec, lock, templates, wheels=bool(wheels)),
        tags=tags(spec, repository=repository),
        wheels=wheels,
    )

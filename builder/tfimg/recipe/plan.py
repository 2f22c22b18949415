"""Everything about one build that is decided before the engine is touched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment

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

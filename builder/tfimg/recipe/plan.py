"""Everything about one build that is decided before the engine is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Layers
from tfimg.recipe.render import render
from tfimg.recipe.tags import tags


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to build and what to call it once it has passed."""

    spec: ImageSpec
    lock: Layers
    dockerfile: str
    tags: tuple[str, ...]


def plan(
    spec: ImageSpec,
    specs: Sequence[ImageSpec],
    lock: Layers,
    *,
    templates: Environment,
    repository: str,
) -> Plan:
    """Put a plan together. Raises `RenderError` when a template is wrong."""
    return Plan(
        spec=spec,
        lock=lock,
        dockerfile=render(spec, lock, templates),
        tags=tags(spec, specs, repository=repository),
    )

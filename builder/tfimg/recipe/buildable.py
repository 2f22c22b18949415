"""Which images this version can build. Apart from `plan`, which needs the template engine."""

from __future__ import annotations

from collections.abc import Sequence

from tfimg.core.errors import UnsupportedPlatform
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec


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

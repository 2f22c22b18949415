"""ImageSpec → tags, canonical first. The whole tagging policy.

canonical  2.15.1-cpu-py3.11     the identifier itself
aliases    2.15.1                default Python of the release (CPU images; `-gpu`, `-tpu`, `-arm64` for the others)
           2.15                  … and the newest release of its minor for that device
"""

from __future__ import annotations

from collections.abc import Iterator

from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec


def tags(spec: ImageSpec, *, repository: str) -> tuple[str, ...]:
    """Full references of an image, the canonical one first."""
    return tuple(f"{repository}:{name}" for name in _names(spec))


def _names(spec: ImageSpec) -> Iterator[str]:
    yield spec.identifier
    if not spec.default_python:
        return
    suffix = "" if spec.device == "cpu" else f"-{spec.device}"
    if spec.platform != PLATFORMS[0]:
        suffix += f"-{spec.platform.partition('/')[2]}"
    yield f"{spec.tensorflow}{suffix}"
    if spec.newest_patch:
        yield f"{spec.minor}{suffix}"

"""ImageSpec → tags, canonical first. The whole tagging policy.

canonical  2.15.1-cpu-py3.11     the identifier itself
aliases    2.15.1                default Python of the release (CPU images; `-gpu`, `-tpu` for the others)
           2.15                  … and the newest release of its minor for that device
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.version import Version

from tfimg.matrix.spec import ImageSpec


def tags(spec: ImageSpec, specs: Sequence[ImageSpec], *, repository: str) -> tuple[str, ...]:
    """Full references of an image among all images of its matrix, the canonical one first."""
    return tuple(f"{repository}:{name}" for name in _names(spec, specs))


def _names(spec: ImageSpec, specs: Sequence[ImageSpec]) -> Iterator[str]:
    yield spec.identifier
    if not spec.default_python:
        return
    suffix = "" if spec.device == "cpu" else f"-{spec.device}"
    yield f"{spec.tensorflow}{suffix}"
    siblings = (other for other in specs if (other.device, other.minor) == (spec.device, spec.minor))
    if spec.tensorflow == max((other.tensorflow for other in siblings), key=Version):
        yield f"{spec.minor}{suffix}"

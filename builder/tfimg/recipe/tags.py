"""ImageSpec → tags, canonical first. The whole tagging policy.

canonical  2.15.1-cpu-py3.11     the identifier itself
aliases    2.15.1                default Python of the release (CPU images; `-gpu`, `-tpu`, `-arm64` for the others)
           2.15                  … and the newest release of its minor for that device
           2.15-py3.11           the newest release of its minor for that device, on that Python
           latest                default Python of the newest release for that device
build      2.15.1-cpu-py3.11-0123456789ab    in a registry: one build, by the beginning of its digest; never moved
"""

from __future__ import annotations

from collections.abc import Iterator

from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec

SHORT = 12
"""Hexadecimal digits of a digest in a tag, as many as `docker images` shows: 48 bits, which no two builds of an image
share by chance."""


def tags(spec: ImageSpec, *, repository: str) -> tuple[str, ...]:
    """Full references of an image, the canonical one first."""
    return tuple(f"{repository}:{name}" for name in (spec.identifier, *aliases(spec)))


def aliases(spec: ImageSpec) -> tuple[str, ...]:
    """The tags of an image that will be another's one day, without a repository; most exact first."""
    return tuple(_aliases(spec))


def build_tag(identifier: str, digest: str) -> str:
    """The tag that one build has for ever: `2.15.1-cpu-py3.11-0123456789ab`."""
    return f"{identifier}-{digest.removeprefix('sha256:')[:SHORT]}"


def _aliases(spec: ImageSpec) -> Iterator[str]:
    device = "" if spec.device == "cpu" else f"-{spec.device}"
    # The platform that nearly everybody pulls for is not named.
    processor = "" if spec.platform == PLATFORMS[0] else f"-{spec.platform.partition('/')[2]}"
    if spec.default_python:
        yield f"{spec.tensorflow}{device}{processor}"
        if spec.newest_patch:
            yield f"{spec.minor}{device}{processor}"
    if spec.newest_patch:
        yield f"{spec.minor}{device}-py{spec.python}{processor}"
    if spec.default_python and spec.newest:
        yield f"latest{device}{processor}"

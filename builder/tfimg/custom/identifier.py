"""The image of a supplied wheel as its identifier alone tells it, where the wheel is not at hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from tfimg.matrix.spec import CUSTOM_PREFIX, ImageSpec, SuppliedWheel

_IDENTIFIER = re.compile(
    rf"{CUSTOM_PREFIX}(?P<release>[0-9][0-9a-z._]*)-(?:cpu|cuda(?P<cuda>[0-9]+\.[0-9]+))-py(?P<python>3\.[0-9]+)"
    r"(?P<arm64>-arm64)?"
)


def parse_custom_identifier(identifier: str, specs: Sequence[ImageSpec]) -> ImageSpec | None:
    """Return the image of an identifier, with the other facts of the nearest image of the matrix; None if it has none.

    It can be run, and not be built: its wheel has no file. Architectures of its GPUs are those of the nearest image.
    """
    match = _IDENTIFIER.fullmatch(identifier)
    try:
        version = Version(match["release"].replace("_", "+")) if match else None
    except InvalidVersion:
        return None
    if match is None or version is None:
        return None
    device, cuda = ("gpu", match["cuda"]) if match["cuda"] else ("cpu", None)
    platform = "linux/arm64" if match["arm64"] else "linux/amd64"
    similar = [spec for spec in specs if spec.device == device and spec.platform == platform]
    if cuda:
        similar = [spec for spec in similar if spec.gpu and spec.gpu.cuda.split(".")[0] == cuda.split(".")[0]]

    def nearness(spec: ImageSpec) -> tuple[bool, bool, bool, bool, Version]:
        release = Version(spec.tensorflow)
        is_same_cuda = spec.gpu is None or spec.gpu.cuda == cuda
        is_same_minor = release.release[:2] == version.release[:2]
        return is_same_cuda, is_same_minor, spec.python == match["python"], release <= version, release

    nearest = max(similar, key=nearness, default=None)
    return nearest and replace(
        nearest,
        identifier=identifier,
        tensorflow=str(version),
        python=match["python"],
        is_default_python=False,
        is_newest_patch=False,
        is_newest=False,
        gpu=nearest.gpu.model_copy(update={"cuda": cuda}) if nearest.gpu else None,
        support_ends=(),  # of another release or Python than this image's
        wheel=SuppliedWheel(file=Path(), sha256=""),
    )

"""`2.18-cuda12`, `2.18` → the image that people mean by it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec

_FORM = re.compile(r"(?P<release>\d[\w.]*)(?:-(?P<device>cpu|gpu|tpu|cuda)(?P<cuda>[\d.]*))?(?:-py(?P<python>[\d.]+))?")


def find(specs: Sequence[ImageSpec], name: str) -> ImageSpec | None:
    """The image of an identifier, or of one cut short: newest release, default Python, the usual platform.

    Release and CUDA may end after any number: `2.18-cuda12`, `2.18-gpu`, `2.15.1-cpu-py3.9`; without a device it is for
    CPUs, as among the tags. None where nothing fits.
    """
    exact = next((spec for spec in specs if spec.identifier == name), None)
    form = _FORM.fullmatch(name)
    if exact or not form:
        return exact
    fitting = [spec for spec in specs if _fits(spec, **form.groupdict())]
    return fitting[-1] if fitting else None  # oldest release first


def _fits(spec: ImageSpec, release: str, device: str | None, cuda: str | None, python: str | None) -> bool:
    if device == "cuda":
        variant = spec.gpu is not None and _begins(spec.gpu.cuda, cuda or "")
    else:
        variant = spec.device == (device or "cpu")
    return (
        variant
        and spec.platform == PLATFORMS[0]
        and _begins(spec.tensorflow, release)
        and (spec.python == python if python else spec.default_python)
    )


def _begins(version: str, start: str) -> bool:
    """Whether a version has these first numbers: 2.18.1 has 2.18, but not 2.1."""
    return not start or f"{version}.".startswith(f"{start}.")

"""Which image exports a model to a format: the matrix's exporters, and refusals with the nearest that works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from packaging.version import Version

from tfimg.core.errors import ResolutionError, UsageError
from tfimg.matrix.devices import CPU
from tfimg.matrix.schema import Exporter
from tfimg.matrix.spec import ImageSpec

Quantization = Literal["dynamic", "float16", "int8"]
QUANTIZING = ("litert", "onnx")
"""Formats that can be quantized here."""

ENDINGS = {"litert": ".tflite", "onnx": ".onnx", "tfjs": ".tfjs", "openvino": ".openvino"}
"""Format → the end of the name. A format without one has no program in `images/export`."""

FOLDERS = ("tfjs", "openvino")
"""Formats whose model is a folder of files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportOptions:
    """What a model is exported to. `has_samples`: the user gives inputs; `page`: a browser shows the model."""

    target: str
    quantize: Quantization | None = None
    has_samples: bool = False
    signature: str | None = None
    opset: int | None = None
    page: bool = False


def require_way(options: ExportOptions, exporters: Mapping[str, Exporter], minor: str | None) -> Exporter:
    """Return the exporter of a format. `minor` is that of TensorFlow; None: any.

    Raises `UsageError` for options that do not go together, `ResolutionError` if there is no way.
    """
    if options.target not in exporters:
        near = get_close_matches(options.target, exporters, n=1, cutoff=0.4)
        raise UsageError(
            f"--to {options.target!r} is no format of an export.",
            next_step=(f"Did you mean {near[0]}? " if near else "") + f"Choose one of {', '.join(exporters)}.",
        )
    exporter = exporters[options.target]
    working = [name for name, one in exporters.items() if one.releases]
    if not exporter.releases:
        raise ResolutionError(
            f"No release exports to {options.target}: {exporter.otherwise}.",
            next_step=f"Use --to {' or '.join(working)}.",
        )
    if minor and minor not in exporter.releases:
        nearest = min(exporter.releases, key=lambda one: (abs(_number(one) - _number(minor)), one))
        raise ResolutionError(
            f"TensorFlow {minor} does not export to {options.target}: {exporter.otherwise}.",
            next_step=f"The nearest that does is --tf {nearest}.",
        )
    if options.quantize and options.target not in QUANTIZING:
        raise UsageError(
            f"--quantize {options.quantize} is not available for {options.target}.",
            next_step=f"Leave it out, or use --to {QUANTIZING[0]}.",
        )
    if options.quantize == "int8" and not options.has_samples:
        raise UsageError(
            "--quantize int8 needs --samples FILE.npz, whose inputs tell the ranges.",
            next_step="Write some 100 samples: `numpy.savez('samples.npz', INPUT_NAME=array)`.",
        )
    if options.opset is not None and options.target != "onnx":
        raise UsageError(f"--opset is of ONNX, not of {options.target}.", next_step="Leave it out.")
    if options.page and options.target != "tfjs":
        raise UsageError(f"--page is of TensorFlow.js, not of {options.target}.", next_step="Leave it out.")
    return exporter


def _number(minor: str) -> int:
    return Version(minor).minor


def choose_way(exporter: Exporter, specs: Sequence[ImageSpec], minor: str | None) -> ImageSpec:
    """Return the image, without its variant, of a release that has a way: for CPU, with the default Python."""
    wanted = minor or max(exporter.releases, key=Version)
    return next(
        spec
        for spec in specs
        if spec.minor == wanted and spec.is_newest_patch and spec.is_default_python
        if spec.device == CPU and spec.platform == "linux/amd64"
    )

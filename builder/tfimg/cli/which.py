"""`tfimg which`: the image that fits a host."""

from __future__ import annotations

import codecs
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfimg.cli.context import Context
from tfimg.core.errors import NoAccelerator, UsageError
from tfimg.host.nvidia_smi import INPUT_HELP, NvidiaSmi, parse_nvidia_smi
from tfimg.host.which import UNPROVEN, MinorFit, Recommendation, format_gpus, recommend_image
from tfimg.recipe.describe import describe_matrix_image

ELSEWHERE = (
    "For another machine, record `nvidia-smi` there and give it as --nvidia-smi FILE, or name its --driver and --gpu; "
    "for an image without a GPU, `tfimg resolve`."
)

MOST = 1 << 20
"""Bytes that are read of a file: a table of eight GPUs has 4,300, and /dev/zero has no end."""


def which(context: Context) -> int:
    """`tfimg which [--nvidia-smi FILE]`: read or ask nvidia-smi, find the image, say why."""
    smi = _smi(context)
    answer = recommend_image(context.project.matrix, context.project.specs, context.request, smi)
    image = describe_matrix_image(
        answer.spec, repository=context.project.repository, status=context.project.status(answer.spec)
    )
    if context.arguments.json:
        context.emit({"host": _host(answer, smi), **image, **_reasons(answer), "run": _run(image)})
    else:
        _print(answer, image)
    return 0


def _smi(context: Context) -> NvidiaSmi:
    file, request = context.arguments.nvidia_smi, context.request
    if file is not None:
        return parse_nvidia_smi(_text(_given(file)))
    if request.driver and request.gpu:  # nothing is left to ask
        return NvidiaSmi(driver=request.driver, cuda=None, gpus=())
    return _asked(context)


def _given(file: str) -> bytes:
    """What is in the file, or comes on standard input for `-`. Raises `UsageError` for no name, and for too much."""
    if not file:
        raise UsageError("--nvidia-smi is empty.", next_step="Name a file, - for standard input, or leave it out.")
    if file != "-":
        with Path(file).open("rb") as opened:
            given = opened.read(MOST + 1)
    else:
        given = sys.stdin.buffer.read(MOST + 1) if sys.stdin else b""
    if len(given) > MOST:
        raise UsageError(
            f"--nvidia-smi {file} is longer than anything that nvidia-smi prints: over {MOST >> 20} MiB.",
            next_step=INPUT_HELP,
        )
    return given


def _text(told: bytes) -> str:
    # PowerShell redirects in UTF-16.
    utf16 = told.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return told.decode("utf-16" if utf16 else "utf-8", errors="replace")


def _asked(context: Context) -> NvidiaSmi:
    smi = context.services.survey("").smi
    if isinstance(smi, NvidiaSmi):
        return smi
    raise NoAccelerator(f"No GPU of this machine answers: {smi.what}", next_step=f"{smi.next_step} {ELSEWHERE}")


def _host(answer: Recommendation, smi: NvidiaSmi) -> dict[str, Any]:
    return {"driver": answer.driver, "cuda": smi.cuda, "gpus": [asdict(kind) for kind in answer.kinds]}


def _reasons(answer: Recommendation) -> dict[str, Any]:
    return {
        "explanation": list(answer.explanation),
        "notes": list(answer.notes),
        "minors": [asdict(minor) for minor in answer.minors],
    }


def _run(image: dict[str, Any]) -> str:
    return f"tfimg run {image['tags'][0]}"


def _fits(minor: MinorFit) -> str:
    if minor.image is None:
        return "no"
    return "?" if minor.why.startswith(UNPROVEN) else "yes"


def _print(answer: Recommendation, image: dict[str, Any]) -> None:
    from tfimg.cli.fields import print_fields

    proven = " ".join(str(image[key]) for key in ("level", "date", "gpu", "driver") if image[key])
    print_fields(
        {
            "gpu": [format_gpus(kind) for kind in answer.kinds],
            "driver": answer.driver,
            "image": image["identifier"],
            "tags": image["tags"],
            "proven": proven,
            "why": list(answer.explanation),
            "notes": list(answer.notes) or None,
            "build": image["build"],
            "run": _run(image),
        }
    )
    print()
    minors = {one.minor: f"{_fits(one):3}  {one.why}" for one in answer.minors}
    print_fields({"TensorFlow": "fits this host?", **minors})

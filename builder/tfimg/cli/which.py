"""`tfimg which`: the image that fits a host."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfimg.cli.context import Context
from tfimg.cli.streams import read_text
from tfimg.core.errors import NoAccelerator, UsageError
from tfimg.host.nvidia_smi import INPUT_HELP, NvidiaSmi, parse_nvidia_smi
from tfimg.host.which import UNPROVEN, MinorFit, Recommendation, format_gpus, recommend_image
from tfimg.recipe.describe import describe_matrix_image

if TYPE_CHECKING:
    from tfimg.cli.commands.which import Which

ELSEWHERE = (
    "For another machine, record `nvidia-smi` there and give it as --nvidia-smi FILE, or name its --driver and --gpu; "
    "for an image without a GPU, `tfimg resolve`."
)

MAX_BYTES = 1 << 20
"""Bytes that are read of a file: a table of eight GPUs has 4,300, and /dev/zero has no end."""


def which(command: Which, context: Context) -> int:
    """`tfimg which [--nvidia-smi FILE]`: read or ask nvidia-smi, find the image, say why."""
    smi = _read_nvidia_smi(command, context)
    answer = recommend_image(context.project.matrix, context.project.specs, command.request(), smi)
    image = describe_matrix_image(
        answer.spec, repository=context.project.repository, status=context.project.status(answer.spec)
    )
    if context.command.json:
        context.emit(
            {"host": _host_document(answer, smi), **image, **_reason_document(answer), "run": _run_command(image)}
        )
    else:
        _print_answer(answer, image)
    return 0


def _read_nvidia_smi(command: Which, context: Context) -> NvidiaSmi:
    file, request = command.nvidia_smi, command.request()
    if file is not None:
        return parse_nvidia_smi(_read_output(file))
    if request.driver and request.gpu:  # nothing is left to ask
        return NvidiaSmi(driver=request.driver, cuda=None, gpus=())
    return _query_nvidia_smi(context)


def _read_output(file: str) -> str:
    if not file:
        raise UsageError("--nvidia-smi is empty.", next_step="Name a file, - for standard input, or leave it out.")
    text = read_text(file, MAX_BYTES)
    if text is None:
        raise UsageError(
            f"--nvidia-smi {file} is longer than anything that nvidia-smi prints: over {MAX_BYTES >> 20} MiB.",
            next_step=INPUT_HELP,
        )
    return text


def _query_nvidia_smi(context: Context) -> NvidiaSmi:
    smi = context.services.survey("").smi
    if isinstance(smi, NvidiaSmi):
        return smi
    raise NoAccelerator(f"No GPU of this machine answers: {smi.what}", next_step=f"{smi.next_step} {ELSEWHERE}")


def _host_document(answer: Recommendation, smi: NvidiaSmi) -> dict[str, Any]:
    return {"driver": answer.driver, "cuda": smi.cuda, "gpus": [asdict(kind) for kind in answer.kinds]}


def _reason_document(answer: Recommendation) -> dict[str, Any]:
    return {
        "explanation": list(answer.explanation),
        "notes": list(answer.notes),
        "minors": [asdict(minor) for minor in answer.minors],
    }


def _run_command(image: dict[str, Any]) -> str:
    return f"tfimg run {image['tags'][0]}"


def _describe_fit(minor: MinorFit) -> str:
    if minor.image is None:
        return "no"
    return "?" if minor.why.startswith(UNPROVEN) else "yes"


def _print_answer(answer: Recommendation, image: dict[str, Any]) -> None:
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
            "run": _run_command(image),
        }
    )
    print()
    minors = {one.minor: f"{_describe_fit(one):3}  {one.why}" for one in answer.minors}
    print_fields({"TensorFlow": "fits this host?", **minors})

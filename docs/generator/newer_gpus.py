"""GPUs for which no wheel has code: what is offered by release and toolkit, what is proven, and what users reported."""

from __future__ import annotations

from collections.abc import Iterator

from generator.markdown import code, escape, table
from generator.program import project
from tfimg.matrix.gpus import explain_no_support, find_execution_mode, parse_capability
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DECLARED
from tfimg.recipe.support import make_issue_url

CAPABILITIES = ("sm_100", "sm_120")
"""Of the GPUs with an x86-64 processor for which there is no code: B200, and RTX 50 with RTX PRO."""

FIRST = (2, 18)
"""The first release that users tried on them in numbers."""


def newer_gpus() -> str:
    """Return release and toolkit → the level of the image, how it runs on these GPUs, and the command that says so."""
    heads = ("release", "toolkit", "proven without the GPU", *(f"on {one}" for one in CAPABILITIES), "what says so")
    return table(heads, map(_row, _images()), ".stack .words")


def _images() -> Iterator[ImageSpec]:
    """Yield the GPU image of each minor and toolkit, the newest release first."""
    for spec in reversed(project().specs):
        is_shown = spec.gpu and spec.is_newest_patch and spec.is_default_python and spec.platform == PLATFORMS[0]
        if is_shown and tuple(map(int, spec.minor.split("."))) >= FIRST:
            yield spec


def _row(spec: ImageSpec) -> tuple[str, ...]:
    level = project().statuses.get(spec.identifier, DECLARED).level
    command = f"tfimg resolve --tf {spec.minor} --cuda {spec.cuda} --gpu {CAPABILITIES[-1]}"
    verdicts = (_describe(spec, capability) for capability in CAPABILITIES)
    return spec.tensorflow, f"CUDA {spec.cuda}", level, *verdicts, code(command)


def _describe(spec: ImageSpec, capability: str) -> str:
    matrix = project().matrix
    if spec.gpu is None or parse_capability(capability) < parse_capability(matrix.ptx.below):
        return ""
    report = spec.gpu.reports.get(capability)
    if find_execution_mode(matrix, spec.gpu, capability) == "unproven" and report:
        return f"unproven: {escape(report.reason)}"
    reason = explain_no_support(matrix, spec.gpu, capability) if report else "not reported, so not offered"
    return f"refused: {escape(reason or '')}"


def gpu_reports() -> str:
    """Return what users have reported, the newest first."""
    reports = sorted(project().matrix.gpu_reports, key=lambda report: report.reported, reverse=True)
    rows = (
        (
            report.reported.isoformat(),
            f"{report.tensorflow}, {report.wheel}",
            report.cuda or "not stated",
            f"{escape(report.gpu)} ({escape(report.capability)})",
            f"{report.result}: {escape(report.saw)}",
            f"[{escape(report.issue)}]({make_issue_url(report.issue)})",
        )
        for report in reports
    )
    return table(("reported", "TensorFlow", "CUDA", "GPU", "result", "source"), rows, ".stack .words")

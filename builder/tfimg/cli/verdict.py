"""The end of a build or a validation: kept, demanded, told."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.show import size
from tfimg.engine.build import BuiltImage
from tfimg.errors import FileError, ValidationBroken, ValidationFailed
from tfimg.recipe.plan import Plan
from tfimg.validation.report import Report
from tfimg.workspace import write_atomically


def check_report(context: Context) -> None:
    """Raises `FileError` when the report could not be written in the end: a build is too long to find out then."""
    report = context.arguments.report
    if report and (Path(report).is_dir() or not os.access(Path(report).resolve().parent, os.W_OK)):
        raise FileError(
            f"--report {report} is not a file that can be written.",
            next_step="Name a file in a folder that exists and that you may write to.",
        )


def keep(context: Context, report: Report, *, as_evidence: bool) -> None:
    """Write the report where the arguments say, and into the workspace when it is to be evidence."""
    text = json.dumps(report.to_json(), indent=2) + "\n"
    if context.arguments.report:
        write_atomically(Path(context.arguments.report), text)
    if as_evidence:
        write_atomically(context.workspace.evidence(report.identifier), text)


def demand(report: Report, *, of: str, end: str) -> None:
    """Raises when an image is not green: `ValidationFailed`, or `ValidationBroken` when the suite broke off.

    `of` begins the message, `end` says what that means for the image's tags.
    """
    if report.passed:
        return
    told = "; ".join(f"{one.check} {one.outcome}: {one.reason}" for one in report.culprits)
    if report.problem:
        raise ValidationBroken(
            f"{of}, but {report.problem}" + (f". {told}" if told else ""),
            next_step=f"{end} Try again; if it breaks at the same check, the image is at fault.",
        )
    raise ValidationFailed(
        f"{of}, and {len(report.culprits)} of {len(report.results)} checks did not pass. {told}",
        next_step=f"{end} --report FILE keeps the whole evidence.",
    )


def tell(context: Context, planned: Plan, built: BuiltImage, report: Report) -> None:
    """Say what was built, as it was read back."""
    stored = built.stored
    if context.arguments.json:
        context.emit({"event": "built", **_document(planned, built, report)})
        return
    asked = built.output.compression
    found = (
        stored.compression if stored.compression == asked else f"{stored.compression}, not {asked} as asked"
    )
    print_fields(
        {
            "image": stored.digest,
            "tags": list(planned.tags),
            "base": f"{built.base.kind} {built.base.name}",
            "size": f"{size(stored.unpacked_bytes)} unpacked, {size(stored.compressed_bytes)} compressed ({found})",
            "checks": f"{len(report.results)} passed in {report.seconds:.0f} s",
            "level": told_level(report),
        }
    )


def told_level(report: Report) -> str:
    """The level, and what a higher one would still need."""
    if not report.unproven:
        return report.level
    needed = report.device.upper()
    return (
        f"{report.level}; unproven without a {needed}: {', '.join(report.unproven)}, and on a {needed} whatever "
        "ran on the CPU"
    )


def _document(planned: Plan, built: BuiltImage, report: Report) -> dict[str, Any]:
    return {
        "identifier": built.identifier,
        "digest": built.stored.digest,
        "tags": list(planned.tags),
        "base": asdict(built.base),
        "compression": {"asked": built.output.compression, "found": built.stored.compression},
        "unpacked_bytes": built.stored.unpacked_bytes,
        "compressed_bytes": built.stored.compressed_bytes,
        "layers": [asdict(layer) for layer in built.stored.layers],
        "labels": dict(built.stored.labels),
        "build_seconds": round(built.seconds, 1),
        "report": report.to_json(),
    }

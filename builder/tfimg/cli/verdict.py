"""The end of a build or a validation: kept, demanded, told."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.show import print_fields, size
from tfimg.engine.build import BuiltImage
from tfimg.errors import ValidationBroken, ValidationFailed
from tfimg.recipe.plan import Plan
from tfimg.validation.report import Report
from tfimg.workspace import write_atomically


def keep(context: Context, report: Report, *, as_evidence: bool) -> None:
    """Write the report where the arguments say, and into the workspace when it is to be evidence."""
    text = json.dumps(report.to_json(), indent=2) + "\n"
    if context.arguments.report:
        write_atomically(Path(context.arguments.report), text)
    if as_evidence:
        write_atomically(context.workspace.evidence(report.identifier), text)


def demand(report: Report) -> None:
    """Raises when an image may not be tagged: `ValidationFailed`, or `ValidationBroken` when the suite broke off."""
    if report.passed:
        return
    told = "; ".join(f"{one.check} {one.outcome}: {one.reason}" for one in report.culprits)
    if report.problem:
        raise ValidationBroken(
            f"{report.identifier} was built, but {report.problem}" + (f". {told}" if told else ""),
            next_step="No tag was given. Validate again; if it breaks at the same check, the image is at fault.",
        )
    raise ValidationFailed(
        f"{report.identifier} was built, and {len(report.culprits)} of {len(report.results)} checks did not pass. "
        f"{told}",
        next_step="No tag was given. --report FILE keeps the whole evidence.",
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
            "level": report.level,
        }
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

"""The end of a build or a validation, told."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tfimg.build.candidate import BuiltImage
from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.show import size
from tfimg.recipe.plan import Plan
from tfimg.validation.report import Report


def tell(context: Context, planned: Plan, built: BuiltImage, report: Report) -> None:
    """Say what was built, as it was read back."""
    stored = built.stored
    if context.arguments.json:
        context.emit({"event": "built", **_document(planned, built, report)})
        return
    asked = built.output.compression
    found = stored.compression if stored.compression == asked else f"{stored.compression}, not {asked} as asked"
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
    if report.missing:
        left = f"{len(report.missing)} of {len(report.required)} checks that {report.aim} needs were left out"
        return f"{report.level}; {left} by --profile, --only or --skip"
    if not report.unproven:
        return report.level
    told = f"{report.level}; unproven without {report.missing_hardware}: {', '.join(report.unproven)}"
    return told if report.aim == "validated" else f"{told}, and on {report.missing_hardware} whatever ran on the CPU"


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

"""The end of a build or a validation: demanded, told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.show import size
from tfimg.engine.build import BuiltImage
from tfimg.errors import (
    TfimgError,
    UnfitHost,
    ValidationBroken,
    ValidationCrashed,
    ValidationFailed,
    ValidationIncomplete,
    ValidationTimedOut,
)
from tfimg.recipe.plan import Plan
from tfimg.validation.report import Report, Verdict

ENDINGS: Mapping[Verdict, type[TfimgError]] = {
    "failed": ValidationFailed,
    "crashed": ValidationCrashed,
    "timed-out": ValidationTimedOut,
    "skipped": ValidationIncomplete,
    "broken": ValidationBroken,
}
"""What an image that is not green ends a command with."""


MOST = 3
"""Checks that the last sentence tells; each has been told when it ended."""


def _short(reason: str) -> str:
    return reason if len(reason) <= 300 else f"{reason[:299]}…"


def demand(report: Report, *, of: str, end: str) -> None:
    """Raises the verdict's error when an image is not green; `UnfitHost` where the machine is known to be at fault.

    `of` begins the message, `end` says what that means for the image's tags.
    """
    if report.passed:
        return
    told = "; ".join(
        f"{one.check} {one.outcome}: {_short(one.reason or '')}" for one in report.culprits[:MOST]
    )
    if len(report.culprits) > MOST:
        told += f"; and {len(report.culprits) - MOST} more, told above"
    known = {one.signature: one for result in report.culprits for one in result.explained}
    if report.problem:
        found = f", but {report.problem}" + (f". {told}" if told else "")
        next_step = (
            "Try again; if it breaks at the same check, the image is at fault."
            if report.results
            else "Look inside with `docker run --rm -it --entrypoint sh IMAGE`."
        )
    else:
        found = f", and {len(report.culprits)} of {len(report.results)} checks did not pass. {told}"
        next_step = (
            " ".join(one.remedy for one in known.values()) or "--report FILE keeps the whole evidence."
        )
    causes = "".join(f" Known cause ({one.fault}): {one.cause}" for one in known.values())
    kind = UnfitHost if report.fault == "host" else ENDINGS[report.verdict]
    raise kind(f"{of}{found}{causes}", next_step=f"{end} {next_step}")


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
    if report.missing:
        left = f"{len(report.missing)} of {len(report.required)} checks that {report.aim} needs were left out"
        return f"{report.level}; {left} by --profile, --only or --skip"
    if not report.unproven:
        return report.level
    told = f"{report.level}; unproven without {report.lack}: {', '.join(report.unproven)}"
    return told if report.aim == "validated" else f"{told}, and on {report.lack} whatever ran on the CPU"


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

"""`tfimg validate`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from tfimg.cli.options import (
    Command,
    WheelOptions,
    identifier_option,
    image_argument,
    level_option,
    option,
    record_option,
    report_option,
    values,
)

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Validate(Command, WheelOptions):
    """Run the suite in an image that is in the engine.

    Examples:
      tfimg validate tfimg/tensorflow:2.15 --as 2.15.1-cpu-py3.11
    """

    image: str = image_argument()
    _: KW_ONLY
    identifier: str | None = identifier_option()
    report: tuple[str, ...] = report_option()
    record: bool = record_option()
    level: Literal["linked", "validated"] | None = level_option()
    profile: Literal["smoke", "standard", "full"] = option(
        "how much of the suite to run (default: standard)", default="standard"
    )
    only: tuple[str, ...] = values("run these checks alone: 'gpu.*'", "PATTERN")
    skip: tuple[str, ...] = values("leave these checks out: 'gpu.*'", "PATTERN")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.images import validate

        return validate(self, context)

"""`tfimg bare` and `tfimg record`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, argument, option, pattern_arguments
from tfimg.cli.request_options import RequestOptions
from tfimg.cli.values import positive_number

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Bare(Command, RequestOptions):
    """Make a folder that proves releases on a machine without an image: the suite, its script, all wheels.

    Examples:
      tfimg bare gpu --tf 2.21 --device gpu && python3 gpu/run.py
      tfimg bare gpu '2.1[5-9]*-cuda*-py3.11' --pieces 60
    """

    folder: str = argument("a new folder, or one that an earlier run has begun", "FOLDER")
    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    pieces: int | None = option(
        "split wheels into files of at most MIB mebibytes, which run.py joins", "MIB", parse=positive_number
    )

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.bare import bare

        return bare(self, context)


@dataclass(frozen=True)
class RecordEvidence(Command):
    """Record the evidence of such a folder in the checkout; it raises no image's level.

    Examples:
      tfimg record evidence.json
    """

    file: str = argument("the evidence.json that run.py has written", "FILE")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.bare import record

        return record(self, context)

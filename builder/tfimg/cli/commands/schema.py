"""`tfimg schema`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tfimg.cli.options import Command, argument

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Schema(Command):
    """Print the JSON Schema of matrix.yaml, for editors, or of a report.

    Examples:
      tfimg schema report
    """

    document: Literal["matrix", "report"] = argument("which (default: matrix)", "matrix|report", default="matrix")

    def run(self, _context: Context) -> int:
        """Run the command."""
        from tfimg.cli.facts import schema

        return schema(self)

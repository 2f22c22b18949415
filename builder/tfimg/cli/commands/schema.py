"""`tfimg schema`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument


@dataclass(frozen=True)
class Schema(Command):
    """Print the JSON Schema of matrix.yaml, for editors, or of a report.

    Examples:
      tfimg schema report
    """

    document: Literal["matrix", "report"] = argument(
        "document to print (default: matrix)", "matrix|report", default="matrix"
    )

    def run(self, _context: Context) -> int:
        """Print the schema, as the committed file has it."""
        from tfimg.matrix.schema import matrix_schema_text
        from tfimg.validation.schema import schema_text

        print(schema_text() if self.document == "report" else matrix_schema_text(), end="")
        return 0

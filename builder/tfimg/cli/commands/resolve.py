"""`tfimg resolve`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, RepositoryOptions, flag
from tfimg.cli.request_options import RequestOptions


@dataclass(frozen=True, kw_only=True)
class Resolve(Command, RequestOptions, RepositoryOptions):
    """Say which image a request means, or why none does.

    Examples:
      tfimg resolve --tf 2.15 --cuda 12 --json
    """

    explain: bool = flag("explain the choice")

    def run(self, context: Context) -> int:
        """Print the image, notes on its use, and on demand the explanation of the choice."""
        found = context.project.resolve(self.request())
        notes = list(found.notes)
        row = context.project.describe(found.spec)
        reasons = {"explanation": list(found.explanation)} if self.explain else {}
        context.print_result({**row, "notes": notes, **reasons}, {**row, "notes": notes or None, **reasons})
        return 0

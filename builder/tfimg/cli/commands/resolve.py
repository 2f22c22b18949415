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
        from tfimg.matrix.support_ends import describe_ended

        found = context.project.resolve(self.request())
        today = context.services.today
        notes = [*found.notes, *describe_ended(found.spec.support_ends, today)]
        row = context.project.describe(found.spec)
        ends = [end.describe(today) for end in found.spec.support_ends]
        reasons = {"explanation": list(found.explanation)} if self.explain else {}
        fields = {**row, "end_of_life": ends or None, "notes": notes or None, **reasons}
        context.print_result({**row, "notes": notes, **reasons}, fields)
        return 0

"""`tfimg report`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, argument, report_option

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class ShowReport(Command):
    """Show a kept report, or write it in another form.

    Examples:
      tfimg report report.json --report report.html --report junit.xml
    """

    file: str = argument("what build or validate wrote with --report", "FILE.json")
    _: KW_ONLY
    report: tuple[str, ...] = report_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.report import report

        return report(self, context)

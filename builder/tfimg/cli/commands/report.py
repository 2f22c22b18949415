"""`tfimg report`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument, report_option


@dataclass(frozen=True)
class ShowReport(Command):
    """Show a kept report, or write it in another form.

    Examples:
      tfimg report report.json --report report.html --report junit.xml
    """

    file: str = argument("report that `build` or `validate` wrote as JSON, or evidence in images/evidence", "FILE.json")
    _: KW_ONLY
    report: tuple[str, ...] = report_option()

    def run(self, context: Context) -> int:
        """Read the report, write and print it: a success, whatever its verdict says."""
        from tfimg.cli.output.checks import print_report
        from tfimg.cli.report_files import check_report_files, write_reports
        from tfimg.validation.schema import load_report

        check_report_files(self.report)
        report = load_report(Path(self.file))
        write_reports(self.report, report)
        context.print_result(report.to_json(), lambda: print_report(report))
        for name in self.report:
            context.say(f"wrote {name}")
        return 0

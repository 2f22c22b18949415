"""`tfimg report`: print a report, or write it in another form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.report_files import check_report_files, write_reports
from tfimg.core.errors import FileError
from tfimg.validation.report import Report

if TYPE_CHECKING:
    from tfimg.cli.commands.report import ShowReport


def report(command: ShowReport, context: Context) -> int:
    """`tfimg report FILE.json [--report FILE ...] [--json]`: it has read and written, whatever the verdict says."""
    check_report_files(command.report)
    found = read_kept(command.file)
    write_reports(command.report, found)
    if context.command.json:
        context.emit(found.to_json())
    else:
        show_report(found)
        for name in command.report:
            context.say(f"wrote {name}")
    return 0


def read_kept(name: str) -> Report:
    """Read a report. Raises `FileError` if it cannot be read or is not a report."""
    from tfimg.validation.schema import read_report

    try:
        text = Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(
            f"{name} is not a valid validation report: it is not UTF-8 at byte {error.start}.",
            next_step="Name a file that `tfimg build --report` or `tfimg validate --report` wrote as JSON.",
        ) from None
    return read_report(text, source=name)


def show_report(report: Report) -> None:
    """Print the checks of a report and its summary."""
    from tfimg.cli.console import make_console
    from tfimg.cli.fields import print_fields
    from tfimg.cli.output.checks import check_line, result_table, summary_fields

    console = make_console()
    if console.is_terminal:
        console.print(result_table(report.results))
    else:
        for result in report.results:
            print(check_line(result))
    print()
    print_fields(summary_fields(report))

"""`tfimg explain`."""

from __future__ import annotations

import sys
from dataclasses import KW_ONLY, asdict, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.documentation import locate_page
from tfimg.cli.options import Command, argument, report_option
from tfimg.core.errors import UnknownFailure, UsageError

if TYPE_CHECKING:
    from tfimg.validation.report import Explanation, Report

MAX_BYTES = 8 << 20
"""Bytes that are read of a log. Longer ones repeat themselves; this much takes two seconds."""


@dataclass(frozen=True)
class Explain(Command):
    """Explain the failures in a log or a report, and write a report in another form.

    Examples:
      tfimg explain build.log
      docker logs NAME 2>&1 | tfimg explain
      tfimg explain report.json --report report.html --report junit.xml
    """

    file: str = argument(
        "log, report as JSON, or evidence in images/evidence; -: standard input (default)", "FILE", default="-"
    )
    _: KW_ONLY
    report: tuple[str, ...] = report_option()

    def run(self, context: Context) -> int:
        """Show a report: a success, whatever its verdict says; or the known failures in a log.

        Raises `UnknownFailure` if a log has none.
        """
        from tfimg.cli.output.streams import read_text
        from tfimg.cli.report_files import check_report_files
        from tfimg.validation.record import find_report

        check_report_files(self.report)
        if self.file == "-" and sys.stdin and sys.stdin.isatty():
            step = "Name a file, or pipe a log in: `docker logs NAME 2>&1 | tfimg explain`."
            raise UsageError("No log is given: standard input is a terminal.", next_step=step)
        step = "Give the end of the log, where the failure is: `tail -c 4M FILE | tfimg explain`."
        text = read_text(self.file, MAX_BYTES, next_step=step)
        if report := find_report(text, source=self.file):
            self._show_report(context, report)
        elif self.report:
            step = "Name the JSON that `tfimg build` or `tfimg validate` wrote with --report."
            raise UsageError(f"{self.file} is a log, and --report writes reports.", next_step=step)
        else:
            _explain_log(context, text)
        return 0

    def _show_report(self, context: Context, report: Report) -> None:
        from tfimg.cli.output.checks import print_report
        from tfimg.cli.report_files import write_reports

        write_reports(self.report, report)
        if self.json:
            context.emit(report.to_json())
        else:
            print_report(report)
            known = {one.signature: one for result in report.unsuccessful for one in result.explained}
            for one in known.values():
                print()
                _print_explanation(one)
        for name in self.report:
            context.say(f"wrote {name}")


def _explain_log(context: Context, text: str) -> None:
    from tfimg.validation.run import HARMLESS, explain

    found = explain(text, suite=context.project.workspace.validation)
    if context.command.json:
        context.emit({"explanations": [{**asdict(one), "more": link_to(one.signature)} for one in found]})
    else:
        for number, one in enumerate(found):
            print("\n" if number else "", end="")
            _print_explanation(one)
    if not text.strip():
        step = "Errors go to standard error: put 2>&1 before the pipe."
        raise UnknownFailure("The log is empty.", next_step=step)
    if all(one.fault == HARMLESS for one in found):
        raise UnknownFailure(
            "No known failure matches this log" + (", only harmless messages." if found else "."),
            next_step="Give the complete log, from the program's start to its end. Otherwise `tfimg validate "
            "IMAGE` looks for the fault in the image, and `tfimg doctor` on this machine.",
        )


def _print_explanation(known: Explanation) -> None:
    from tfimg.cli.output.fields import print_fields
    from tfimg.validation.run import FAULT_NAMES

    fields = {"found": known.signature, "fault": FAULT_NAMES[known.fault], "cause": known.cause, "proof": known.proof}
    print_fields({**fields, "remedy": known.remedy, "more": link_to(known.signature)})


def link_to(signature: str) -> str:
    """Return where the documentation describes a signature."""
    return locate_page("how-to/troubleshoot", signature)

"""`tfimg validate` and `tfimg explain`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.table import Table
from rich.text import Text

from tfimg.cli.app import locate_page
from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    IdentifierOptions,
    LocalImageOptions,
    ValidationOptions,
    argument,
    option,
    report_option,
    values,
)
from tfimg.cli.output.console import make_console
from tfimg.cli.output.display import describe_check, row_grid
from tfimg.cli.output.fields import print_fields
from tfimg.cli.output.progress import Activity, render_events
from tfimg.cli.output.streams import read_text
from tfimg.cli.output.tables import COLOURS
from tfimg.core.errors import UnknownFailure, UsageError, ValidationIncomplete
from tfimg.core.files import write_atomically
from tfimg.project.project import write_record
from tfimg.project.validator import Validator
from tfimg.validation.record import find_report
from tfimg.validation.report import (
    REPORT_SUFFIXES,
    CheckResult,
    Explanation,
    Report,
    check_line,
    format_report,
    level_words,
    summary_fields,
)
from tfimg.validation.run import FAULT_NAMES, HARMLESS, explain, raise_for_verdict
from tfimg.validation.suite import CheckSelection


@dataclass(frozen=True)
class Validate(Command, LocalImageOptions, IdentifierOptions, ValidationOptions):
    """Run the suite in an image that is in the engine.

    Examples:
      tfimg validate tfimg/tensorflow:2.15 --as 2.15.1-cpu-py3.11
      tfimg validate tfimg/tensorflow:2.15 --workers 2
    """

    profile: Literal["smoke", "standard", "full"] = option(
        "how much of the suite to run (default: standard)", default="standard"
    )
    only: tuple[str, ...] = values("run these checks alone: 'gpu.*'", "PATTERN")
    skip: tuple[str, ...] = values("leave these checks out: 'gpu.*'", "PATTERN")
    workers: Literal["2", "4", "8"] | None = option(
        "then run the distributed checks across so many containers; they raise no level", default=None
    )

    def run(self, context: Context) -> int:
        check_report_files(self.report)
        project = context.project(find_links=self.find_links)
        checks = CheckSelection(profile=self.profile, only=self.only, skip=self.skip)
        validator = Validator(
            project=project, engine=context.services.runner(), level=self.required_level(), checks=checks
        )
        with render_events(context, verbose=self.verbose) as on_event:
            alone = validator.validate_image(self.image, self.identifier, needs_lock=self.record, on_event=on_event)
            report = alone
            if self.workers:
                report = validator.validate_workers(self.image, alone, int(self.workers), on_event=on_event)
        write_reports(self.report, report)
        if self.record and report.passed:
            # What the image says of its recipe is no proof: nothing was built here. Records have the checks of one
            # container, which every later run repeats.
            write_record(project.workspace, alone, content=None, recipe=None)
        if context.json:
            context.emit({"event": "report", **report.to_json()})
        raise_for_verdict(report, subject=f"{self.image} was validated", consequence="Its tags are as they were.")
        skipped = [one for one in report.results[len(alone.results) :] if one.outcome == "skipped"]
        if skipped:
            raise ValidationIncomplete(
                f"{self.image} passed in one container, and {skipped[0].check} was skipped: {skipped[0].reason}.",
                next_step="Leave --workers out, or validate it in an engine that connects containers.",
            )
        if not context.json:
            passed = sum(result.outcome == "passed" for result in report.results)
            print(f"{self.image}: {passed} check{'' if passed == 1 else 's'} passed, level {level_words(report)}")
        return 0


def check_report_files(names: Sequence[str], suffixes: Sequence[str] = REPORT_SUFFIXES) -> None:
    """Raise `UsageError` for a --report with none of the suffixes, before a long build."""
    for name in names:
        if Path(name).suffix.lower() not in suffixes:
            raise UsageError(
                f"--report {name} does not end in {', '.join(suffixes[:-1])} or {suffixes[-1]}, which chooses the "
                "form of the file.",
                next_step=f"Write for example --report {Path(name).with_suffix(suffixes[0])}.",
            )


def write_reports(names: Sequence[str], report: Report) -> None:
    """Write a report to every --report."""
    for name in names:
        write_atomically(Path(name), format_report(report, name))


MAX_BYTES = 64 << 20
"""Bytes that are read of a log. So much takes two seconds; of longer ones the end is enough."""


@dataclass(frozen=True)
class Explain(Command):
    """Explain the failures in a log or a report, and write a report in another form.

    Examples:
      tfimg explain build.log
      docker logs NAME 2>&1 | tfimg explain
      tfimg explain report.json --report report.html --report junit.xml
    """

    file: str = argument(
        "log, report as JSON, or record in images/records; -: standard input (default)", "FILE", default="-"
    )
    report: tuple[str, ...] = report_option()

    def run(self, context: Context) -> int:
        """Show a report: a success, whatever its verdict says; or the known failures in a log.

        Raises `UnknownFailure` if a log has none.
        """
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
            try:
                _explain_log(context, text)
            except UnknownFailure:
                if not self.file.endswith(".json"):
                    raise
                step = "Name the JSON that `tfimg build` or `tfimg validate` wrote with --report, or a complete log."
                raise UsageError(
                    f"{self.file} is no report, and as a log it has no known failure.", next_step=step
                ) from None
        return 0

    def _show_report(self, context: Context, report: Report) -> None:
        write_reports(self.report, report)
        if context.json:
            context.emit(report.to_json())
        else:
            print_report(report)
            known = {one.issue: one for result in report.unsuccessful for one in result.explained}
            for one in known.values():
                print()
                _print_explanation(one)
        for name in self.report:
            context.say(f"wrote {name}")


def _explain_log(context: Context, text: str) -> None:
    with Activity(context, "Looking for known failures"):
        found = explain(text, suite=context.project().workspace.validation)
    if context.json:
        context.emit({"explanations": [{**asdict(one), "more": link_to(one.issue)} for one in found]})
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
    fields = {"found": known.issue, "fault": FAULT_NAMES[known.fault], "cause": known.cause, "proof": known.proof}
    print_fields({**fields, "fix": known.fix, "more": link_to(known.issue)})


def link_to(issue: str) -> str:
    """Return where the documentation describes a known issue."""
    return locate_page("how-to/troubleshoot", issue)


def print_report(report: Report) -> None:
    """Print the checks of a report and its summary."""
    console = make_console()
    if console.is_terminal:
        console.print(result_table(report.results))
    else:
        for result in report.results:
            print(check_line(result))
    print()
    print_fields(summary_fields(report))


def result_table(results: Iterable[CheckResult]) -> Table:
    """Return a row for each check, with the outcome as a word and a colour."""
    table = row_grid()
    for result in results:
        word = Text(result.outcome, style=COLOURS[result.outcome])
        table.add_row(word, f"{result.seconds:.1f} s", describe_check(result))
    return table

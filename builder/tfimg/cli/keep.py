"""Where reports go: to the files that the arguments name, each in the form that its name asks for, and to evidence."""

from __future__ import annotations

import os
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.errors import FileError, UsageError
from tfimg.validation.forms import SUFFIXES, has_form, json_text, written
from tfimg.validation.report import Report
from tfimg.workspace import write_atomically


def check_report(context: Context) -> None:
    """Raises where a report could not be written in the end: a build is too long to find out then.

    `UsageError` for a name that tells no form, `FileError` for a place where nothing can be written.
    """
    for name in context.arguments.report:
        if Path(name).is_dir() or not os.access(Path(name).resolve().parent, os.W_OK):
            raise FileError(
                f"--report {name} is not a file that can be written.",
                next_step="Name a file in a folder that exists and that you may write to.",
            )
        if not has_form(name):
            raise UsageError(
                f"--report {name} does not end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, which is what chooses "
                "the form: JSON, JUnit XML or a page.",
                next_step=f"Write for example --report {Path(name).with_suffix(SUFFIXES[0])}.",
            )


def keep(context: Context, report: Report) -> None:
    """Write the report where the arguments say, and into the workspace when it is to be evidence."""
    write_reports(context, report)
    keep_evidence(context, report)


def write_reports(context: Context, report: Report) -> None:
    """Write the report where the arguments say."""
    for name in context.arguments.report:
        write_atomically(Path(name), written(report, name))


def keep_evidence(context: Context, report: Report) -> None:
    """Write the report into the workspace when it is to be evidence of more than that the image was built."""
    if context.arguments.record and report.level != "built":
        write_atomically(context.workspace.evidence(report.identifier), json_text(report))

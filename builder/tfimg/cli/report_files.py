"""Files that --report names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfimg.core.errors import UsageError
from tfimg.core.files import write_atomically
from tfimg.validation.report import REPORT_SUFFIXES, Report, format_report


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

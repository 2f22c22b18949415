"""Files that options name: reports, and whether a file can be written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from tfimg.core.errors import FileError, UsageError
from tfimg.core.files import write_atomically
from tfimg.validation.formats import REPORT_SUFFIXES, format_report
from tfimg.validation.report import Report


def check_report_files(names: Sequence[str], suffixes: Sequence[str] = REPORT_SUFFIXES) -> None:
    """Check before a long build that every --report can be written after it.

    Raises `UsageError` for a name with none of the suffixes, `FileError` for a file that cannot be written.
    """
    for name in names:
        require_writable("--report", name)
        if Path(name).suffix.lower() not in suffixes:
            raise UsageError(
                f"--report {name} does not end in {', '.join(suffixes[:-1])} or {suffixes[-1]}, which chooses the "
                "form of the file.",
                next_step=f"Write for example --report {Path(name).with_suffix(suffixes[0])}.",
            )


def require_writable(option: str, name: str) -> None:
    """Raise `FileError` if the file of an option cannot be written; as `cp`, it does not make parent folders."""
    folder = Path(name).parent
    if not folder.resolve().is_dir():
        raise FileError(
            f"{option} {name}: there is no folder {folder}.",
            next_step=f"Make it with `mkdir -p {shlex.quote(str(folder))}`, or name another file.",
        )
    if Path(name).is_dir() or not os.access(Path(name).resolve().parent, os.W_OK):
        raise FileError(
            f"{option} {name} is not a file that can be written.",
            next_step="Name a file in a folder that you may write to.",
        )


def write_reports(names: Sequence[str], report: Report) -> None:
    """Write a report to every --report."""
    for name in names:
        write_atomically(Path(name), format_report(report, name))

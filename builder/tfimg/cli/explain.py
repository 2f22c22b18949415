"""`tfimg explain`: what is known about the failure in a log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.streams import read_text
from tfimg.core.errors import UnknownFailure, UsageError
from tfimg.core.text import to_plain_text
from tfimg.validation.explain import FAULT_NAMES, HARMLESS
from tfimg.validation.explain import explain as look_up
from tfimg.validation.report import Explanation

if TYPE_CHECKING:
    from tfimg.cli.commands.explain import Explain

MAX_BYTES = 8 << 20
"""Bytes that are read of a log. Longer ones repeat themselves; this much takes two seconds."""

PIPE = "Name a file, or pipe a log in: `docker logs NAME 2>&1 | tfimg explain`."


def explain(command: Explain, context: Context) -> int:
    """`tfimg explain [FILE]`: read a log, say what is known about it."""
    text = _read_log(command.file)
    found = look_up(text, suite=context.project.workspace.validation)
    if context.command.json:
        context.emit({"explanations": [asdict(one) for one in found]})
    else:
        _print(found)
    if all(one.fault == HARMLESS for one in found):
        raise _unexplained(text, found)
    return 0


def _read_log(file: str) -> str:
    if not file:
        raise UsageError("The name of the log is empty.", next_step=PIPE)
    if file == "-" and sys.stdin and sys.stdin.isatty():
        raise UsageError("No log is given: standard input is a terminal.", next_step=PIPE)
    text = read_text(file, MAX_BYTES)
    if text is None:
        raise UsageError(
            f"The log is longer than {MAX_BYTES >> 20} MiB.",
            next_step="Give its end, where the failure is: `tail -c 4M FILE | tfimg explain`.",
        )
    return text


def _print(found: Sequence[Explanation]) -> None:
    for number, one in enumerate(found):
        if number:
            print()
        print_fields(
            {
                "found": one.signature,
                "fault": FAULT_NAMES.get(one.fault, one.fault),
                "cause": one.cause,
                "proof": to_plain_text(one.proof),
                "remedy": one.remedy,
            }
        )


def _unexplained(text: str, found: Sequence[Explanation]) -> UnknownFailure:
    if not text.strip():
        return UnknownFailure("The log is empty.", next_step="Errors go to standard error: put 2>&1 before the pipe.")
    known = "Nothing but what is harmless" if found else "Nothing"
    return UnknownFailure(
        f"{known} is known in this log.",
        next_step="Give the whole of it, from the program's start to its end. Otherwise `tfimg validate IMAGE` looks "
        "for the fault in the image, and `tfimg doctor` on this machine.",
    )

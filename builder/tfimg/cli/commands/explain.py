"""`tfimg explain`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass

from tfimg.cli.context import Context
from tfimg.cli.documentation import locate_page
from tfimg.cli.options import Command, argument
from tfimg.core.errors import UnknownFailure, UsageError

MAX_BYTES = 8 << 20
"""Bytes that are read of a log. Longer ones repeat themselves; this much takes two seconds."""


@dataclass(frozen=True)
class Explain(Command):
    """Say what is known about the failure in a log.

    Examples:
      tfimg explain build.log
      docker logs NAME 2>&1 | tfimg explain
    """

    file: str = argument("log file; -: standard input (default)", "FILE", default="-")

    def run(self, context: Context) -> int:
        """Print the known failures in a log. Raises `UnknownFailure` if there is none."""
        from tfimg.cli.output.fields import print_fields
        from tfimg.cli.output.streams import read_text
        from tfimg.core.text import to_plain_text
        from tfimg.validation.explain import FAULT_NAMES, HARMLESS, explain

        if self.file == "-" and sys.stdin and sys.stdin.isatty():
            step = "Name a file, or pipe a log in: `docker logs NAME 2>&1 | tfimg explain`."
            raise UsageError("No log is given: standard input is a terminal.", next_step=step)
        step = "Give the end of the log, where the failure is: `tail -c 4M FILE | tfimg explain`."
        text = read_text(self.file, MAX_BYTES, next_step=step)
        found = explain(text, suite=context.project.workspace.validation)
        if self.json:
            context.emit({"explanations": [{**asdict(one), "more": link_to(one.signature)} for one in found]})
        else:
            for number, one in enumerate(found):
                print("\n" if number else "", end="")
                fault = FAULT_NAMES.get(one.fault, one.fault)
                fields = {"found": one.signature, "fault": fault, "cause": one.cause}
                fields |= {"proof": to_plain_text(one.proof), "remedy": one.remedy, "more": link_to(one.signature)}
                print_fields(fields)
        if not text.strip():
            step = "Errors go to standard error: put 2>&1 before the pipe."
            raise UnknownFailure("The log is empty.", next_step=step)
        if all(one.fault == HARMLESS for one in found):
            raise UnknownFailure(
                "No known failure matches this log" + (", only harmless messages." if found else "."),
                next_step="Give the complete log, from the program's start to its end. Otherwise `tfimg validate "
                "IMAGE` looks for the fault in the image, and `tfimg doctor` on this machine.",
            )
        return 0


def link_to(signature: str) -> str:
    """Return where the documentation describes a signature."""
    return locate_page("how-to/troubleshoot", signature)

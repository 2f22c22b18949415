"""`tfimg explain`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, argument

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Explain(Command):
    """Say what is known about the failure in a log.

    Examples:
      tfimg explain build.log
      docker logs NAME 2>&1 | tfimg explain
    """

    file: str = argument("the log; -: standard input (default)", "FILE", default="-")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.explain import explain

        return explain(self, context)

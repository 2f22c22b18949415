"""`tfimg render`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, flag, pattern_arguments

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Render(Command):
    """Write default Dockerfiles, the matrix's schema and the README's table.

    Examples:
      tfimg render --check
      tfimg render 2.15.1-cpu-py3.11
    """

    patterns: tuple[str, ...] = pattern_arguments("print the Dockerfiles of these images instead: 2.15, '*-cpu-py3.11'")
    _: KW_ONLY
    check: bool = flag("write nothing; fail if a file is not what would be written")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.recipes import render

        return render(self, context)

"""`tfimg sync`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, flag

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Sync(Command):
    """Add releases that the package index has and the matrix lacks.

    Examples:
      tfimg sync --check
    """

    _: KW_ONLY
    check: bool = flag("write nothing; fail if a release is missing")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.prove import sync

        return sync(self, context)

"""`tfimg lock`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, flag, pattern_arguments

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Lock(Command):
    """Resolve locks as of each release's time and write them.

    Examples:
      tfimg lock 2.15.1 --check
    """

    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    check: bool = flag("write nothing; fail if a lock is not what would be written")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.recipes import lock

        return lock(self, context)

"""`tfimg resolve`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, RepositoryOptions, flag
from tfimg.cli.request_options import RequestOptions

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Resolve(Command, RequestOptions, RepositoryOptions):
    """Say which image a request means, or why none does.

    Examples:
      tfimg resolve --tf 2.15 --cuda 12 --json
    """

    _: KW_ONLY
    explain: bool = flag("say how the choice was made")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.facts import resolve

        return resolve(self, context)

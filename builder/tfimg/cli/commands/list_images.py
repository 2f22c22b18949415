"""`tfimg list`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, pattern_arguments, repository_option

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class ListImages(Command):
    """List the images of the matrix.

    Examples:
      tfimg list '2.1[56]*-cpu-*'
    """

    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    repository: str | None = repository_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.facts import list_images

        return list_images(context)

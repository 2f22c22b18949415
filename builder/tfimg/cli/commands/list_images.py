"""`tfimg list`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, RepositoryOptions, pattern_arguments

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class ListImages(Command, RepositoryOptions):
    """List the images of the matrix.

    Examples:
      tfimg list '2.1[56]*-cpu-*'
    """

    patterns: tuple[str, ...] = pattern_arguments()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.facts import list_images

        return list_images(self, context)

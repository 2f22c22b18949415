"""`tfimg list`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, Patterns, RepositoryOptions


@dataclass(frozen=True)
class ListImages(Command, Patterns, RepositoryOptions):
    """List the images of the matrix.

    Examples:
      tfimg list '2.1[56]*-cpu-*'
    """

    def run(self, context: Context) -> int:
        """Print a row for each image."""
        from tfimg.cli.output.image_tables import print_images
        from tfimg.matrix.resolve.selection import select_specs

        rows = [context.project.describe(spec) for spec in select_specs(context.project.specs, self.patterns)]
        context.print_result(rows, lambda: print_images(rows))
        return 0

"""`tfimg list`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.completions import complete_flavors
from tfimg.cli.context import Context
from tfimg.cli.options import Command, Patterns, RepositoryOptions, option


@dataclass(frozen=True, kw_only=True)
class ListImages(Command, Patterns, RepositoryOptions):
    """List the images of the matrix.

    Examples:
      tfimg list '2.1[56]*-cpu-*'
      tfimg list 2.18 --flavor slim
    """

    flavor: str | None = option(
        "images of a flavour: runtime (default), jupyter, dev, slim", "NAME", completer=complete_flavors
    )

    def run(self, context: Context) -> int:
        from tfimg.cli.output.image_tables import print_images

        rows = [context.project.describe(spec) for spec in context.project.select(self.patterns, self.flavor)]
        context.print_result(rows, lambda: print_images(rows, context.services.today))
        return 0

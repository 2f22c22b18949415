"""`tfimg matrix`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from tfimg.cli.options import Command, RepositoryOptions, flag, option

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class ShowMatrix(Command, RepositoryOptions):
    """Show what goes together in each release, and what is proven.

    Examples:
      tfimg matrix --html --output matrix.html
    """

    _: KW_ONLY
    markdown: bool = flag("print the support table as Markdown")
    html: bool = flag("print a searchable page that needs no network")
    output: str | None = option(
        "write to a file; .html, .md and .json choose the form, as the options do", "FILE", names=("--output", "-o")
    )

    alternatives: ClassVar[Mapping[str, str]] = {"--markdown": "markdown", "--html": "html"}

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.matrix import show

        return show(self, context)

"""`tfimg check`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, argument, identifier_option, option
from tfimg.cli.values import require_text

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Check(Command):
    """Compare the matrix with what wheels say, on the package index or in an image.

    Examples:
      tfimg check 2.15 2.16
      tfimg check --built tfimg/tensorflow:2.15
    """

    releases: tuple[str, ...] = argument("2.15, 2.15.1 (default: all)", "RELEASE", default=())
    _: KW_ONLY
    built: str | None = option("compare with what an image in the engine holds", "IMAGE", check=require_text)
    identifier: str | None = identifier_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.prove import check as check_matrix

        return check_matrix(self, context)

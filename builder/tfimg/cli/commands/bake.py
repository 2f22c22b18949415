"""`tfimg bake`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import BaseOptions, Command, RepositoryOptions, flag, output_option, pattern_arguments

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Bake(Command, BaseOptions, RepositoryOptions):
    """Print a file from which `docker buildx bake` builds images.

    Examples:
      tfimg bake 2.15.1 --output docker-bake.json && docker buildx bake -f docker-bake.json gpu
    """

    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    secrets: bool = flag(
        "name this machine's certificate authorities, index settings and netrc in it; never their contents"
    )
    output: str | None = output_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.bake import bake

        return bake(self, context)

"""`tfimg reproduce`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from tfimg.cli.options import BaseOptions, Command, RequestOptions, find_links_option, renew_base_option

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Reproduce(Command, RequestOptions, BaseOptions):
    """Build an image twice from nothing, and name the files that differ.

    Examples:
      tfimg reproduce --tf 2.15
    """

    _: KW_ONLY
    renew_base: bool = renew_base_option()
    find_links: str | None = find_links_option()

    only: ClassVar[tuple[str, ...]] = ()
    skip: ClassVar[tuple[str, ...]] = ()
    profile: ClassVar[str] = "standard"
    no_cache: ClassVar[bool] = True
    cache_from: ClassVar[tuple[str, ...]] = ()
    cache_to: ClassVar[tuple[str, ...]] = ()
    compression: ClassVar[str] = "fast"

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.images import reproduce_image

        return reproduce_image(context)

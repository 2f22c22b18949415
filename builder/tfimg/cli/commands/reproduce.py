"""`tfimg reproduce`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import BaseOptions, Command, WheelOptions, renew_base_option
from tfimg.cli.request_options import RequestOptions

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Reproduce(Command, RequestOptions, BaseOptions, WheelOptions):
    """Build an image twice from nothing, and name the files that differ.

    Examples:
      tfimg reproduce --tf 2.15
    """

    _: KW_ONLY
    renew_base: bool = renew_base_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.images import reproduce_image

        return reproduce_image(self, context)

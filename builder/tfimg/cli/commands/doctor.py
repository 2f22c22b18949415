"""`tfimg doctor`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.completions import complete_identifiers
from tfimg.cli.options import Command, argument, identifier_option
from tfimg.cli.values import require_text

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Doctor(Command):
    """Say whether this machine can build and run images, and what to do if not.

    Examples:
      tfimg doctor 2.15.1-cuda12.2-py3.11
    """

    image: str | None = argument(
        "identifier, or name of an image in the engine (default: none; the newest GPU image measures a GPU)",
        "IMAGE",
        default=None,
        check=require_text,
        complete=complete_identifiers,
    )
    _: KW_ONLY
    identifier: str | None = identifier_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.hosts import doctor

        return doctor(self, context)

"""`tfimg keygen`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, PasswordOptions, argument

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Keygen(Command, PasswordOptions):
    """Make a pair of keys: the private one signs evidence, the public one verifies it.

    Examples:
      tfimg keygen ~/tfimg-keys
      tfimg keygen keys --password-file password.txt
    """

    folder: str = argument("where tfimg.key and tfimg.pub are to be; neither may be there yet", "DIR")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.keys import keys

        return keys(self, context)

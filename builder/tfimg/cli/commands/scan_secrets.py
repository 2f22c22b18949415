"""`tfimg scan-secrets`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, RegistryOptions, flag, remote_image_argument

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class ScanSecrets(Command, RegistryOptions):
    """Search an image for secrets of this machine, and for keys, tokens and passwords.

    Examples:
      tfimg scan-secrets registry.example/team/tensorflow:candidate
      tfimg scan-secrets --local tfimg/tensorflow:2.15
    """

    image: str = remote_image_argument()
    _: KW_ONLY
    local: bool = flag("an image in the engine, before it is pushed")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.leaks import scan_command

        return scan_command(self, context)

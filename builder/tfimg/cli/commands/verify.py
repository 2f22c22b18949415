"""`tfimg verify` and `tfimg pull`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, RequirementOptions, remote_image_argument, trusted_key_option

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Verify(Command, RequirementOptions):
    """Say what is proven of an image in a registry, or what is not.

    Examples:
      tfimg verify registry.example/team/tensorflow:2.15-gpu --public-key tfimg.pub
      tfimg verify registry.example/team/tensorflow:2.15-gpu --require 'validated,gpu=sm_90,driver>=535,max-age=30d'
    """

    image: str = remote_image_argument()
    _: KW_ONLY
    public_key: tuple[str, ...] = trusted_key_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.proofs import verify

        return verify(self, context)


@dataclass(frozen=True)
class Pull(Command, RequirementOptions):
    """Verify an image, then pull the very bytes that were verified.

    Examples:
      tfimg pull registry.example/team/tensorflow:2.15 --public-key tfimg.pub --require max-age=90d
    """

    image: str = remote_image_argument()
    _: KW_ONLY
    public_key: tuple[str, ...] = trusted_key_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.proofs import pull

        return pull(self, context)

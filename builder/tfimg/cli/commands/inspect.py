"""`tfimg inspect` and `tfimg compare`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, RegistryOptions, flag, remote_image_argument, trusted_key_option

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Inspect(Command, RegistryOptions):
    """Show what an image is, what it holds, and who says what of it.

    Examples:
      tfimg inspect registry.example/team/tensorflow:2.15 --public-key tfimg.pub
      tfimg inspect --local tfimg/tensorflow:2.15
    """

    image: str = remote_image_argument()
    _: KW_ONLY
    local: bool = flag("an image in the engine")
    public_key: tuple[str, ...] = trusted_key_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.looks import inspect

        return inspect(self, context)


@dataclass(frozen=True)
class Compare(Command, RegistryOptions):
    """Compare two images.

    Examples:
      tfimg compare registry.example/team/tensorflow:2.15.0 registry.example/team/tensorflow:2.15.1
      tfimg compare OLD NEW --markdown >> CHANGELOG.md
      tfimg compare --local tfimg/tensorflow:2.15.0 tfimg/tensorflow:2.15.1
    """

    before: str = remote_image_argument()
    after: str = remote_image_argument()
    _: KW_ONLY
    local: bool = flag("images in the engine")
    markdown: bool = flag("as an entry of a changelog")
    public_key: tuple[str, ...] = trusted_key_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.looks import diff

        return diff(self, context)

"""`tfimg renew`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from tfimg.cli.options import Command, SigningOptions, argument, flag, level_option
from tfimg.cli.values import require_text

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Renew(Command, SigningOptions):
    """Validate published images again, and attach the new results.

    Examples:
      tfimg renew registry.example/team/tensorflow:2.15 registry.example/team/tensorflow:2.16 --key tfimg.key
      tfimg renew registry.example/team/tensorflow:2.15 --key new.key --public-key old.pub --re-sign
    """

    images: tuple[str, ...] = argument(
        "REGISTRY/REPOSITORY:TAG or @sha256:…", "IMAGE", required=True, check=require_text
    )
    _: KW_ONLY
    re_sign: bool = flag("sign with --key also what the other trusted keys signed: for a change of keys")
    level: Literal["linked", "validated"] | None = level_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.renew import renew

        return renew(self, context)

"""`tfimg rollback` and `tfimg withdraw`."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, SigningOptions, argument, option, reinstate_option, values
from tfimg.cli.values import require_reason, require_tag, require_text

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Rollback(Command, SigningOptions):
    """Point a tag to the image before the present one, which is withdrawn for this tag.

    Examples:
      tfimg rollback registry.example/team/tensorflow:2.15 --key tfimg.key --reason 'wrong cuDNN'
      tfimg rollback registry.example/team/tensorflow:2.15 --to 0123456789ab --key tfimg.key
    """

    image: str = argument(
        "REGISTRY/NAME:TAG; a TAG alone is one of TFIMG_REPOSITORY", "REPOSITORY:TAG", check=require_text
    )
    _: KW_ONLY
    to: str | None = option(
        "an image of the tag's history, by its digest or the first digits (default: the newest one before "
        "the present that is not withdrawn and has the level that the tag promises)",
        "DIGEST",
    )
    reason: str | None = option("why the present image is withdrawn", "TEXT", check=require_reason)
    reinstate: bool = reinstate_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.retract import rollback

        return rollback(self, context)


@dataclass(frozen=True)
class Withdraw(Command, SigningOptions):
    """Move an image's tags to the images before it, and have everyone refuse it.

    Examples:
      tfimg withdraw registry.example/team/tensorflow@sha256:0123… --reason 'leaks a token' --key tfimg.key
      tfimg withdraw registry.example/team/tensorflow@sha256:0123… --tag 2.15-gpu --reason 'wrong cuDNN' --key tfimg.key
    """

    image: str = argument("REGISTRY/NAME@sha256:…", "REPOSITORY@DIGEST", check=require_text)
    _: KW_ONLY
    reason: str = option("why: `verify` and `pull` show it", "TEXT", default=MISSING, check=require_reason)
    tag: tuple[str, ...] = values(
        "withdraw it for this tag only (default: for every tag and by digest)", "TAG", check=require_tag
    )
    output: str | None = option(
        "append the signed withdrawal to a file, for `tfimg load --withdrawals`", "FILE", names=("--output", "-o")
    )

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.retract import withdraw

        return withdraw(self, context)

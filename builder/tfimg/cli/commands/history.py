"""`tfimg history`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, RegistryOptions, argument, option, trusted_key_option
from tfimg.cli.values import require_text

if TYPE_CHECKING:
    from tfimg.cli.context import Context


MAX_LIMIT = 1000


def parse_limit(text: str) -> int:
    """Parse a number from 1 to 1000."""
    if not text.isdecimal() or not 0 < int(text) <= MAX_LIMIT:
        raise ValueError(f"{text!r} is not a number from 1 to {MAX_LIMIT}")
    return int(text)


@dataclass(frozen=True)
class History(Command, RegistryOptions):
    """List the signed promotions and withdrawals of a tag or a repository.

    Examples:
      tfimg history registry.example/team/tensorflow 2.15-gpu --public-key tfimg.pub
      tfimg history registry.example/team/tensorflow --limit 50
      tfimg history registry.example/team/tensorflow --withdrawals withdrawals.jsonl
    """

    target: str = argument(
        "REGISTRY/NAME[:TAG]; a TAG alone is one of TFIMG_REPOSITORY", "REPOSITORY", check=require_text
    )
    tag: str | None = argument("follow this tag from where it points now", "TAG", default=None)
    _: KW_ONLY
    limit: int = option(
        "moves of the tag, or newest builds of the repository, that are read (default: 20)",
        "N",
        default=20,
        parse=parse_limit,
    )
    public_key: tuple[str, ...] = trusted_key_option()
    withdrawals: str | None = option("write the signed withdrawals too, for `tfimg load --withdrawals`", "FILE")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.history import history

        return history(self, context)

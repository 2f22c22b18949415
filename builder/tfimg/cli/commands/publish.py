"""`tfimg publish`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from tfimg.cli.options import (
    Command,
    RepositoryOptions,
    SigningOptions,
    argument,
    flag,
    level_option,
    option,
    pattern_arguments,
    reinstate_option,
)
from tfimg.cli.values import require_text

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Publish(Command, RepositoryOptions, SigningOptions):
    """Push images that are built here, validate what the registry has, attach evidence, then move tags.

    Examples:
      tfimg publish registry.example/team/tensorflow '2.15*' --dry-run
      tfimg publish registry.example/team/tensorflow '2.15*' --key tfimg.key
    """

    target: str = argument("REGISTRY/NAME, without a tag", "REPOSITORY", check=require_text)
    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    repository: str | None = option(
        "repository of the images in the engine (default: the matrix's)", "NAME", names=("--from",)
    )
    dry_run: bool = flag("say what would be moved, and what would not and why; do nothing")
    revalidate: bool = flag("reuse no report of an earlier run")
    level: Literal["linked", "validated"] | None = level_option()
    reinstate: bool = reinstate_option()

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.publish import publish

        return publish(self, context)

"""`tfimg plan`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from tfimg.cli.options import (
    BuilderOptions,
    Command,
    RepositoryOptions,
    flag,
    option,
    pattern_arguments,
)
from tfimg.cli.request_options import RequestOptions
from tfimg.cli.values import positive_number

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Plan(Command, RequestOptions, BuilderOptions, RepositoryOptions):
    """Show what a build would do, or share many builds out over a CI's machines; do nothing.

    Examples:
      tfimg plan --tf 2.15
      tfimg plan '2.1*' --format github --shards 8
      tfimg plan '2.20*-cuda*' --layers
    """

    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    format: Literal["github", "gitlab", "json"] | None = option(
        "print a CI's jobs: a value of strategy.matrix, a child pipeline, or plain JSON"
    )
    shards: int | None = option(
        "N jobs at most; images that share big layers stay together (default: a job for each image)",
        "N",
        parse=positive_number,
    )
    layers: bool = flag("show which layers the images share, and their bytes")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.planning import plan

        return plan(self, context)

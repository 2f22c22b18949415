"""`tfimg build`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tfimg.cli.options import (
    BaseOptions,
    BuilderOptions,
    Command,
    RepositoryOptions,
    WheelOptions,
    flag,
    level_option,
    option,
    pattern_arguments,
    record_option,
    renew_base_option,
    report_option,
    values,
)
from tfimg.cli.request_options import RequestOptions
from tfimg.cli.trust_options import SigningOptions
from tfimg.cli.values import positive_number

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Build(Command, RequestOptions, SigningOptions, BaseOptions, BuilderOptions, RepositoryOptions, WheelOptions):
    """Build images, validate them from the inside, and tag them.

    Examples:
      tfimg build --tf 2.15 --python 3.11
      tfimg build '2.1[5-8]*-cpu-*' --report summary.xml
    """

    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    all: bool = flag("every image of the matrix")
    jobs: int | None = option(
        "images at once (default: what processors, memory and disk have room for)", "N", parse=positive_number
    )
    revalidate: bool = flag("run the suite again in images that have not changed")
    target: str | None = option(
        "publish the images to REGISTRY/NAME; see `tfimg publish`", "REPOSITORY", names=("--push",)
    )
    cache_from: tuple[str, ...] = values(
        "take finished steps from a registry: a reference, or buildx's type=…,ref=…", "REF"
    )
    cache_to: tuple[str, ...] = values("keep the steps of all stages in a registry, for other machines", "REF")
    compression: Literal["fast", "small", "gzip"] = option(
        "of the layers: fast (zstd, default), small (zstd that takes longer) or gzip, for Docker before 23",
        default="fast",
    )
    no_cache: bool = flag("run every build step again")
    renew_base: bool = renew_base_option()
    report: tuple[str, ...] = report_option()
    record: bool = record_option()
    level: Literal["linked", "validated"] | None = level_option()
    profile: Literal["standard", "full"] = option(
        "how much of the suite to run (default: standard)", default="standard"
    )

    only: ClassVar[tuple[str, ...]] = ()
    skip: ClassVar[tuple[str, ...]] = ()
    dry_run: ClassVar[bool] = False

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.images import build

        return build(self, context)

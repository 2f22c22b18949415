"""Settings of builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfimg.engine.base_images.choose import BaseSource
from tfimg.engine.build_cache import BuildCache
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.layout import Compression
from tfimg.validation.report import ProvableLevel
from tfimg.validation.run import ALL_CHECKS, CheckSelection


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSettings:
    """How images are built and validated.

    Base images: `mirrors` maps registries to their mirrors, `snapshot` is a time of Debian's archive, `renew_base`
    bootstraps a base again that the engine has. `no_cache` runs every step again. `level` is the level to prove, None
    for the highest that this machine can prove; `reuse_reports` accepts earlier green reports on equal images.
    `record` writes what is proven into the workspace as evidence; `evidence_only`: of many images nothing else is
    needed, so those with current evidence are not built, and recorded ones make room on a full disk. `jobs` limits
    builds at once on each engine. `compression` None is that of the image: see `choose_compression`.
    """

    base: BaseSource = "auto"
    mirrors: Mapping[str, str] = field(default_factory=dict)
    snapshot: str | None = None
    renew_base: bool = False
    compression: Compression | None = None
    no_cache: bool = False
    cache: BuildCache = field(default_factory=BuildCache)
    level: ProvableLevel | None = None
    checks: CheckSelection = ALL_CHECKS
    reuse_reports: bool = False
    record: bool = False
    evidence_only: bool = False
    jobs: int | None = None

    def choose_compression(self, spec: ImageSpec) -> Compression:
        """Return the compression asked for, else `small` for a flavour that removes files, `fast` for any other."""
        return self.compression or ("small" if spec.removed else "fast")

"""Settings of builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfimg.engine.bases import BaseSource, snapshot_mirrors
from tfimg.engine.buildx import BuildCache
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.layout import Compression, default_compression
from tfimg.validation.report import ProvableLevel
from tfimg.validation.run import ALL_CHECKS, CheckSelection


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSettings:
    """How images are built and validated.

    Base images: `base_digest` is the one to take from the registry, `mirrors` maps registries to their mirrors,
    `snapshot` is a dated mirror of Debian's archive, and `renew_base` bootstraps a base again that the engine has.
    `no_cache` runs every step again. `level` is the level to prove, None for the highest that this machine can prove;
    `reuse_reports` accepts earlier green reports on equal images. `record` writes what is proven into the workspace as
    evidence; `evidence_only`: of many images nothing else is needed, so those with current evidence are not built.
    `recheck` compares images with their evidence, and tags none. `jobs` is the number of builds at once on each engine,
    None for `Builder.jobs`. `compression` None is that of the image: see `choose_compression`.
    """

    base: BaseSource = "auto"
    base_digest: str | None = None
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
    recheck: bool = False
    jobs: int | None = None

    @property
    def public_snapshot(self) -> str | None:
        """The address of the snapshot without credentials. Raises `UsageError`."""
        return snapshot_mirrors(self.snapshot).public_addresses[0] if self.snapshot else None

    def find_package_mirrors(self, spec: ImageSpec) -> str | None:
        """Return the addresses of the snapshot that an image's Debian packages come from; None for the base's mirrors.

        Raises `UsageError`.
        """
        if not (self.snapshot and spec.system_packages):
            return None
        return " ".join(snapshot_mirrors(self.snapshot).public_addresses)

    def choose_compression(self, spec: ImageSpec) -> Compression:
        """Return the compression asked for, else `small` for a flavour that removes files, `fast` for any other."""
        return self.compression or default_compression(spec.removed)

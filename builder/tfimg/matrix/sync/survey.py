"""Read the TensorFlow wheels of a package index: Pythons, platforms, requirements and build information."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.errors import NetworkError
from tfimg.index.client import Index, IndexedWheel, make_environment, select_requirements
from tfimg.matrix.schema import PROCESSORS, Matrix, Platform

PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-tpu")
"""Distributions that contain TensorFlow for Linux, or that only depend on another one that does."""

PLATFORM: Mapping[str, Platform] = {processor: platform for platform, processor in PROCESSORS.items()}

WORKERS = 8
"""Wheels read at once; each mostly waits for the index."""

OnProgress = Callable[[int, int], None]
"""Called with the number of wheels read so far and of all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFlowWheel:
    """A TensorFlow wheel for one Python on one platform."""

    package: str
    version: Version
    python: str
    platform: Platform
    filename: str
    uploaded: date | None
    requires: tuple[str, ...]
    build: Mapping[str, Any] | None

    @property
    def is_stub(self) -> bool:
        """Whether the wheel only depends on another package, which contains TensorFlow."""
        return self.package == "tensorflow" and self.build is None

    def requirements(self, *, extra: str = "") -> dict[str, SpecifierSet]:
        """Return all requirements on the wheel's own Python and platform, with one extra."""
        environment = make_environment(self.python, PROCESSORS[self.platform], extra=extra)
        return select_requirements(self.requires, environment)

    def and_cuda_requirements(self) -> dict[str, SpecifierSet]:
        """Return what the extra `and-cuda` adds; nothing before 2.14, which lacks the extra."""
        plain = self.requirements()
        extended = self.requirements(extra="and-cuda")
        return {name: specifier for name, specifier in extended.items() if name not in plain}


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexSurvey:
    """The contents of a package index.

    `releases`: every final release of TensorFlow with a Linux wheel, whether its wheels were read or not.
    `wheels`: the wheels that were read. `libraries`: versions with a wheel for x86-64 Linux of everything that
    images contain besides TensorFlow.
    """

    releases: frozenset[Version]
    wheels: tuple[TensorFlowWheel, ...]
    libraries: Mapping[str, frozenset[Version]]

    def wheels_of(self, version: Version) -> list[TensorFlowWheel]:
        """Return the wheels of a release that were read."""
        return [wheel for wheel in self.wheels if wheel.version == version]


def survey_index(
    matrix: Matrix, index: Index, *, is_selected: Callable[[Version], bool], on_progress: OnProgress
) -> IndexSurvey:
    """Read the selected releases from an index.

    Raises `NetworkError`, also when the index has no TensorFlow at all: an empty directory, or a login page.
    """
    with ThreadPoolExecutor(WORKERS) as pool:
        linux = [
            wheel
            for page in pool.map(index.wheels, PACKAGES)
            for wheel in page
            if wheel.processors and not wheel.version.is_prerelease
        ]
        releases = frozenset(wheel.version for wheel in linux if wheel.name == "tensorflow")
        if not releases:
            raise NetworkError(
                "The package index has no release of TensorFlow for Linux.",
                next_step="Check that UV_DEFAULT_INDEX, or index-url of pip, is the address of a simple index.",
            )
        selected = [wheel for wheel in linux if is_selected(wheel.version)]
        names = sorted(_library_names(matrix))
        libraries = {
            name: frozenset(wheel.version for wheel in page if "x86_64" in wheel.processors)
            for name, page in zip(names, pool.map(index.wheels, names), strict=True)
        }
        wheels: list[TensorFlowWheel] = []
        for number, found in enumerate(pool.map(lambda wheel: _read(index, wheel), selected), start=1):
            wheels += found
            on_progress(number, len(selected))
    return IndexSurvey(releases=releases, wheels=tuple(wheels), libraries=libraries)


def is_missing(matrix: Matrix, version: Version) -> bool:
    """Return whether a matrix lacks a release that is newer than its oldest."""
    known = {Version(release.version) for row in matrix.rows for release in row.tensorflow}
    return version not in known and version > min(known)


def _library_names(matrix: Matrix) -> Iterator[str]:
    yield "libtpu"
    for cuda, toolkit in matrix.toolkits.items():
        yield from toolkit.wheels
        yield from (f"nvidia-{name}-cu{cuda.partition('.')[0]}" for name in ("cudnn", "nccl"))


def _read(index: Index, wheel: IndexedWheel) -> list[TensorFlowWheel]:
    metadata = index.read_metadata(wheel, build=wheel.name == "tensorflow")
    return [
        TensorFlowWheel(
            package=wheel.name,
            version=wheel.version,
            python=python,
            platform=PLATFORM[processor],
            filename=wheel.filename,
            uploaded=wheel.uploaded,
            requires=metadata.requires,
            build=metadata.build,
        )
        for processor in wheel.processors
        for python in wheel.pythons
    ]


def list_requirements(wheels: Iterable[TensorFlowWheel], name: str) -> list[SpecifierSet]:
    """Return the versions of a package that the wheels accept, each range once; those with `===` have no order."""
    ranges = dict.fromkeys(wheel.requirements().get(name) for wheel in wheels)
    return [specifiers for specifiers in ranges if specifiers is not None and "===" not in str(specifiers)]


def find_installable_pythons(
    wheels: Iterable[TensorFlowWheel], package: str | None, platform: Platform
) -> tuple[str, ...]:
    """Return the Pythons on which a package of one release can be installed; None: any for CPUs or GPUs.

    A stub counts where the package that it depends on has a wheel too, and the other way round.
    """
    on_platform = [wheel for wheel in wheels if wheel.platform == platform]
    stubs = {wheel.python for wheel in on_platform if wheel.is_stub}
    through_stub = stubs & {wheel.python for wheel in on_platform if wheel.package == "tensorflow-cpu-aws"}
    packages = (package,) if package else ("tensorflow", "tensorflow-cpu")
    direct = {wheel.python for wheel in on_platform if not wheel.is_stub and wheel.package in packages}
    if package == "tensorflow-cpu-aws":
        direct = through_stub
    elif package is None:
        direct |= through_stub
    return tuple(sorted(direct, key=Version))

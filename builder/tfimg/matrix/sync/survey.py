"""What the package index has of TensorFlow: every wheel of the releases in question, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import Any

from packaging.version import Version

from tfimg.core.errors import NetworkError
from tfimg.index.client import Index, IndexedWheel
from tfimg.matrix.schema import PROCESSORS, Matrix, Platform

PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-tpu")
"""Every distribution on the index that carries TensorFlow for Linux, or stands for one that does."""

PLATFORM: Mapping[str, Platform] = {processor: platform for platform, processor in PROCESSORS.items()}

AT_ONCE = 8
"""Wheels read at once: each waits for the index most of its time."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexSurvey:
    """What an index was found to have.

    `releases`: every final release of TensorFlow with a Linux wheel, whether its wheels were read or not.
    `wheels`: the wheels that were read. `libraries`: versions with a wheel for x86-64 Linux of everything that
    images carry beside TensorFlow.
    """

    releases: frozenset[Version]
    wheels: tuple[TensorFlowWheel, ...]
    libraries: Mapping[str, frozenset[Version]]


OnProgress = Callable[[int, int], None]
"""Called with the number of wheels read so far and that of all."""


def survey_index(matrix: Matrix, index: Index, *, wanted: Callable[[Version], bool], tell: OnProgress) -> IndexSurvey:
    """Ask an index about the releases that are `wanted`, which get every final release that it has.

    Raises `NetworkError`, also where there is no TensorFlow at all: that is a wrong address or a page to log in.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        pages = dict(zip(PACKAGES, pool.map(index.wheels, PACKAGES), strict=True))
        linux = [
            wheel for page in pages.values() for wheel in page if wheel.processors and not wheel.version.is_prerelease
        ]
        releases = frozenset(wheel.version for wheel in linux if wheel.name == "tensorflow")
        if not releases:
            raise NetworkError(
                "The package index has no release of TensorFlow for Linux.",
                next_step="Check that UV_DEFAULT_INDEX, or index-url of pip, is the address of a simple index.",
            )
        chosen = [wheel for wheel in linux if wanted(wheel.version)]
        names = sorted(_libraries(matrix))
        libraries = dict(zip(names, pool.map(index.wheels, names), strict=True))
        found: list[TensorFlowWheel] = []
        for number, wheels in enumerate(pool.map(lambda wheel: _read(index, wheel), chosen), start=1):
            found += wheels
            tell(number, len(chosen))
    return IndexSurvey(
        releases=releases,
        wheels=tuple(found),
        libraries={name: frozenset(_installable(page)) for name, page in libraries.items()},
    )


def _libraries(matrix: Matrix) -> Iterator[str]:
    yield "libtpu"
    for cuda, toolkit in matrix.toolkits.items():
        yield from toolkit.wheels
        yield from (f"nvidia-{name}-cu{cuda.partition('.')[0]}" for name in ("cudnn", "nccl"))


def _installable(page: Iterable[IndexedWheel]) -> Iterator[Version]:
    return (wheel.version for wheel in page if "x86_64" in wheel.processors)


def _read(index: Index, wheel: IndexedWheel) -> list[TensorFlowWheel]:
    facts = index.facts(wheel, build=wheel.name == "tensorflow")
    return [
        TensorFlowWheel(
            package=wheel.name,
            version=wheel.version,
            python=python,
            platform=PLATFORM[processor],
            filename=wheel.filename,
            uploaded=wheel.uploaded,
            requires=facts.requires,
            build=facts.build,
        )
        for processor in wheel.processors
        for python in wheel.pythons
    ]

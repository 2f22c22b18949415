"""The matrix against what the package index has: every fact of every row that wheels can prove or disprove.

A comparison is a plain function in one table. What wheels do not say (cuDNN floors, drivers, cut-off days, reasons)
is not compared; the matrix's header names the sources of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.matrix.schema import PLATFORMS, PROCESSORS, Device, Gpu, Matrix, Platform, Release, Row, minor_version
from tfimg.matrix.spec import list_libraries
from tfimg.matrix.sync.survey import IndexSurvey, TensorFlowWheel

Verdict = Literal["agrees", "disagrees", "not stated"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FactCheck:
    """One fact of the matrix beside what was found. `path` is where it stands, `field` what it is about.

    `told` says how the two differ, or why the fact could not be compared; it is empty where they agree.
    """

    path: str
    field: str
    verdict: Verdict
    told: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowContext:
    """A row, and what the index has of its releases."""

    matrix: Matrix
    number: int
    row: Row
    wheels: tuple[TensorFlowWheel, ...]
    survey: IndexSurvey

    @property
    def path(self) -> str:
        """Where the row stands."""
        return f"rows[{self.number}]"

    def of(self, release: Release) -> tuple[TensorFlowWheel, ...]:
        """The wheels of one release."""
        return tuple(wheel for wheel in self.wheels if wheel.version == Version(release.version))

    def used(self) -> Iterator[tuple[Device, TensorFlowWheel]]:
        """The wheels that the row's images are made of, each with its device."""
        for wheel in self.wheels:
            offered = self.row.wheels.get(wheel.platform)
            for device, package in (offered.packages if offered else {}).items():
                if wheel.package == package:
                    yield device, wheel


RowCheck = Callable[[RowContext], Iterator[FactCheck]]


def check_rows(matrix: Matrix, survey: IndexSurvey) -> Iterator[tuple[int, FactCheck]]:
    """Every comparison of every row that the survey has wheels of, each with the number of its row."""
    for number, row in enumerate(matrix.rows):
        versions = {Version(release.version) for release in row.tensorflow}
        wheels = tuple(wheel for wheel in survey.wheels if wheel.version in versions)
        context = RowContext(matrix=matrix, number=number, row=row, wheels=wheels, survey=survey)
        if wheels or versions.isdisjoint(survey.releases):
            yield from ((number, fact) for check in ROW_CHECKS for fact in check(context))


def find_missing_releases(matrix: Matrix, survey: IndexSurvey) -> tuple[Version, ...]:
    """Releases that the index has and the matrix lacks, from the matrix's oldest on."""
    known = {Version(release.version) for row in matrix.rows for release in row.tensorflow}
    return tuple(sorted(version for version in survey.releases - known if version > min(known)))


def compare_values(path: str, field: str, *, matrix: object, found: object, where: str) -> FactCheck:
    """The verdict on what the matrix has and what was found `where`: equal, or not."""
    if matrix == found:
        return FactCheck(path=path, field=field, verdict="agrees")
    told = f"the matrix has {_words(matrix)}, {where} {_words(found)}"
    return FactCheck(path=path, field=field, verdict="disagrees", told=told)


def _finding(path: str, field: str, *, matrix: object, index: object) -> FactCheck:
    return compare_values(path, field, matrix=matrix, found=index, where="the index")


def _words(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def releases_exist(context: RowContext) -> Iterator[FactCheck]:
    """Every release of the row is on the index."""
    for j, release in enumerate(context.row.tensorflow):
        found = release.version if Version(release.version) in context.survey.releases else None
        path = f"{context.path}.tensorflow[{j}].version"
        yield _finding(path, "release", matrix=release.version, index=found)


def dates(context: RowContext) -> Iterator[FactCheck]:
    """A release appeared with its first Linux wheel."""
    for j, release in enumerate(context.row.tensorflow):
        path = f"{context.path}.tensorflow[{j}].released"
        days = [wheel.uploaded for wheel in context.of(release) if wheel.uploaded]
        if days:
            yield _finding(path, "released", matrix=release.released, index=min(days))
        else:
            told = f"the index tells no day for {release.version}"
            yield FactCheck(path=path, field="released", verdict="not stated", told=told)


def pythons(context: RowContext) -> Iterator[FactCheck]:
    """Each package of each platform has wheels for the row's Pythons, and a missing platform has none."""
    for j, release in enumerate(context.row.tensorflow):
        for platform in PLATFORMS:
            offered = context.row.wheels.get(platform)
            if offered is None or platform in release.missing:
                found = find_installable_pythons(context.of(release), None, platform)
                path = f"{context.path}.tensorflow[{j}].missing.{platform}"
                yield _finding(path, "pythons", matrix=(), index=found)
                continue
            for device, package in offered.packages.items():
                if device == "tpu" and release.tpu is None:
                    continue
                path = f"{context.path}.wheels.{platform}.pythons ({package} {release.version})"
                found = find_installable_pythons(context.of(release), package, platform)
                yield _finding(path, "pythons", matrix=offered.pythons, index=found)


def find_installable_pythons(
    wheels: Iterable[TensorFlowWheel], package: str | None, platform: Platform
) -> tuple[str, ...]:
    """Pythons on which a package of one release can be installed; None: any that is for a CPU or GPU.

    Wheels that only stand for another package count where that one has a wheel too, and the other way round.
    """
    here = [wheel for wheel in wheels if wheel.platform == platform]
    behind = {wheel.python for wheel in here if wheel.package == "tensorflow-cpu-aws"}
    stubs = {wheel.python for wheel in here if _is_stub(wheel)}
    real = {
        wheel.python
        for wheel in here
        if not _is_stub(wheel) and wheel.package in ((package,) if package else ("tensorflow", "tensorflow-cpu"))
    }
    through = behind & stubs
    found = through if package == "tensorflow-cpu-aws" else real if package else real | through
    return tuple(sorted(found, key=lambda python: Version(python)))


def _is_stub(wheel: TensorFlowWheel) -> bool:
    return wheel.package == "tensorflow" and wheel.build is None


def bounds(context: RowContext) -> Iterator[FactCheck]:
    """The row's NumPy and Keras ranges are those of the wheels: the loosest where Pythons differ."""
    for field, text in {"numpy": context.row.numpy, "keras": context.row.keras}.items():
        found = {specifier for _, wheel in context.used() if (specifier := find_requirement(wheel, field)) is not None}
        widest = [one for one in found if all(other.is_subset(one) for other in found)]
        index = str(widest[0]) if widest else "; ".join(sorted(map(str, found))) or None
        agrees = bool(widest) and is_same_range(widest[0], SpecifierSet(text))
        yield _finding(f"{context.path}.{field}", field, matrix=text, index=text if agrees else index)


def is_same_range(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Whether two ranges hold the same versions."""
    return one.is_subset(other) and other.is_subset(one)


def find_requirement(wheel: TensorFlowWheel, name: str, *, extra: str = "") -> SpecifierSet | None:
    """What a wheel requires of a package on its own Python and platform."""
    return parse_requirements(wheel, extra=extra).get(name)


def parse_requirements(wheel: TensorFlowWheel, *, extra: str = "") -> dict[str, SpecifierSet]:
    """Everything that a wheel requires on its own Python and platform, with one of its extras."""
    environment = {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": wheel.python,
        "python_full_version": f"{wheel.python}.0",
        "platform_machine": PROCESSORS[wheel.platform],
        "platform_system": "Linux",
        "sys_platform": "linux",
        "extra": extra,
    }
    found: dict[str, SpecifierSet] = {}
    for one in map(Requirement, wheel.requires):
        if one.marker is None or one.marker.evaluate(environment):
            name = canonicalize_name(one.name)
            found[name] = found.get(name, SpecifierSet()) & one.specifier
    return found


def build_information(context: RowContext) -> Iterator[FactCheck]:
    """CUDA minor, cuDNN major and architectures are those that the wheels were built with."""
    if context.row.gpu is None:
        return
    gpu, path = context.row.gpu, f"{context.path}.gpu"
    builds = [wheel.build or {} for device, wheel in context.used() if device == "gpu"]
    cudas = [str(build["cuda_version"]) for build in builds if "cuda_version" in build]
    cudnns = [str(build["cudnn_version"]) for build in builds if "cudnn_version" in build]
    lists = [build["cuda_compute_capabilities"] for build in builds if "cuda_compute_capabilities" in build]
    major = str(Version(gpu.libraries.cudnn).major)  # that of the range, as the rules see to
    yield _built(f"{path}.cuda", "cuda", gpu.cuda, set(map(minor_version, cudas)))
    yield _built(f"{path}.cudnn", "cudnn", major, set(cudnns))
    yield _built(f"{path}.architectures", "architectures", ", ".join(gpu.architectures), set(map(", ".join, lists)))


def _built(path: str, field: str, matrix: str, found: set[str]) -> FactCheck:
    if not found:
        told = "the wheels hold no such build information"
        return FactCheck(path=path, field=field, verdict="not stated", told=told)
    return _finding(path, field, matrix=matrix, index=matrix if found == {matrix} else sorted(found))


def nvidia_wheels(context: RowContext) -> Iterator[FactCheck]:
    """The pins are on the index, and meet what `[and-cuda]` asks for."""
    if context.row.gpu is None:
        return
    pins, left_out = dict(list_libraries(context.matrix, context.row.gpu)), set(_left_out(context.matrix))
    for name, version in pins.items():
        there = Version(version) in context.survey.libraries.get(name, frozenset())
        yield _finding(
            f"{_pin_path(context, context.row.gpu, name)}",
            "libraries",
            matrix=version,
            index=version if there else None,
        )
    demands = {
        (name, str(specifier))
        for device, wheel in context.used()
        if device == "gpu"
        for name, specifier in list_and_cuda_requirements(wheel).items()
        if name not in left_out
    }
    for name, demand in sorted(demands):
        pin = pins.get(name)
        meets = pin is not None and SpecifierSet(demand).contains(pin)
        has, asked = f"{name} {pin}" if pin else None, f"{name} {demand}".strip()
        yield _finding(
            _pin_path(context, context.row.gpu, name), "libraries", matrix=has, index=has if meets else asked
        )


def _left_out(matrix: Matrix) -> Iterator[str]:
    for left_out in matrix.left_out:
        yield from left_out.packages


def _pin_path(context: RowContext, gpu: Gpu, name: str) -> str:
    for part in ("cudnn", "nccl"):
        if name.startswith(f"nvidia-{part}-"):
            return f"{context.path}.gpu.libraries.{part}"
    return f"toolkits.{gpu.libraries.toolkit}.wheels.{name}"


def list_and_cuda_requirements(wheel: TensorFlowWheel) -> dict[str, SpecifierSet]:
    """What the extra `and-cuda` adds to a wheel's requirements; nothing before 2.14, which has no such extra."""
    plain = parse_requirements(wheel)
    return {
        name: specifier for name, specifier in parse_requirements(wheel, extra="and-cuda").items() if name not in plain
    }


def tpu_pairs(context: RowContext) -> Iterator[FactCheck]:
    """libtpu is what tensorflow-tpu asks for, and its being had from the index is as the matrix says."""
    for j, release in enumerate(context.row.tensorflow):
        path = f"{context.path}.tensorflow[{j}].tpu"
        wheels = [wheel for wheel in context.of(release) if wheel.package == "tensorflow-tpu"]
        if release.tpu is None or not wheels:
            has = f"tensorflow-tpu {release.version}"
            yield _finding(path, "tpu", matrix=has if release.tpu else None, index=has if wheels else None)
            continue
        asked = [one for wheel in wheels if (one := find_requirement(wheel, "libtpu")) is not None]
        version = release.tpu.libtpu
        fits = bool(asked) and all(one.contains(version, prereleases=True) for one in asked)
        yield _finding(f"{path}.libtpu", "tpu", matrix=version, index=version if fits else sorted({*map(str, asked)}))
        there = Version(version) in context.survey.libraries.get("libtpu", frozenset())
        words = {True: "on the index", False: "not on the index"}
        yield _finding(f"{path}.unavailable", "tpu", matrix=words[release.tpu.unavailable is None], index=words[there])


ROW_CHECKS: tuple[RowCheck, ...] = (
    releases_exist,
    dates,
    pythons,
    bounds,
    build_information,
    nvidia_wheels,
    tpu_pairs,
)

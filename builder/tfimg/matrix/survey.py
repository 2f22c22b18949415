"""Compare the matrix with what package indexes and registries publish.

Each check is a plain function in one table. Facts that wheels do not state (cuDNN floors, drivers, cut-off days,
reasons) are not compared; the matrix's header names their sources.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import MatrixMismatch, NetworkError, UnknownTensorFlow
from tfimg.index.client import Index, IndexedWheel, make_environment, select_requirements
from tfimg.matrix.conditions import make_version_matcher
from tfimg.matrix.devices import DEVICES, GPU, PACKAGES, Device
from tfimg.matrix.schema import PLATFORM_OF, PLATFORMS, PROCESSORS, Matrix, Platform, Release, Row, minor_version
from tfimg.matrix.spec import list_libraries

WORKERS = 8  # wheels read at once; each mostly waits for the index

OnProgress = Callable[[int, int], None]  # called with the number of wheels read so far and of all


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
    linux = [
        wheel
        for page in map_in_threads(index.wheels, PACKAGES, WORKERS)
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
    majors = {cuda.partition(".")[0] for cuda in matrix.toolkits}
    pinned = {f"nvidia-{name}-cu{major}" for major in majors for name in ("cudnn", "nccl")}
    pinned |= {facts.pairs_with for facts in DEVICES.values() if facts.pairs_with}
    names = sorted(pinned.union(*(toolkit.wheels for toolkit in matrix.toolkits.values())))
    libraries = {
        name: frozenset(wheel.version for wheel in page if "x86_64" in wheel.processors)
        for name, page in zip(names, map_in_threads(index.wheels, names, WORKERS), strict=True)
    }
    wheels: list[TensorFlowWheel] = []
    for number, found in enumerate(map_in_threads(partial(_read, index), selected, WORKERS), start=1):
        wheels += found
        on_progress(number, len(selected))
    return IndexSurvey(releases=releases, wheels=tuple(wheels), libraries=libraries)


def is_missing(matrix: Matrix, version: Version) -> bool:
    """Return whether a matrix lacks a release that is newer than its oldest."""
    known = {Version(release.version) for row in matrix.rows for release in row.tensorflow}
    return version not in known and version > min(known)


def _read(index: Index, wheel: IndexedWheel) -> list[TensorFlowWheel]:
    metadata = index.read_metadata(wheel, build=wheel.name == "tensorflow")
    return [
        TensorFlowWheel(
            package=wheel.name,
            version=wheel.version,
            python=python,
            platform=PLATFORM_OF[processor],
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


Verdict = Literal["agrees", "disagrees", "not stated"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FactCheck:
    """The comparison of one fact of the matrix: `path` is where it stands, `field` its subject.

    `message` states the difference, or why the fact cannot be compared; it is empty if they agree.
    """

    path: str
    field: str
    verdict: Verdict
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFindings:
    """The facts of a row of the matrix that were compared; `tensorflow` are its releases."""

    row: int
    tensorflow: tuple[str, ...]
    findings: tuple[FactCheck, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixCheck:
    """The comparison of a matrix with an index; `missing` are releases that the matrix lacks."""

    wheels: int
    rows: tuple[RowFindings, ...]
    missing: tuple[Version, ...]

    def raise_for_mismatch(self) -> None:
        """Raise `MatrixMismatch` if a fact disagrees or a release is missing."""
        text, steps = "", []
        if wrong := [fact for row in self.rows for fact in row.findings if fact.verdict == "disagrees"]:
            count = f"{len(wrong)} fact{'' if len(wrong) == 1 else 's'}"
            lines = "".join(f"  {fact.path}: {fact.message}\n" for fact in wrong)
            text += f"The matrix and the package index disagree on {count}:\n{lines}"
            steps.append("Correct matrix.yaml at each path.")
        if self.missing:
            lines = "".join(f"  rows: TensorFlow {version}\n" for version in self.missing)
            text += f"The matrix lacks what the package index has:\n{lines}"
            steps.append("`tfimg matrix sync` adds releases.")
        if text:
            raise MatrixMismatch(text, next_step=" ".join(steps))


@dataclass(frozen=True, kw_only=True, slots=True)
class RowContext:
    """A row with its path in the matrix, and the wheels of its releases."""

    matrix: Matrix
    path: str
    row: Row
    survey: IndexSurvey

    def releases(self) -> Iterator[tuple[str, Release, list[TensorFlowWheel]]]:
        for number, release in enumerate(self.row.tensorflow):
            yield f"{self.path}.tensorflow[{number}]", release, self.survey.wheels_of(Version(release.version))

    def image_wheels(self) -> Iterator[tuple[Device, TensorFlowWheel]]:
        """Yield the wheels of the row's images, each with its device."""
        for wheel in (wheel for _, _, wheels in self.releases() for wheel in wheels):
            offered = self.row.wheels.get(wheel.platform)
            for device, package in (offered.packages if offered else {}).items():
                if wheel.package == package:
                    yield device, wheel

    def check(self) -> tuple[FactCheck, ...]:
        return tuple(fact for check in ROW_CHECKS for fact in check(self))


def check_matrix(matrix: Matrix, index: Index, names: Sequence[str], on_progress: OnProgress) -> MatrixCheck:
    """Compare the rows of some releases with an index; without names, all.

    A row's releases share its facts, so that all of them are read. Raises `UsageError` for a name that is not a
    version, `UnknownTensorFlow` for a release that neither has, and the errors of the index.
    """
    matchers = {name: make_version_matcher(name, option="RELEASE") for name in names}

    def is_selected(version: Version) -> bool:
        return not matchers or any(matches(str(version)) for matches in matchers.values())

    releases = [{Version(release.version) for release in row.tensorflow} for row in matrix.rows]
    selected = {version for versions in releases if any(map(is_selected, versions)) for version in versions}
    survey = survey_index(matrix, index, is_selected=selected.__contains__, on_progress=on_progress)
    missing = tuple(one for one in sorted(survey.releases) if is_missing(matrix, one) and is_selected(one))
    known = {*missing, *(version for versions in releases for version in versions)}
    for name, matches in matchers.items():
        if not any(matches(str(version)) for version in known):
            raise UnknownTensorFlow(
                f"Neither the matrix nor the package index has a TensorFlow release {name}.",
                next_step="`tfimg matrix` shows those of the matrix.",
            )
    rows = tuple(check_rows(matrix, survey, selected))
    return MatrixCheck(wheels=len(survey.wheels), rows=rows, missing=missing)


def check_rows(matrix: Matrix, survey: IndexSurvey, selected: Collection[Version]) -> Iterator[RowFindings]:
    """Check the rows of the selected releases."""
    for number, row in enumerate(matrix.rows):
        names = tuple(release.version for release in row.tensorflow)
        if not set(selected).isdisjoint(map(Version, names)):
            context = RowContext(matrix=matrix, path=f"rows[{number}]", row=row, survey=survey)
            yield RowFindings(row=number, tensorflow=names, findings=context.check())


def _compare(path: str, field: str, *, matrix: object, found: object) -> FactCheck:
    """Compare the value in the matrix with the value in the index."""
    if matrix == found:
        return FactCheck(path=path, field=field, verdict="agrees")
    message = f"the matrix has {_format(matrix)}, the index {_format(found)}"
    return FactCheck(path=path, field=field, verdict="disagrees", message=message)


def _format(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def check_releases(context: RowContext) -> Iterator[FactCheck]:
    """Every release of the row is on the index, and appeared there with its first Linux wheel."""
    for path, release, wheels in context.releases():
        found = release.version if Version(release.version) in context.survey.releases else None
        yield _compare(f"{path}.version", "release", matrix=release.version, found=found)
        if days := [wheel.uploaded for wheel in wheels if wheel.uploaded]:
            yield _compare(f"{path}.released", "released", matrix=release.released, found=min(days))
        else:
            message = f"the index does not state the day of {release.version}"
            yield FactCheck(path=f"{path}.released", field="released", verdict="not stated", message=message)


def check_pythons(context: RowContext) -> Iterator[FactCheck]:
    """Each package of each platform has wheels for the row's Pythons, and a missing platform has none."""
    for path, release, wheels in context.releases():
        for platform in PLATFORMS:
            offered = context.row.wheels.get(platform)
            if offered is None or platform in release.missing:
                found = find_installable_pythons(wheels, None, platform)
                yield _compare(f"{path}.missing.{platform}", "pythons", matrix=(), found=found)
                continue
            for device, package in offered.packages.items():
                if DEVICES[device].pairs_with and release.tpu is None:
                    continue
                found = find_installable_pythons(wheels, package, platform)
                where = f"{context.path}.wheels.{platform}.pythons ({package} {release.version})"
                yield _compare(where, "pythons", matrix=offered.pythons, found=found)


def check_ranges(context: RowContext) -> Iterator[FactCheck]:
    """The row's NumPy and Keras ranges are those of the wheels: the widest where Pythons differ."""
    for field, text in {"numpy": context.row.numpy, "keras": context.row.keras}.items():
        ranges = list_requirements((wheel for _, wheel in context.image_wheels()), field)
        widest = find_widest(ranges)
        index = str(widest) if widest is not None else "; ".join(sorted(map(str, ranges))) or None
        stated = SpecifierSet(text)
        agrees = widest is not None and widest.is_subset(stated) and stated.is_subset(widest)
        yield _compare(f"{context.path}.{field}", field, matrix=text, found=text if agrees else index)


def find_widest(ranges: Collection[SpecifierSet]) -> SpecifierSet | None:
    """Return the range that contains all others; None if there is none."""
    return next((widest for widest in ranges if all(other.is_subset(widest) for other in ranges)), None)


def check_build_information(context: RowContext) -> Iterator[FactCheck]:
    """CUDA minor, cuDNN major and architectures are those that the wheels were built with."""
    gpu = context.row.gpu
    if gpu is None:
        return
    builds = [wheel.build or {} for device, wheel in context.image_wheels() if device == GPU]
    major = str(Version(gpu.libraries.cudnn).major)  # that of the range, by the rules of the matrix
    for field, key, matrix in (
        ("cuda", "cuda_version", gpu.cuda),
        ("cudnn", "cudnn_version", major),
        ("architectures", "cuda_compute_capabilities", _format(gpu.architectures)),
    ):
        path = f"{context.path}.gpu.{field}"
        found = {_format(build[key]) for build in builds if key in build}
        found = {minor_version(text) for text in found} if field == "cuda" else found
        if found:
            yield _compare(path, field, matrix=matrix, found=matrix if found == {matrix} else sorted(found))
        else:
            message = "the wheels hold no such build information"
            yield FactCheck(path=path, field=field, verdict="not stated", message=message)


def check_nvidia_wheels(context: RowContext) -> Iterator[FactCheck]:
    """The pins are on the index, and meet the requirements of `[and-cuda]`."""
    gpu = context.row.gpu
    if gpu is None:
        return
    left_out = {package for left_out in context.matrix.left_out for package in left_out.packages}
    requirements = {
        (name, str(specifier))
        for device, wheel in context.image_wheels()
        if device == GPU
        for name, specifier in wheel.and_cuda_requirements().items()
        if name not in left_out
    }

    for number, (_, facts) in enumerate(gpu.toolkits):
        pins, toolkit = dict(list_libraries(context.matrix, facts)), facts.libraries.toolkit
        where = f"{context.path}.gpu.{f'other_toolkits[{number - 1}].' if number else ''}libraries"

        def path(name: str, toolkit: str = toolkit, where: str = where) -> str:
            part = next((part for part in ("cudnn", "nccl") if name.startswith(f"nvidia-{part}-")), None)
            return f"{where}.{part}" if part else f"toolkits.{toolkit}.wheels.{name}"

        for name, version in pins.items():
            is_available = Version(version) in context.survey.libraries.get(name, frozenset())
            yield _compare(path(name), "libraries", matrix=version, found=version if is_available else None)
        for name, specifier in sorted(requirements):
            pin = pins.get(name)
            matrix, index = f"{name} {pin}" if pin else None, f"{name} {specifier}".strip()
            is_met = pin is not None and SpecifierSet(specifier).contains(pin)
            yield _compare(path(name), "libraries", matrix=matrix, found=matrix if is_met else index)


def check_tpu_pairs(context: RowContext) -> Iterator[FactCheck]:
    """libtpu is the one that tensorflow-tpu requires, and is on the index if the matrix says so."""
    for release_path, release, wheels in context.releases():
        path, wheels = f"{release_path}.tpu", [wheel for wheel in wheels if wheel.package == "tensorflow-tpu"]
        if release.tpu is None or not wheels:
            package = f"tensorflow-tpu {release.version}"
            yield _compare(path, "tpu", matrix=package if release.tpu else None, found=package if wheels else None)
            continue
        version = release.tpu.libtpu
        ranges = list_requirements(wheels, "libtpu")
        is_met = bool(ranges) and all(specifier.contains(version, prereleases=True) for specifier in ranges)
        index = version if is_met else sorted(map(str, ranges))
        yield _compare(f"{path}.libtpu", "tpu", matrix=version, found=index)
        is_available = Version(version) in context.survey.libraries.get("libtpu", frozenset())
        words = {True: "on the index", False: "not on the index"}
        stated = words[release.tpu.unavailable is None]
        yield _compare(f"{path}.unavailable", "tpu", matrix=stated, found=words[is_available])


ROW_CHECKS: tuple[Callable[[RowContext], Iterator[FactCheck]], ...] = (
    check_releases,
    check_pythons,
    check_ranges,
    check_build_information,
    check_nvidia_wheels,
    check_tpu_pairs,
)

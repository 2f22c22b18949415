"""ImageSpec → lock: every package with version and hash, as the package index was at the release's time.

An old release resolved today gets dependencies that it never met; a lock is resolved as of the release's
cut-off day instead. uv does the resolution. A lock is a folder with one requirement file per layer of the image;
each package has exactly one hash: that of the wheel which the image's Python installs.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from packaging.pylock import Package, PackageWheel, Pylock
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from tfimg.errors import NETWORK_SIGNS, LockError, NetworkError, UnsupportedDevice
from tfimg.matrix.schema import Matrix, Newer
from tfimg.matrix.spec import ImageSpec
from tfimg.process import CommandFailed, run
from tfimg.recipe.lockfile import HEADER, Layers, read_packages

GLIBC_MINOR = 31
"""glibc 2.31 of Debian 11, the oldest base: wheels that need a newer one are not taken."""

LAYERS: tuple[tuple[str, Callable[[ImageSpec, str], bool]], ...] = (
    ("tensorflow", lambda spec, name: name == spec.package),
    ("packages", lambda _spec, _name: True),
)
"""Layers of an image; a package belongs to the first that takes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is asked of the resolver. `cutoff` and the days in `newer` are the first instants not seen."""

    requirements: tuple[str, ...]
    python: str
    cutoff: str
    newer: tuple[tuple[str, str], ...] = ()


def question(spec: ImageSpec, newer: Newer) -> Question:
    """The root requirements of an image and the days as of which they are resolved.

    Every image has TensorBoard (2.21 no longer depends on it) and pip. Raises `UnsupportedDevice`.
    """
    require_layout(spec)
    bounds = [constraint.requirement for constraint in spec.constraints]
    return Question(
        requirements=(f"{spec.package}=={spec.tensorflow}", "tensorboard", "pip", *bounds),
        python=spec.python,
        cutoff=_end_of(spec.cutoff),
        newer=tuple((name, _end_of(newer.as_of)) for name in sorted(newer.packages)),
    )


def require_layout(spec: ImageSpec) -> None:
    """Raises `UnsupportedDevice` for a device whose layers this version does not lay out."""
    if spec.device != "cpu":
        raise UnsupportedDevice(
            f"{spec.identifier} is a {spec.device.upper()} image, and this version of tfimg locks and builds "
            "CPU images only.",
            next_step="`tfimg resolve` has its facts; for an image, ask for --device cpu.",
        )


def installer_question(matrix: Matrix) -> Question:
    """The installer that builds use; its wheel does not depend on the Python."""
    oldest = min(matrix.bases, key=lambda python: tuple(map(int, python.split("."))))
    return Question(
        requirements=(f"uv=={matrix.installer}",), python=oldest, cutoff=_end_of(matrix.newer.as_of)
    )


def _end_of(day: date) -> str:
    return f"{day + timedelta(days=1)}T00:00:00Z"


def lock(spec: ImageSpec, newer: Newer, *, uv: str, env: Mapping[str, str]) -> Layers:
    """Resolve an image's lock with the program `uv`, which finds the package index through `env`.

    Raises `LockError` when there is no solution, `NetworkError` when the index cannot be reached.
    """
    packages = resolve_packages(question(spec, newer), uv=uv, env=env)
    layers: dict[str, list[str]] = {name: [] for name, _ in LAYERS}
    for package in packages:
        layer = next(name for name, takes in LAYERS if takes(spec, package.name))
        layers[layer].append(_line(package, spec.python))
    return {name: HEADER + "".join(lines) for name, lines in layers.items()}


def lock_installer(matrix: Matrix, *, uv: str, env: Mapping[str, str]) -> str:
    """Resolve the installer's lock; raises like `lock`."""
    asked = installer_question(matrix)
    return HEADER + "".join(
        _line(package, asked.python) for package in resolve_packages(asked, uv=uv, env=env)
    )


def resolve_packages(asked: Question, *, uv: str, env: Mapping[str, str]) -> Sequence[Package]:
    """Let uv answer a question; raises like `lock`."""
    with tempfile.TemporaryDirectory(prefix="tfimg-lock-") as folder:
        source, answer = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        source.write_text("\n".join(asked.requirements) + "\n")
        try:
            run(_uv_argv(asked, uv, source, answer), env=env)
        except CommandFailed as failed:
            raise _translated(asked, failed.completed.stderr) from None
        return Pylock.from_dict(tomllib.loads(answer.read_text())).packages


def _uv_argv(asked: Question, uv: str, source: Path, answer: Path) -> list[str]:
    newer = [f"--exclude-newer-package={name}={day}" for name, day in asked.newer]
    return [
        uv, "pip", "compile", "--quiet", "--no-config", "--format=pylock.toml", f"--output-file={answer}",
        f"--python-version={asked.python}", f"--python-platform=x86_64-manylinux_2_{GLIBC_MINOR}",
        "--only-binary=:all:",  # nothing is compiled while an image is built
        f"--exclude-newer={asked.cutoff}", *newer, str(source),
    ]  # fmt: skip


def _translated(asked: Question, stderr: str) -> Exception:
    root = asked.requirements[0]
    # uv does nothing here that could time out but ask the index.
    if any(sign in stderr for sign in (*NETWORK_SIGNS, "timed out")):
        return NetworkError(
            f"The package index did not answer while {root} was resolved: {_last_line(stderr)}",
            next_step="Check the proxy, the CA bundle (SSL_CERT_FILE) and the index settings of pip or uv.",
        )
    if "No solution found" not in stderr:
        return LockError(
            f"uv could not resolve {root}: {_last_line(stderr)}", next_step="Correct that and try again."
        )
    return LockError(
        f"{root} has no solution on Python {asked.python} as of {asked.cutoff[:10]}: {stderr.strip()}",
        next_step="Correct the row's constraints or its cut-off in matrix.yaml.",
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given."


def _line(package: Package, python: str) -> str:
    wheel = best_wheel(package.wheels or (), python)
    if wheel is None or package.version is None:
        raise LockError(
            f"{package.name} {package.version} has no wheel for Python {python} on x86-64 Linux.",
            next_step="Constrain it in matrix.yaml to a version that has one.",
        )
    day = f"  # {wheel.upload_time:%Y-%m-%d}" if wheel.upload_time else ""
    return f"{package.name}=={package.version} --hash=sha256:{wheel.hashes['sha256']}{day}\n"


def best_wheel(wheels: Sequence[PackageWheel], python: str) -> PackageWheel | None:
    """The wheel that an installer prefers on this Python and x86-64 Linux with glibc 2.31."""
    ranks = {tag: rank for rank, tag in enumerate(_tags(python))}

    def rank(wheel: PackageWheel) -> int:
        tags = parse_wheel_filename(wheel.filename)[3]
        return min((ranks[tag] for tag in tags if tag in ranks), default=len(ranks))

    return min((wheel for wheel in wheels if rank(wheel) < len(ranks)), key=rank, default=None)


def _tags(python: str) -> Iterator[Tag]:
    major, minor = map(int, python.split("."))
    legacy = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}
    platforms = []
    for glibc in range(GLIBC_MINOR, 4, -1):
        platforms += [f"manylinux_2_{glibc}_x86_64"] + ([legacy[glibc]] if glibc in legacy else [])
    platforms.append("linux_x86_64")
    yield from cpython_tags((major, minor), platforms=platforms)
    yield from compatible_tags((major, minor), f"cp{major}{minor}", platforms)


def problems(spec: ImageSpec, newer: Newer, layers: Layers) -> Iterator[str]:
    """What a lock says that its row forbids; needs no network."""
    locked = {package.name: package for package in read_packages(layers)}
    for text in question(spec, newer).requirements:
        requirement = Requirement(text)
        package = locked.get(requirement.name)
        if package and not requirement.specifier.contains(package.version, prereleases=True):
            yield f"{package.name} {package.version} is locked and {text} is required"
        if package is None and "<" not in text:
            yield f"{requirement.name} is not locked"
    for package in locked.values():
        limit = newer.as_of if package.name in newer.packages else spec.cutoff
        if package.appeared and package.appeared > limit:
            yield f"{package.name} {package.version} appeared on {package.appeared}, after {limit}"

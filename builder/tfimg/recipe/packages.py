"""Extra packages: read, resolve against the lock, explain conflicts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from tfimg.core.files import hash_file
from tfimg.matrix.schema import Newer
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import (
    HEADER,
    Lock,
    LockedPackage,
    LockQuery,
    end_of,
    format_line,
    make_query,
    read_packages,
    resolve_packages,
)

if TYPE_CHECKING:
    from packaging.pylock import Package


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolver:
    """Resolves packages together with one image's lock with the program `uv`, as of a day.

    The image's packages keep their versions where the requirements allow it. Others move within the bounds of
    TensorFlow's metadata, those of `ImageSpec.fixed` only if a requirement names them. `may_move` False: none moves, as
    in the lock of a variant. `fixes` are packages of a variant that `tfimg matrix lock --fix` has moved; they stay.
    `constraints` bound packages that may be needed. `made` are wheels that were made of sources, `promised` are names
    and versions of those that could be made, which no lock has. `timeout` are seconds for one resolution.
    """

    spec: ImageSpec
    lock: Lock
    newer: Newer
    uv: str
    env: Mapping[str, str]
    today: date
    as_of: date | None = None
    find_links: Path | None = None
    fixes: tuple[LockedPackage, ...] = ()
    constraints: tuple[str, ...] = ()
    may_move: bool = True
    made: tuple[Path, ...] = ()
    promised: tuple[tuple[str, str], ...] = ()
    timeout: float | None = None

    @property
    def versions(self) -> dict[str, str]:
        """The packages of the image: those of the lock, and the other name of TensorFlow's."""
        return {package.name: package.version for package in read_packages(self.lock)} | {ALIAS: self.spec.tensorflow}

    @property
    def day(self) -> date:
        """The day as of which packages are resolved."""
        return self.as_of or self.spec.cutoff

    def is_held(self, name: str, requirements: Iterable[str] = ()) -> bool:
        """Return whether a package of the image keeps its version, whatever `requirements` need.

        NVIDIA's libraries and libtpu are held even when they are named: the matrix pins them.
        """
        if not self.may_move or name in (ALIAS, self.spec.package, "libtpu", *dict(self.spec.libraries)):
            return True
        return self.spec.is_fixed(name) and name not in map(name_of, requirements)

    def find(self, requirements: Sequence[str], free: Collection[str] = ()) -> Sequence[Package]:
        """Return the packages that requirements resolve to; `free` are names of the image's that may move nevertheless.

        Raises `LockError` if they have no solution, which `tfimg.recipe.conflicts` explains, and `TimeoutError`.
        """
        return resolve_packages(self.query(requirements, free), uv=self.uv, env=self.env, timeout=self.timeout)

    def format(self, requirements: Sequence[str], found: Iterable[Package]) -> str:
        """Return the requirement file of the packages that the image lacks or has in another version.

        Raises `LockError`.
        """
        query, versions = self.query(requirements), self.versions
        reasons = {(fix.name, fix.version): fix.reason for fix in self.fixes}
        made = {parse_wheel_filename(wheel.name)[:2]: wheel for wheel in self.made}
        known = (*versions.items(), *self.promised)
        lines = []
        for package in found:
            version = str(package.version)
            if package.version and (wheel := made.get((package.name, package.version))):
                # Also where the index has a wheel of this version, or the image: what was asked for is the source.
                lines.append(f"{package.name}=={version} --hash=sha256:{hash_file(wheel)}\n")
            elif package.name != self.spec.package and (package.name, version) not in known:
                lines.append(format_line(package, query, reasons.get((package.name, version))))
        return HEADER + "".join(lines) if lines else ""

    def query(self, requirements: Sequence[str], free: Collection[str] = ()) -> LockQuery:
        """Return the query for requirements; see `find`."""
        base = make_query(self.spec, self.newer, self.find_links)
        versions = self.versions
        held = [name for name in versions if name not in free and self.is_held(name, requirements)]
        # Packages of the image may be newer than the cut-off: they are visible as of the day when they appeared.
        days = {ALIAS: self.spec.cutoff}
        days |= {one.name: one.appeared for one in (*read_packages(self.lock), *self.fixes) if one.appeared}
        if self.may_move:
            days = {name: max(day, self.day) for name, day in days.items()}
        # Who writes a version means it, also if it is newer than all others may be.
        exact = {name_of(one): end_of(self.today) for one in requirements if is_exact(one)}
        has_wheel = self.spec.wheel is None or self.spec.wheel.file.is_file()
        # No index has the version of a wheel that a user built.
        is_read = self.may_move and has_wheel
        local = {ALIAS, self.spec.package} - ({self.spec.package} if is_read else set()) if self.spec.wheel else ()
        roots = (*base.requirements, *(name for name in versions if name != ALIAS)) if is_read else ()
        return replace(
            base,
            # In this order: uv decides those of the user first, and moves those of the image.
            requirements=tuple(dict.fromkeys((*requirements, *roots))),
            cutoff=end_of(self.day),
            newer=tuple(sorted((dict(base.newer) | {name: end_of(day) for name, day in days.items()} | exact).items())),
            constraints=(
                *(f"{name}=={versions[name]}" for name in held),
                *(f"{fix.name}=={fix.version}" for fix in self.fixes),
                *(f"{name}{one.find_releases(self.spec.tensorflow)}" for name, one in self.spec.companions),
                *self.constraints,
            ),
            newest=self.as_of == self.today,
            local=(*((name, self.spec.tensorflow) for name in local), *self.promised),
            made=self.made,
            locked=tuple(versions.items()) if roots else (),
        )


def name_of(requirement: str) -> str:
    """Return the name of a requirement, as PEP 503 compares it."""
    return canonicalize_name(Requirement(requirement).name)


def is_exact(requirement: str) -> bool:
    """Return whether a requirement is of one version: pandas==2.1.4."""
    return any(one.operator in ("==", "===") and "*" not in one.version for one in Requirement(requirement).specifier)


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedPackage:
    """A package that an image with extra packages has in another version; `fix` is what its first version fixed."""

    name: str
    before: str
    after: str
    fix: str | None


def find_moved(lock: Lock, own: str) -> tuple[MovedPackage, ...]:
    """Return the packages of an image's lock that its part of extra packages replaces. Raises `LockError`."""
    versions = {package.name: package.version for package in read_packages({"own": own})}
    return tuple(
        MovedPackage(name=one.name, before=one.version, after=versions[one.name], fix=one.reason)
        for one in read_packages(lock)
        if one.name in versions
    )


def find_locked_wheels(folder: Path, lock: Lock) -> tuple[Path, ...]:
    """Return the wheels of a folder that a lock names by their hash."""
    hashes = {package.sha256 for package in read_packages(lock)}
    return tuple(wheel for wheel in list_wheels(folder) if hash_file(wheel) in hashes)


def list_wheels(folder: Path) -> list[Path]:
    """Return the wheels of a folder, by name."""
    return sorted(wheel for wheel in folder.glob("*.whl") if wheel.is_file())


_LIBRARY = re.compile(r"(nvidia-[a-z0-9-]+?)-cu(\d\d)")
"""Name of a wheel of NVIDIA's libraries without its CUDA major, and the major. All of them write into `nvidia/`."""

_BUILD = re.compile(r"cupy-cuda\d+x|jax-cuda\d+-p.*|onnxruntime-gpu|triton|faiss-gpu(-cu\d+)?")
"""Builds of other packages for CUDA, which bring libraries of their own or need them."""

CPU_BUILDS: Mapping[str, str] = {"faiss-gpu": "faiss-cpu", "onnxruntime-gpu": "onnxruntime", "xgboost": "xgboost-cpu"}
"""Package for CUDA → the one for CPUs of the same project."""

TORCH = ("torch", "torchvision", "torchaudio")
"""Packages whose builds for CPU have the local version `+cpu` and are on an index of their own."""

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def find_cuda_copies(image: Iterable[str], names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the wheels of NVIDIA that would write over those of an image, each with that one.

    `nvidia-cudnn-cu11` and `nvidia-cudnn-cu12` have the same files in `nvidia/cudnn`.
    """
    here = {match[1]: name for name in image if (match := _LIBRARY.fullmatch(name))}
    found = ((name, here.get(match[1])) for name in names if (match := _LIBRARY.fullmatch(name)))
    return tuple((name, other) for name, other in found if other and other != name)


def is_library_of_cuda(name: str) -> bool:
    """Return whether a wheel holds libraries of NVIDIA's."""
    return bool(_LIBRARY.fullmatch(name))


def is_for_cuda(name: str) -> bool:
    """Return whether a wheel holds libraries of CUDA, or is of no use without."""
    return is_library_of_cuda(name) or bool(_BUILD.fullmatch(name))


def list_cpu_builds(versions: Mapping[str, str]) -> list[str]:
    """Return what to take in place of packages for CUDA, in words."""
    ways = [f"take {CPU_BUILDS[name]} in place of {name}" for name in versions if name in CPU_BUILDS]
    torch = [f"{name}=={versions[name].partition('+')[0]}+cpu" for name in TORCH if name in versions]
    return [*ways, *([describe_torch_for_cpu(torch)] if torch else [])]


def describe_torch_for_cpu(requirements: Iterable[str]) -> str:
    """Return in words how to take PyTorch's builds for CPU, as requirements such as torch==2.2.1+cpu."""
    return (
        f"write {','.join(requirements)}, the build for CPU, put its wheel of {TORCH_INDEX} into a folder and add "
        "--find-links FOLDER"
    )

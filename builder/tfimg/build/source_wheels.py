"""Make wheels of source distributions, in a throw-away image: the one that gets them, with compilers."""

from __future__ import annotations

import hashlib
import lzma
import re
import shutil
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Annotated

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from pydantic import Field

from tfimg.build.builder import Builder
from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.documents import Document, validate_model
from tfimg.core.errors import FileError, HashMismatchError, InvalidSource, LockError, NetworkError, RequirementConflict
from tfimg.core.events import InfoEvent, OnEvent, ignore
from tfimg.core.failures import FULL_DISK, disk_error, network_error, read_output
from tfimg.core.files import hash_file, hash_files, name_in_errors
from tfimg.core.process import CommandFailed, last_line, run
from tfimg.core.text import escape_unprintable
from tfimg.custom.source import WheelAddress, find_wheel
from tfimg.engine.interface import BuildRequest
from tfimg.index.client import UNREADABLE, Index
from tfimg.matrix.spec import ExtraPackages, ImageSpec, with_extra_packages, without_extra_packages
from tfimg.project.project import Project
from tfimg.recipe.layout import EPOCH
from tfimg.recipe.lock import end_of, hash_lock
from tfimg.recipe.packages import list_wheels
from tfimg.recipe.requirements import Source, hide_secrets

TOOLS = ("build-essential", "git", "pkg-config")
"""Debian packages that the throw-away image has beside those of the image."""

PROGRAMS = ("cmake<4", "ninja")
"""Programs that setup.py of packages with C++ calls and no `build-system.requires` of their time names. CMake 4 refuses
the policies of these projects (its release notes, "Deprecated and Removed Features")."""

LEGACY = "setuptools.build_meta:__legacy__"
"""The backend of a tree without pyproject.toml, or without a backend in it (PEP 517, "Source trees")."""

MAX_PYPROJECT = 1 << 20  # bytes of a pyproject.toml: those of the packages that we tried have 30 kB at most
MAX_MEMBERS = 100_000  # files of an archive among which its pyproject.toml is looked for
MAX_ROUNDS = 5  # times that wheels are made for one request: what a wheel needs is known when it is there
MAX_UNPACKED = 4 << 30  # bytes of its files. Those of TensorFlow's own sources have 0.3 GB
MAX_REQUIRES = 100  # requirements of a build


class _BuildSystem(Document):
    requires: Annotated[tuple[Annotated[str, Field(max_length=300)], ...], Field(max_length=MAX_REQUIRES)] = (
        "setuptools",
        "wheel",
    )
    backend: Annotated[str, Field(alias="build-backend", pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?$")] = LEGACY
    path: Annotated[tuple[str, ...], Field(alias="backend-path", max_length=10)] = ()


class _PyProject(Document):
    build_system: Annotated[_BuildSystem, Field(alias="build-system")] = _BuildSystem()


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceDistribution:
    """A source distribution of a package: an archive or a folder, and where in it the project lies.

    `name` is canonical, None if only its build knows it. `origin` is what messages call it; `sha256` is that of the
    archive, None for a folder.
    """

    name: str | None
    origin: str
    place: Path
    sha256: str | None = None
    subdirectory: str = ""


@dataclass(frozen=True)
class WheelMaker:
    """Makes wheels for an image, with what the package index had by the end of `day`; None: has now."""

    builder: Builder
    spec: ImageSpec
    day: date | None
    on_event: OnEvent = ignore

    @property
    def folder(self) -> Path:
        """The folder that keeps the wheels of this image and day."""
        project = self.builder.project
        files = {file.name: file for file in sorted(project.workspace.source_wheels.iterdir()) if file.is_file()}
        text = f"{hash_lock(project.lock(self.spec))} {self.day} {self.spec.system_packages} {hash_files(files)}"
        return project.services.state / "source-wheels" / hashlib.sha256(text.encode()).hexdigest()[:16]

    def make(self, source: SourceDistribution) -> Path:
        """Return the wheel of a source distribution, which is made if it is not kept.

        Raises `InvalidSource` for a malformed one, `BuildError` for one that does not build, and as
        `Builder.candidate`.
        """
        key = f"{source.sha256} {source.subdirectory}" if source.sha256 else None
        if key and (wheels := [*self._place(key).glob("*.whl")]):
            return wheels[0]
        system = _read_build_system(source)
        with tempfile.TemporaryDirectory(prefix="tfimg-source-") as scratch:
            return self.keep(self._build(source, system, Path(scratch)), key)

    def keep(self, wheel: Path, key: str | None = None) -> Path:
        """Return a copy of a wheel in the state folder, which is complete whenever it is there."""
        place = self._place(key or hash_file(wheel))
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="partial-", dir=place) as partial:
            return Path(shutil.copy(wheel, partial)).replace(place / wheel.name)

    def _place(self, key: str) -> Path:
        return self.folder / hashlib.sha256(key.encode()).hexdigest()

    def _build(self, source: SourceDistribution, system: _BuildSystem, scratch: Path) -> Path:
        project = self.builder.project
        context, output = scratch / "context", scratch / "wheels"
        shutil.copytree(project.workspace.source_wheels, context)
        shutil.copytree(project.workspace.images / "build", context / "build")
        shutil.copy(project.workspace.installer_lock, context / "installer.txt")
        (context / "requires.txt").write_text("\n".join([*system.requires, *PROGRAMS]) + "\n")
        place = source.place
        if place.is_file():
            place = scratch / "source"
            place.mkdir()
            shutil.copy(source.place, place)
        secrets, secret_env = project.services.network.secrets()
        with self._open_image() as image:
            request = BuildRequest(
                dockerfile=context / "Dockerfile",
                context=context,
                name=f"{image}-wheels",
                build_args={
                    "IMAGE": image,
                    "DAY": end_of(self.day) if self.day else "",
                    "SOURCE_DATE_EPOCH": str(EPOCH),
                    "SUBDIRECTORY": source.subdirectory or ".",
                    "BACKEND": system.backend,
                    "BACKEND_PATH": ":".join(system.path),
                },
                secrets=secrets,
                secret_env=secret_env,
                output=f"type=local,dest={output}",
                contexts={"source": str(place)},
            )
            self.on_event(InfoEvent(text=f"Making the wheel of {source.origin}"))
            with closing(self.builder.engine.build(request)) as events:
                for event in events:
                    self.on_event(event)
        wheels = [*output.glob("*.whl")]
        try:
            (wheel,) = wheels
            name = parse_wheel_filename(wheel.name)[0]
        except (ValueError, InvalidWheelFilename):
            raise _refuse(source, f"its build wrote {len(wheels)} wheels") from None
        if source.name not in (None, name):
            raise _refuse(source, f"its build wrote a wheel of {name}")
        return wheel

    @contextmanager
    def _open_image(self) -> Iterator[str]:
        """Yield the name of the image with compilers, which is there until the end of the block."""
        base = self.builder.prepare_base(self.spec, self.on_event)
        # The official images have Python's headers.
        headers = ["python3-dev"] if base.kind == "bootstrapped" else []
        own = self.spec.extra.system_packages if self.spec.extra else ()
        packages = dict.fromkeys([*own, *TOOLS, *headers])
        plain = without_extra_packages(self.spec)
        spec = with_extra_packages(plain, ExtraPackages(system_packages=tuple(packages)))
        with self.builder.candidate(self.builder.project.plan(spec), self.on_event) as built:
            yield built.name


def fetch_source(name: str, version: str, indexes: Sequence[Index], folder: Path) -> SourceDistribution:
    """Return a source distribution of a package index, downloaded into a folder.

    Raises `LockError` if no index has it, `HashMismatchError`, `NetworkError`.
    """
    for index in indexes:
        for source in index.read_project(name).sources:
            if str(source.version) != version:
                continue
            file = folder / source.filename
            with name_in_errors(file), file.open("wb") as sink:
                for chunk in index.download(source):
                    raise_if_cancelled()
                    sink.write(chunk)
            sha256 = hash_file(file)
            if source.sha256 not in (None, sha256):
                raise HashMismatchError(
                    f"{source.filename} has sha256 {sha256}, and the package index states {source.sha256}."
                )
            return SourceDistribution(name=name, origin=source.filename, place=file, sha256=sha256)
    raise LockError(f"The package index has no source of {name} {version}.", next_step="Run the same command again.")


def add_source_wheels(maker: WheelMaker, sources: Iterable[tuple[str, str]]) -> Project:
    """Return the project with wheels of names and versions that the index has as source, beside those that it has.

    Raises as `fetch_source` and `WheelMaker.make`.
    """
    indexes = maker.builder.project.services.releases(maker.spec.python, maker.spec.platform).indexes
    with tempfile.TemporaryDirectory(prefix="tfimg-source-") as folder:
        made = [maker.make(fetch_source(name, version, indexes, Path(folder))) for name, version in sources]
    return _add_wheels(maker, made)


def resolve_with_wheels(
    project: Project,
    find_image: Callable[[Project], ImageSpec],
    open_maker: Callable[[Project], AbstractContextManager[WheelMaker]],
) -> tuple[Project, ImageSpec]:
    """Return the image that a project finds, and the project with the wheels that were made of source for it.

    Raises what `find_image` raises, if no wheels would help, and as `add_source_wheels`.
    """
    for _ in range(MAX_ROUNDS):
        try:
            return project, find_image(project)
        except RequirementConflict as conflict:
            if not conflict.sources:
                raise
            missing = conflict.sources
        with open_maker(project) as maker:
            project = add_source_wheels(maker, missing)
    return project, find_image(project)


def add_direct_wheels(maker: WheelMaker, sources: Iterable[Source]) -> tuple[Project, dict[Source, str]]:
    """Return the project with the wheels of repositories, addresses and folders, and the requirement for each.

    Raises `FileError`, `HashMismatchError`, `NetworkError`, `InvalidSource`, and as `WheelMaker.make`.
    """
    wheels, found = [], {}
    with tempfile.TemporaryDirectory(prefix="tfimg-source-") as scratch:
        for number, source in enumerate(sources):
            distribution = _open_source(source, maker, Path(scratch, str(number)))
            is_wheel = distribution.place.suffix == ".whl"
            wheel = maker.keep(distribution.place) if is_wheel else maker.make(distribution)
            try:
                name, version, _, _ = parse_wheel_filename(wheel.name)
            except InvalidWheelFilename as error:
                raise _refuse(distribution, str(error)) from None
            wheels.append(wheel)
            found[source] = f"{name}=={version}"
    return _add_wheels(maker, wheels), found


def _open_source(source: Source, maker: WheelMaker, folder: Path) -> SourceDistribution:
    """Return the tree or file of a source, which is fetched into a folder that does not exist if need be."""
    origin = escape_unprintable(hide_secrets(source.address))
    name = canonicalize_name(source.name) if source.name else None
    services = maker.builder.project.services
    sha256, place = source.sha256, Path(re.sub("^file:(//)?", "", source.address))
    if source.kind == "git":
        place = _clone(source, folder, services.environ, origin)
    elif "://" in source.address and not source.address.startswith("file:"):
        address = WheelAddress(file=None, url=source.address, sha256=source.sha256)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}", address.name):
            raise FileError(f"{source.line}: {origin} names no file.", next_step="Correct the address.")
        place = find_wheel(
            address, services.state / "wheels", services.open_index, lambda one: maker.on_event(InfoEvent(text=one))
        )
    elif not place.exists():
        raise FileError(f"{source.line}: {origin} does not exist.", next_step="Correct the path.")
    if place.is_file():
        sha256 = hash_file(place)
        if source.sha256 not in (None, sha256):
            raise HashMismatchError(f"{origin} has sha256 {sha256}, and {source.line} states {source.sha256}.")
    return SourceDistribution(
        name=name, origin=origin, place=place.resolve(), sha256=sha256, subdirectory=source.subdirectory or ""
    )


def _clone(source: Source, folder: Path, environ: Mapping[str, str], origin: str) -> Path:
    """Fetch the commit of a repository with its history, from which versions are computed. Raises `NetworkError`."""
    git = ["git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never"]
    env = {**environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        run([*git, "clone", "--quiet", "--no-checkout", "--", source.address, str(folder)], env=env)
        run([*git, "-C", str(folder), "checkout", "--quiet", "--detach", str(source.commit)], env=env)
        run([*git, "-C", str(folder), "submodule", "--quiet", "update", "--init", "--recursive"], env=env)
    except CommandFailed as failed:
        if FULL_DISK.search(failed.stderr):
            raise disk_error(f"git could not fetch {origin}", folder.parent) from None
        what = f"git could not fetch {source.commit} of {origin}"
        if failure := read_output(failed.stderr, environ.get("https_proxy") or environ.get("HTTPS_PROXY") or ""):
            raise network_error(what, failure) from None
        why = escape_unprintable(re.sub(r"//[^/@\s]*@", "//", last_line(failed.stderr) or ""))  # without a password
        raise NetworkError(
            f"{what}: {why}",
            next_step="Try `git clone` of it on this machine: address, credentials and proxy are git's own.",
        ) from None
    except FileNotFoundError:
        raise FileError("git is not installed.", next_step="Install it: `apt-get install git`.") from None
    return folder


def _add_wheels(maker: WheelMaker, made: Iterable[Path]) -> Project:
    """Return the project whose folder of wheels has those that were made, beside the user's own."""
    project = maker.builder.project
    wheels = [*(list_wheels(project.find_links) if project.find_links else []), *made]
    digests = "".join(f"{wheel.name} {hash_file(wheel)}\n" for wheel in wheels)
    together = maker.folder / hashlib.sha256(digests.encode()).hexdigest()[:16]
    together.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        with suppress(FileExistsError):
            (together / wheel.name).symlink_to(wheel.resolve())
    return replace(project, find_links=together)


def _read_build_system(source: SourceDistribution) -> _BuildSystem:
    """Return what pyproject.toml says of the build. Raises `InvalidSource`."""
    try:
        text = _read_pyproject(source)
        system = validate_model(_PyProject, tomllib.loads(text.decode())).build_system if text else _BuildSystem()
        for requirement in system.requires:
            if Requirement(requirement).url:
                raise ValueError(f"its build requires {requirement[:100]}, which names an address")
    except (*UNREADABLE, tarfile.TarError, lzma.LZMAError) as error:
        raise _refuse(source, str(error)) from None
    return system


def _read_pyproject(source: SourceDistribution) -> bytes | None:
    """Return the content of pyproject.toml; None without. Raises what reading archives raises."""
    wanted = PurePosixPath(source.subdirectory, "pyproject.toml")
    if source.place.is_dir():
        file = source.place / wanted
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            return stream.read(MAX_PYPROJECT)
    if zipfile.is_zipfile(source.place):
        with zipfile.ZipFile(source.place) as archive:
            found = [name for name in archive.namelist() if PurePosixPath(*PurePosixPath(name).parts[1:]) == wanted]
            return archive.open(found[0]).read(MAX_PYPROJECT) if found else None
    with tarfile.open(source.place, "r|*") as tar:
        unpacked = 0
        for number, member in enumerate(tar):
            unpacked += member.size
            if number > MAX_MEMBERS or unpacked > MAX_UNPACKED:
                raise ValueError(f"it has more than {MAX_MEMBERS} files or {MAX_UNPACKED} bytes")
            parts = PurePosixPath(member.name).parts
            if member.isreg() and PurePosixPath(*parts[1:]) == wanted and (content := tar.extractfile(member)):
                return content.read(MAX_PYPROJECT)
    return None


def _refuse(source: SourceDistribution, why: str) -> InvalidSource:
    return InvalidSource(
        f"{source.origin} cannot become a wheel: {escape_unprintable(why)[:300]}.",
        next_step="Make the wheel yourself, put it into a folder, and name that with --find-links.",
    )

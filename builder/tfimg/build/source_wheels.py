"""Make wheels of source distributions, in a throw-away image: the one that gets them, with compilers."""

from __future__ import annotations

import lzma
import re
import shutil
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from pydantic import Field

from tfimg.build.builder import Builder
from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.documents import Document, validate_model
from tfimg.core.errors import FileError, HashMismatchError, InvalidSource, NetworkError
from tfimg.core.events import InfoEvent, OnEvent, ignore
from tfimg.core.failures import FULL_DISK, disk_error, network_error, read_output
from tfimg.core.files import hash_file, name_in_errors
from tfimg.core.process import CommandFailed, last_line, run
from tfimg.core.text import escape_unprintable, remove_credentials
from tfimg.custom.source import WheelAddress, find_wheel
from tfimg.engine.interface import BuildRequest
from tfimg.index.client import UNREADABLE, Index
from tfimg.matrix.spec import ExtraPackages, with_extra_packages, without_extra_packages
from tfimg.project.source_wheels import KeptWheels, Unmade, describe_source, find_archive, find_path
from tfimg.recipe.layout import EPOCH
from tfimg.recipe.lock import end_of
from tfimg.recipe.requirements import Source

TOOLS = ("build-essential", "git", "pkg-config")
"""Debian packages that the throw-away image has beside those of the image."""

PROGRAMS = ("cmake<4", "ninja")
"""Programs that setup.py of packages with C++ calls and no `build-system.requires` of their time names. CMake 4 refuses
the policies of these projects (its release notes, "Deprecated and Removed Features")."""

LEGACY = "setuptools.build_meta:__legacy__"
"""The backend of a tree without pyproject.toml, or without a backend in it (PEP 517, "Source trees")."""

MAX_PYPROJECT = 1 << 20  # bytes of a pyproject.toml: those of the packages that we tried have 30 kB at most
MAX_MEMBERS = 100_000  # files of an archive among which its pyproject.toml is looked for
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

    `name` is canonical, None if only its build knows it. `origin` is what messages call it.
    """

    name: str | None
    origin: str
    place: Path
    subdirectory: str = ""


@dataclass(frozen=True)
class WheelMaker:
    """Makes wheels for the image of `kept`, with what the package index had by the end of its day."""

    builder: Builder
    kept: KeptWheels
    on_event: OnEvent = ignore

    def make(self, sources: Sequence[Unmade]) -> dict[Unmade, Path]:
        """Return the wheel of each source.

        Raises `InvalidSource` for a malformed one, `BuildError` for one that does not build, `FileError`,
        `HashMismatchError`, `LockError`, `NetworkError`, and as `Builder.candidate`.
        """
        made: dict[Unmade, Path] = {}
        with tempfile.TemporaryDirectory(prefix="tfimg-source-") as scratch, ExitStack() as stack:
            image = None
            for number, source in enumerate(sources):
                folder = Path(scratch, str(number))
                folder.mkdir()
                if isinstance(source, Source):
                    found = _open_source(source, self, folder / "source")
                else:
                    found = fetch_source(*source, self.kept.indexes, folder)
                wheel = found.place
                if wheel.suffix != ".whl":
                    system = _read_build_system(found)
                    image = image or stack.enter_context(self._open_image())
                    wheel = self._build(found, system, image, folder)
                try:
                    name = parse_wheel_filename(wheel.name)[0]
                except InvalidWheelFilename as error:
                    raise _refuse(found, str(error)) from None
                if found.name not in (None, name):
                    raise _refuse(found, f"it is a wheel of {name}")
                made[source] = self.kept.keep(wheel, source)
        return made

    def _build(self, source: SourceDistribution, system: _BuildSystem, image: str, scratch: Path) -> Path:
        project = self.builder.project
        context, output = scratch / "context", scratch / "wheels"
        shutil.copytree(project.workspace.source_wheels, context)
        shutil.copytree(project.workspace.images / "build", context / "build")
        shutil.copy(project.workspace.installer_lock, context / "installer.txt")
        (context / "requires.txt").write_text("\n".join([*system.requires, *PROGRAMS]) + "\n")
        place = source.place
        if place.is_file():
            place = scratch / "archive"
            place.mkdir()
            shutil.copy(source.place, place)
        secrets, secret_env = project.services.network.secrets()
        request = BuildRequest(
            dockerfile=context / "Dockerfile",
            context=context,
            name=f"{image}-wheels",
            build_args={
                "IMAGE": image,
                "DAY": end_of(self.kept.day),
                "SOURCE_DATE_EPOCH": str(EPOCH),
                "SUBDIRECTORY": source.subdirectory or ".",
                "BACKEND": system.backend,
                "BACKEND_PATH": ":".join(system.path),
                "ARCHIVE": source.place.name if source.place.is_file() else "",
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
        if len(wheels) != 1:
            raise _refuse(source, f"its build wrote {len(wheels)} wheels")
        return wheels[0]

    @contextmanager
    def _open_image(self) -> Iterator[str]:
        """Yield the name of the image with compilers, which is there until the end of the block."""
        plain = self.kept.spec
        base = self.builder.prepare_base(plain, self.on_event)
        # The official images have Python's headers.
        headers = ["python3-dev"] if base.kind == "bootstrapped" else []
        packages = dict.fromkeys([*plain.system_packages, *TOOLS, *headers])
        spec = with_extra_packages(without_extra_packages(plain), ExtraPackages(system_packages=tuple(packages)))
        self.builder.require_buildable(spec, self.on_event)
        with self.builder.candidate(self.builder.project.plan(spec), self.on_event) as built:
            yield built.name


def fetch_source(name: str, version: str, indexes: Sequence[Index], folder: Path) -> SourceDistribution:
    """Return a source distribution of a package index, downloaded into a folder.

    Raises `HashMismatchError`, and as `find_archive`.
    """
    index, source = find_archive(name, version, indexes)
    file = folder / source.filename
    with name_in_errors(file), file.open("wb") as sink:
        for chunk in index.download(source):
            raise_if_cancelled()
            sink.write(chunk)
    sha256 = hash_file(file)
    if source.sha256 not in (None, sha256):
        raise HashMismatchError(f"{source.filename} has sha256 {sha256}, and the package index states {source.sha256}.")
    return SourceDistribution(name=name, origin=source.filename, place=file)


def _open_source(source: Source, maker: WheelMaker, folder: Path) -> SourceDistribution:
    """Return the tree or file of a source, which is fetched into a folder that does not exist if need be."""
    origin = describe_source(source)
    name = canonicalize_name(source.name) if source.name else None
    services = maker.builder.project.services
    place = find_path(source)
    if source.kind == "git":
        place = _clone(source, folder, services.environ, origin)
    elif place is None:
        address = WheelAddress(file=None, url=source.address, sha256=source.sha256)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}", address.name):
            raise FileError(f"{source.line}: {origin} names no file.", next_step="Correct the address.")
        place = find_wheel(
            address, services.state / "wheels", services.open_index, lambda one: maker.on_event(InfoEvent(text=one))
        )
    return SourceDistribution(name=name, origin=origin, place=place.resolve(), subdirectory=source.subdirectory or "")


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
        why = escape_unprintable(remove_credentials(last_line(failed.stderr) or ""))
        raise NetworkError(
            f"{what}: {why}",
            next_step="Try `git clone` of it on this machine: address, credentials and proxy are git's own.",
        ) from None
    except FileNotFoundError:
        raise FileError("git is not installed.", next_step="Install it: `apt-get install git`.") from None
    return folder


def _read_build_system(source: SourceDistribution) -> _BuildSystem:
    """Return what pyproject.toml says of the build. Raises `InvalidSource`."""
    try:
        text = _read_pyproject(source)
        system = validate_model(_PyProject, tomllib.loads(text.decode())).build_system if text else _BuildSystem()
        for requirement in system.requires:
            if Requirement(requirement).url:
                raise ValueError(f"its build requires {requirement[:100]}, which names an address")
    except (*UNREADABLE, TypeError, tarfile.TarError, lzma.LZMAError) as error:  # TypeError: `tarfile` of a cut gzip
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

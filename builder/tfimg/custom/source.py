"""A custom wheel: where it comes from and what it says of itself.

`build_info.py` is parsed as a literal, headers of C++ by regular expressions. What the libraries contain is left to the
suite, but for the Python that they were compiled for.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import requests
from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, parse_tag
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tfimg.core import cancellation, errors, failures, files
from tfimg.core.text import remove_credentials, split_url
from tfimg.index import client, network
from tfimg.layers.wheel import MAX_ENTRY_POINTS, MAX_METADATA, WheelZip, check_wheel, open_archive, read_headers
from tfimg.matrix.schema import PLATFORM_OF, PLATFORMS, PROCESSORS, Platform, minor_version

PACKAGE = "tensorflow/__init__.py"
INCLUDE = "tensorflow/include"
CUDA_CONFIG = (
    f"{INCLUDE}/third_party/gpus/cuda/cuda_config.h",
    f"{INCLUDE}/external/local_config_cuda/cuda/cuda/cuda_config.h",
)
CUDNN_HEADERS = (
    f"{INCLUDE}/third_party/gpus/cudnn/cudnn_version.h",
    f"{INCLUDE}/external/cuda_cudnn/include/cudnn_version.h",
)

MAX_HEADER = 4 << 20  # bytes: cudnn_version.h of 2.18.1 has 4 kB
MAX_LINES = 64  # with tags in WHEEL: 2.18.1 has two
MAX_REQUIREMENTS = 1000  # 2.18.1 has 45
MAX_REQUIREMENT = 400  # characters: 2.18.1 has 60
MAX_CONDITIONS = 1000  # of the versions in all requirements, which compare each with each: 2.18.1 has 60
MAX_MODULE = 1 << 20  # bytes of a module that is read: those of 2.15.1 and 2.21.0 have 140 kB or more
MAX_MODULES = 30  # that are read, the smallest first: in 2.21.0 the tenth names its Python

_LIBRARY = re.compile(r"[^/]\.so(\.[\w.]+)?\Z")
# pybind11 compares the Python that a module was compiled for with the running one (PYBIND11_CHECK_PYTHON_VERSION).
_PYTHON_CHECK = b"module was compiled for Python"
_PYTHON = re.compile(rb"\0(3\.\d{1,2})\0")


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFacts:
    """What a wheel states.

    `tags` are those of WHEEL and of the file name. `build` is the dictionary of build_info.py. `cuda` and `cudnn` are
    the most exact version of several statements, empty if there is none. `compiled_for` is the Python that a module
    was compiled for; None if none says.
    """

    file: Path
    sha256: str
    name: str
    version: Version
    tags: frozenset[Tag]
    requires: tuple[str, ...]
    build: Mapping[str, Any]
    cuda: str
    cudnn: str
    compiled_for: str | None

    @property
    def pythons(self) -> tuple[str, ...]:
        """The CPython minors of the tags; none for a wheel that names no CPython."""
        found = {tag.interpreter[3:] for tag in self.tags if re.fullmatch(r"cp3\d{1,2}", tag.interpreter)}
        return tuple(f"3.{minor}" for minor in sorted(found, key=int))

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms of the tags: `linux/amd64`, or a tag such as `win_amd64` that no image is for."""
        return tuple(sorted({_platform(tag.platform) for tag in self.tags} - {"any"}))

    @property
    def glibc(self) -> int | None:
        """The oldest glibc 2 that the tags allow; None if they do not say, as `linux_x86_64`."""
        minors = [re.match(r"manylinux_2_(\d{1,3})_", tag.platform) for tag in self.tags]
        return min((int(match[1]) for match in minors if match), default=None) if all(minors) else None

    def requirements(self, python: str, platform: Platform, *, extra: str = "") -> Mapping[str, SpecifierSet]:
        """Return what the wheel requires on a Python and platform, with one extra, by name."""
        environment = client.make_environment(python, PROCESSORS[platform], extra=extra)
        return client.select_requirements(self.requires, environment)


def read_facts(file: Path) -> WheelFacts:
    """Return the facts of a wheel.

    Raises `InvalidWheel` for a file that is malformed or whose name differs from what it states, `NotTensorFlowWheel`
    for another package.
    """
    with open_archive(file) as archive:
        if client.count_tags(file.stem) > client.MAX_TAGS:
            raise ValueError(f"its name has more than {client.MAX_TAGS} tags")
        name, version, _, tags = parse_wheel_filename(file.name)
        info = check_wheel(file.name, archive).info
        _require_tensorflow(file, archive, name)
        texts = [str(text) for text in read_headers(archive, f"{info}/WHEEL", MAX_ENTRY_POINTS).get_all("Tag", [])]
        if len(texts) > MAX_LINES or any(text.count("-") != 2 or len(text) > 200 for text in texts):
            raise ValueError(f"WHEEL has more than {MAX_LINES} lines of tags, or one unlike cp311-cp311-linux_x86_64")
        if sum(map(client.count_tags, texts)) > client.MAX_TAGS:
            raise ValueError(f"WHEEL has more than {client.MAX_TAGS} tags")
        stated = frozenset(tag for text in texts for tag in parse_tag(text))
        if stated and stated != tags:
            named, listed = (", ".join(sorted(map(str, one))[:3]) for one in (tags, stated))
            raise ValueError(f"its name is tagged {named}, and WHEEL {listed}")
        text = archive.read(client.BUILD_INFO, client.MAX_BUILD_INFO) if client.BUILD_INFO in archive.files else b""
        build = client.parse_build_info(text.decode()) if text else {}
        config, header = (
            next(
                (archive.read(path, MAX_HEADER).decode(errors="replace") for path in paths if path in archive.files), ""
            )
            for paths in (CUDA_CONFIG, CUDNN_HEADERS)
        )
        cudnn = ".".join(_find_definition(header, f"CUDNN_{part}") for part in ("MAJOR", "MINOR"))
        return WheelFacts(
            file=file,
            sha256=files.hash_file(file),
            name=name,
            version=version,
            tags=tags,
            requires=_read_requirements(read_headers(archive, f"{info}/METADATA", MAX_METADATA)),
            build=build,
            cuda=_choose_exact(build.get("cuda_version"), _find_definition(config, "TF_CUDA_VERSION")),
            cudnn=_choose_exact(build.get("cudnn_version"), cudnn),
            compiled_for=_find_compiled_python(archive),
        )


def _require_tensorflow(file: Path, archive: WheelZip, name: str) -> None:
    """Raise `NotTensorFlowWheel` for a wheel without the package `tensorflow` or without its libraries."""
    has_libraries = any(_LIBRARY.search(path) for path in archive.files if path.startswith("tensorflow/"))
    if PACKAGE in archive.files and has_libraries:
        return
    lacks = "shared libraries" if PACKAGE in archive.files else PACKAGE
    depends = " It may only depend on the package that has them." if name.startswith("tensorflow") else ""
    raise errors.NotTensorFlowWheel(
        f"{file.name} is a wheel of {name[:100]!r} without {lacks}.{depends}",
        next_step="Name a wheel that contains TensorFlow for Linux, such as the result of its build_pip_package.",
    )


def _platform(tag: str) -> str:
    """Return the platform of a tag: `linux/amd64` for `manylinux2014_x86_64`; the tag itself for other systems."""
    processor = next((name for name in PLATFORM_OF if tag.endswith(f"_{name}")), None)
    is_linux = tag.startswith(("linux_", "manylinux"))
    return PLATFORM_OF[processor] if processor and is_linux else tag


def _find_compiled_python(archive: WheelZip) -> str | None:
    """Return the Python that the first of the smallest modules says it was compiled for; None if none says."""
    modules = [item for path, item in archive.files.items() if _LIBRARY.search(path) and item.file_size <= MAX_MODULE]
    for item in sorted(modules, key=lambda item: item.file_size)[:MAX_MODULES]:
        content = archive.read(item.filename, MAX_MODULE)
        if _PYTHON_CHECK in content and (match := _PYTHON.search(content)):
            return match[1].decode()
    return None


def _read_requirements(metadata: Message) -> tuple[str, ...]:
    """Return the requirements in METADATA. Raises `ValueError`, also for one that cannot be compared or evaluated."""
    lines = [str(line) for line in metadata.get_all("Requires-Dist", [])]
    if len(lines) > MAX_REQUIREMENTS:
        raise ValueError(f"METADATA has more than {MAX_REQUIREMENTS} requirements")
    requirements = []
    for line in lines:
        if len(line) > MAX_REQUIREMENT:
            raise ValueError(f"a requirement has more than {MAX_REQUIREMENT} characters")
        try:
            requirements.append(requirement := Requirement(line))
        except RecursionError:
            raise ValueError("a requirement is nested too deeply") from None
        if requirement.url:  # uv would open it: a file of this machine, or a server that only this machine reaches
            raise ValueError(f"its requirement {line[:100]!r} names an address, and images take packages from an index")
    if sum(len(requirement.specifier) for requirement in requirements) > MAX_CONDITIONS:
        raise ValueError(f"the requirements in METADATA have more than {MAX_CONDITIONS} conditions")
    environment = client.make_environment("3.11", PROCESSORS[PLATFORMS[0]])
    for requirement in requirements:
        try:
            requirement.specifier.is_disjoint(SpecifierSet(">=0"))
            if requirement.marker:
                requirement.marker.evaluate(environment)
                Requirement(str(requirement))  # an escaped character of a marker may not stand in one as it is
        except (ValueError, UndefinedComparison, UndefinedEnvironmentName) as error:
            raise ValueError(f"its requirement {str(requirement)[:100]!r} cannot be used: {error}") from None
    return tuple(map(str, requirements))


def _find_definition(text: str, name: str) -> str:
    match = re.search(rf'^#define {name} +"?([\w.+-]{{1,40}})"?\s*$', text, re.MULTILINE)
    return match[1] if match else ""


def _choose_exact(*versions: object) -> str:
    """Return the first two numbers of the first version with most of them; empty if nothing is a version."""
    pattern = r"[0-9]{1,3}(\.[0-9]{1,4}){0,3}"
    numbers = [minor_version(text) for text in map(str, versions) if re.fullmatch(pattern, text)]
    return max(numbers, key=lambda number: number.count("."), default="")


MAX_RESUMES = 20  # requests for one wheel, however little each of them brings

_FILENAME = re.compile(r"[A-Za-z0-9._+!-]{1,250}\.whl")
_SHA256 = re.compile(r"sha256[=:]([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelAddress:
    """Where a wheel is: `url` or `file`, and the SHA-256 that it must have; None: any."""

    file: Path | None
    url: str | None
    sha256: str | None

    @property
    def name(self) -> str:
        return self.file.name if self.file else unquote(split_url(self.url or "").path).rpartition("/")[2]


def parse_address(text: str) -> WheelAddress:
    """Parse FILE-or-URL#sha256=…; an address needs the hash. Raises `UsageError`."""
    place, mark, fragment = text.partition("#")
    match = _SHA256.fullmatch(fragment.lower())
    shown = remove_credentials(place)
    if mark and not match:
        raise errors.UsageError(
            f"--wheel {shown}: what follows # is not sha256= and 64 hexadecimal digits.",
            next_step="`sha256sum FILE` prints the digits.",
        )
    sha256 = match[1] if match else None
    is_url = re.match(r"[a-z][a-z0-9+.-]*://", place, re.IGNORECASE) is not None
    address = WheelAddress(file=None if is_url else Path(place), url=place if is_url else None, sha256=sha256)
    if is_url and split_url(place).scheme not in ("http", "https"):
        raise errors.UsageError(
            f"--wheel {shown} is not an address of https or http.", next_step="Name such an address, or a file."
        )
    if is_url and sha256 is None:
        raise errors.UsageError(
            f"--wheel {shown} has no hash: anybody who changes the file would change the image.",
            next_step="Append #sha256= and the hash that the wheel's publisher states.",
        )
    if not _FILENAME.fullmatch(address.name):
        raise errors.UsageError(
            f"--wheel {shown} is not a wheel: its name does not end in .whl, or has other characters than a wheel's.",
            next_step="Name a file such as tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl.",
        )
    return address


def find_wheel(
    address: WheelAddress, cache: Path, open_index: Callable[[str], client.Index], on_download: Callable[[str], None]
) -> Path:
    """Return the file of a wheel, downloaded into `cache` if it is not there yet.

    Raises `FileError` for a missing file, `HashMismatchError` for another one, `NetworkError`, and `OSError` for a full
    disk.
    """
    if address.file:
        if not address.file.is_file():
            raise errors.FileError(
                f"--wheel {address.file} is not a file.", next_step="Name the file of a wheel, or its address."
            )
        if address.file.stat().st_size > client.MAX_WHEEL:
            raise errors.FileError(
                f"--wheel {address.file} has more than {client.MAX_WHEEL >> 30} GiB.", next_step="Name a wheel."
            )
        if address.sha256 and (found := files.hash_file(address.file)) != address.sha256:
            raise _mismatch(address.file.name, found, address.sha256)
        return address.file.resolve()
    folder = cache / str(address.sha256)
    wheel = folder / address.name
    with files.wait_for_lock(cache / "locks" / str(address.sha256), cancellation.raise_if_cancelled):
        if not wheel.is_file() or files.hash_file(wheel) != address.sha256:
            folder.mkdir(parents=True, exist_ok=True)
            on_download(address.name)
            partial = folder / "partial"
            _download(str(address.url), partial, open_index(str(address.url)))
            found = files.hash_file(partial)
            if found != address.sha256:
                partial.unlink()
                raise _mismatch(address.name, found, str(address.sha256))
            partial.replace(wheel)
    return wheel


def _mismatch(name: str, found: str, expected: str) -> errors.HashMismatchError:
    return errors.HashMismatchError(
        f"{name} has sha256 {found}, and --wheel names {expected}.",
        next_step="Compare both with what the wheel's publisher states; do not build until you know who changed it.",
    )


def _download(url: str, partial: Path, index: client.Index) -> None:
    """Write a file, from where an earlier download ended. Raises `NetworkError`, and `OSError` for a full disk."""
    what = split_url(url).path.rpartition("/")[2]
    for _ in range(MAX_RESUMES):
        before = partial.stat().st_size if partial.exists() else 0
        try:
            if _append(url, partial, before, index):
                return
        except requests.HTTPError as error:
            if error.response.status_code == requests.codes.requested_range_not_satisfiable and before:
                partial.unlink()  # of another file, or complete but for a crash
                continue
            raise client.make_network_error(f"the wheel {what}", error, source="its server") from None
        except client.UNREADABLE as error:
            if isinstance(error, OSError) and error.errno in files.DISK_ERRORS:
                raise
            has_grown = partial.exists() and partial.stat().st_size > before
            if not has_grown or isinstance(error, network.LimitExceeded):
                raise client.make_network_error(f"the wheel {what}", error, source="its server") from None
    raise errors.NetworkError(
        f"The connection was cut {MAX_RESUMES} times while {what} was downloaded.",
        next_step="Run the same command again: it continues where it was interrupted.",
    )


def _append(url: str, partial: Path, offset: int, index: client.Index) -> bool:
    """Write what a server sends from an offset on; return whether it was all of it."""
    with closing(index.get(url, {"Range": f"bytes={offset}-"} if offset else None)) as response:
        is_rest = response.status_code == requests.codes.partial_content
        if is_rest and not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
            raise ValueError(f"it answers another range than the one from {offset} on")
        start = offset if is_rest else 0
        length = response.headers.get("Content-Length", "")
        expected = start + int(length) if re.fullmatch(r"[0-9]{1,15}", length) else None
        if expected and expected > client.MAX_WHEEL:
            raise network.LimitExceeded(f"it has {expected} bytes, and at most {client.MAX_WHEEL} are allowed")
        if expected and expected - start > files.find_free_bytes(partial.parent):
            what = f"The download of {split_url(url).path}"
            raise failures.disk_error(what, partial.parent, needed=expected - start)
        with files.name_in_errors(partial), partial.open("r+b" if start else "wb") as sink:
            sink.seek(start)
            for chunk in network.read_chunks(response, client.GRACE_SECONDS, client.MIN_RATE):
                cancellation.raise_if_cancelled()
                if sink.tell() + len(chunk) > client.MAX_WHEEL:
                    raise network.LimitExceeded(f"it has more than {client.MAX_WHEEL} bytes")
                sink.write(chunk)
            return expected is None or sink.tell() >= expected

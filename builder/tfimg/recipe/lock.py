"""Lock files: read, write, and resolve with uv.

An old release resolved today gets dependencies that it never met; a lock is resolved as of the release's cut-off day
instead. Each package has exactly one hash: that of the wheel which the image's Python installs.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import FileError, LockError, NetworkError, TfimgError, UnsuitableHost
from tfimg.core.failures import FULL_DISK, NETWORK_FAILURE, disk_error, network_error, read_output
from tfimg.core.files import digest_of
from tfimg.core.process import CommandFailed, last_line, run
from tfimg.core.text import remove_credentials
from tfimg.matrix.schema import PROCESSORS, Matrix, Newer, Platform
from tfimg.matrix.spec import ImageSpec

if TYPE_CHECKING:
    from packaging.pylock import Package, PackageWheel
    from packaging.tags import Tag

# The name that the command had when the first locks were written: a lock's digest, which records name, includes it.
HEADER = "# Written by `tfimg lock`; do not edit. Each line: the one wheel to install, and the day it appeared.\n"

MAX_CHARACTERS = 1 << 20  # of a whole lock; those of images have 7,000
MAX_LINE = 300  # characters; those of images have 150

# The names become parts of file names and addresses.
_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[0-9][0-9A-Za-z.!+]*) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"(?:  # (?=\S)(?P<day>\d{4}-\d\d-\d\d)?"
    r"(?:(?:, |(?<=# ))(?P<reason>(?:fixes|goes with) [A-Za-z0-9 ,._:-]{1,120}))?)?",
    re.ASCII,
)

Lock = dict[str, str]  # part of an image → text of the requirement file that it is installed from


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedPackage:
    """One line of a lock; `appeared` is None if the index does not state the day.

    `reason` is why `tfimg matrix lock --fix` moved the package: `fixes CVE-2026-1234`; None for the version of its
    time.
    """

    name: str
    version: str
    sha256: str
    appeared: date | None
    reason: str | None = None


def read_packages(lock: Lock) -> tuple[LockedPackage, ...]:
    """Return a lock's packages. Raises `LockError` for lines `tfimg matrix lock` never writes."""
    if sum(map(len, lock.values())) > MAX_CHARACTERS:
        raise _invalid(f"more than {MAX_CHARACTERS} characters")
    packages = []
    for line in (line for text in lock.values() for line in text.splitlines() if not line.startswith("#")):
        match = _LINE.fullmatch(line) if len(line) <= MAX_LINE else None
        if match is None:
            raise _invalid(f"the line {line[:MAX_LINE]!r}")
        name, version, sha256, day, reason = match.groups()
        try:
            appeared = date.fromisoformat(day) if day else None
        except ValueError:
            raise _invalid(f"the line {line!r}") from None
        packages.append(LockedPackage(name=name, version=version, sha256=sha256, appeared=appeared, reason=reason))
    return tuple(packages)


def hash_lock(lock: Lock) -> str:
    """Return `sha256:…` of a whole lock: the value of the image's lock label."""
    # Records are of locks whose part for the variant was called "flavor".
    parts = sorted(("flavor" if name == "variant" else name, text) for name, text in lock.items())
    return digest_of("".join(f"{name}\n{text}" for name, text in parts).encode())


def add_own_part(lock: Lock, own: str) -> Lock:
    """Return a lock with the part of extra packages; what they replace leaves the other parts.

    An image never has two versions of a package, one hidden by the other.
    """
    moved = {f"{package.name}==" for package in read_packages({"own": own})}
    kept = {
        part: "".join(line for line in text.splitlines(keepends=True) if f"{line.partition('==')[0]}==" not in moved)
        for part, text in lock.items()
    }
    return {**kept, "own": own}


def _invalid(problem: str) -> LockError:
    return LockError(f"A lock has {problem}.", next_step="Write it again with `tfimg matrix lock`.")


MAX_RESOLUTIONS = 4  # resolutions at once: each waits for the index most of its time

SOLVERS = ("nvidia-cusolver-", "nvidia-cusparse-", "nvidia-cufft-")

PART_RULES: tuple[tuple[str, Callable[[ImageSpec, str], bool]], ...] = (
    ("tensorflow", lambda spec, name: name == spec.package),
    ("libtpu", lambda _spec, name: name == "libtpu"),
    ("cudnn", lambda _spec, name: name.startswith("nvidia-cudnn-")),
    ("cublas", lambda _spec, name: name.startswith("nvidia-cublas-")),
    ("solvers", lambda _spec, name: name.startswith(SOLVERS)),
    ("cuda", lambda _spec, name: name.startswith("nvidia-")),
    ("packages", lambda _spec, _name: True),
)
"""Parts of a lock; a package belongs to the first whose rule it meets. NVIDIA's are of similar size."""

GLIBC_MINOR = 31  # glibc 2.31 of Debian 11, the oldest base: wheels that need a newer one are not taken
LEGACY_TAGS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}  # by glibc minor


@dataclass(frozen=True, kw_only=True, slots=True)
class LockQuery:
    """Requirements that uv resolves.

    `cutoff` and the days in `newer` are the first instants that uv does not see; `find_links` is a folder of wheels
    that the package index lacks. `constraints` bound packages without requiring them. `local` are names and versions
    of packages that the image has from elsewhere, without further requirements. `locked` are the versions of a lock,
    which stay where the requirements allow it. Packages that move have the highest version; with `lowest`, those of the
    requirements have the lowest one, and no pre-release.
    `alone` are packages that are installed without their dependencies.
    `newest`: uv sees all releases, also of an index that states no upload times. `made` are wheels that were made of
    sources.
    """

    requirements: tuple[str, ...]
    python: str
    platform: Platform
    cutoff: str
    newer: tuple[tuple[str, str], ...] = ()
    find_links: Path | None = None
    constraints: tuple[str, ...] = ()
    local: tuple[tuple[str, str], ...] = ()
    locked: tuple[tuple[str, str], ...] = ()
    newest: bool = False
    lowest: bool = False
    made: tuple[Path, ...] = ()
    alone: tuple[str, ...] = ()


def make_query(
    spec: ImageSpec, newer: Newer, find_links: Path | None = None, fixes: Sequence[LockedPackage] = ()
) -> LockQuery:
    """Return the root requirements of an image and the days of their resolution; `fixes` stay as they are.

    Every image has TensorBoard (2.21 no longer depends on it) and pip. The libraries of a GPU or TPU are pinned
    exactly and may be newer than the release: CUDA 11.8's wheels are, than TensorFlow 2.10.
    """
    pins = dict(spec.libraries) | ({"libtpu": spec.libtpu} if spec.libtpu else {})
    days = {name: end_of(newer.as_of) for name in {*spec.newer, *pins}}
    days |= {fix.name: max(end_of(fix.appeared), days.get(fix.name, "")) for fix in fixes if fix.appeared}
    # A fix that was there by the day up to which its package may be newer may be replaced by a later version.
    movable = {fix.name for fix in fixes if fix.name in spec.newer and fix.appeared and fix.appeared <= newer.as_of}
    return LockQuery(
        requirements=(
            f"{spec.package} @ {spec.wheel.file.as_uri()}" if spec.wheel else f"{spec.package}=={spec.tensorflow}",
            *(f"{name}=={version}" for name, version in pins.items()),
            "tensorboard",
            "pip",
            *(constraint.requirement for constraint in spec.constraints),
        ),
        python=spec.python,
        platform=spec.platform,
        cutoff=end_of(spec.cutoff),
        newer=tuple(sorted(days.items())),
        find_links=find_links,
        alone=tuple(name for _, variant in spec.variants for name in variant.alone),
        constraints=tuple(f"{fix.name}{'>=' if fix.name in movable else '=='}{fix.version}" for fix in fixes),
    )


def make_installer_query(matrix: Matrix) -> LockQuery:
    """Return the query for the installer, whose wheel is the same for every Python."""
    newest = max(matrix.bases, key=Version)
    cutoff = end_of(matrix.newer.as_of)
    return LockQuery(requirements=(f"uv=={matrix.installer}",), python=newest, platform="linux/amd64", cutoff=cutoff)


def require_local_wheel(spec: ImageSpec, folder: Path) -> None:
    """Raise `LockError` if a folder has no wheel of the libtpu of an image."""
    if not any(folder.glob(f"libtpu-{spec.libtpu}-*.whl")):
        raise LockError(
            f"{spec.identifier} needs libtpu {spec.libtpu}, and {folder} has no libtpu-{spec.libtpu}-….whl.",
            next_step="Download the wheel from where upstream keeps it: the bucket libtpu-tf-releases of Google Cloud "
            "Storage.",
        )


def resolve_lock(
    spec: ImageSpec,
    newer: Newer,
    *,
    uv: str,
    env: Mapping[str, str],
    find_links: Path | None = None,
    fixes: Sequence[LockedPackage] = (),
) -> Lock:
    """Resolve an image's lock with the program `uv`; `fixes` are the packages that `tfimg matrix lock --fix` has moved.

    uv finds the package index through `env`. Raises `LockError` when there is no solution, `NetworkError` when the
    index cannot be reached.
    """
    query = make_query(spec, newer, find_links, fixes)
    reasons = {(fix.name, fix.version): fix.reason for fix in fixes}
    parts: dict[str, list[str]] = {name: [] for name, _ in PART_RULES}
    for package in resolve_packages(query, uv=uv, env=env):
        part = next(name for name, takes in PART_RULES if takes(spec, package.name))
        if spec.wheel and part == "tensorflow":
            parts[part].append(f"{spec.package}=={spec.tensorflow} --hash=sha256:{spec.wheel.sha256}\n")
        else:
            parts[part].append(format_line(package, query, reasons.get((package.name, str(package.version)))))
    return {name: HEADER + "".join(lines) for name, lines in parts.items() if lines}


def resolve_locks(
    specs: Sequence[ImageSpec],
    newer: Newer,
    *,
    uv: str,
    env: Mapping[str, str],
    committed: Callable[[ImageSpec], Lock] = lambda _: {},
) -> Iterator[tuple[ImageSpec, Lock | LockError]]:
    """Resolve the locks of several images; yield the lock of each, or why it has none. Raises `NetworkError`.

    The fixes in the `committed` lock of an image stay.
    """

    def resolve(spec: ImageSpec) -> Lock | LockError:
        try:
            return resolve_lock(spec, newer, uv=uv, env=env, fixes=find_fixes(committed(spec)))
        except LockError as error:
            return error

    yield from zip(specs, map_in_threads(resolve, specs, MAX_RESOLUTIONS), strict=True)


def find_fixes(lock: Lock) -> tuple[LockedPackage, ...]:
    """Return the packages of a lock that `tfimg matrix lock --fix` has moved. Raises `LockError`."""
    return tuple(package for package in read_packages(lock) if package.reason)


def resolve_installer_lock(matrix: Matrix, *, uv: str, env: Mapping[str, str]) -> str:
    """Resolve the installer's lock. Raises as `resolve_lock`."""
    query = make_installer_query(matrix)
    return HEADER + "".join(format_line(package, query) for package in resolve_packages(query, uv=uv, env=env))


def resolve_packages(
    query: LockQuery, *, uv: str, env: Mapping[str, str], timeout: float | None = None
) -> Sequence[Package]:
    """Resolve a query with uv. Raises as `resolve_lock`, and `TimeoutError` after `timeout` seconds."""
    import tomllib
    import zipfile

    from packaging.pylock import Pylock, PylockValidationError
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    with tempfile.TemporaryDirectory(prefix="tfimg-lock-") as folder:
        source, answer = Path(folder, "requirements.in"), Path(folder, "pylock.toml")
        source.write_text("\n".join(query.requirements) + "\n")
        # A file of an index never changes. Some indexes do not say so, and uv would ask for the metadata of each again.
        settings, index = Path(folder, "uv.toml"), env.get("UV_DEFAULT_INDEX") or PYPI_SIMPLE_ENDPOINT.rstrip("/")
        settings.write_text(
            f"[[index]]\nurl = {json.dumps(index)}\ndefault = true\n"
            'cache-control = { files = "max-age=31536000, immutable" }\n'
            + "".join(f'[[dependency-metadata]]\nname = "{name}"\nrequires-dist = []\n' for name in query.alone)
        )
        env = {name: value for name, value in env.items() if name not in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")}
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(query.constraints))
        if query.locked:  # uv keeps the versions of its last answer
            lines = (f'[[packages]]\nname = "{name}"\nversion = "{version}"\n' for name, version in query.locked)
            answer.write_text('lock-version = "1.0"\ncreated-by = "tfimg"\n' + "".join(lines))
        for name, version in query.local:
            # A wheel of metadata alone: others may require the package, and nothing of it is installed.
            stem = f"{name.replace('-', '_')}-{version}"
            with zipfile.ZipFile(Path(folder) / f"{stem}-py3-none-any.whl", "w") as archive:
                info = f"{stem}.dist-info"
                archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
                archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                archive.writestr(f"{info}/RECORD", "")
        days = [f"--exclude-newer={query.cutoff}"]
        days += [f"--exclude-newer-package={name}={day}" for name, day in query.newer]
        argv = [
            *(uv, "pip", "compile", "--quiet", f"--config-file={settings}", "--format=pylock.toml"),
            "--no-python-downloads",  # uv looks for one of the target version otherwise, for seconds
            f"--python={sys.executable}",  # PATH may have none, as where tfimg is installed as a tool
            f"--output-file={answer}",
            f"--python-version={query.python}",
            f"--python-platform={PROCESSORS[query.platform]}-manylinux_2_{GLIBC_MINOR}",
            "--only-binary=:all:",  # nothing is compiled while an image is built
            *([] if query.newest else days),
            *([f"--constraints={constraints}"] if query.constraints else []),
            *(["--resolution=lowest-direct", "--prerelease=disallow"] if query.lowest else []),
            str(source),
            # As an address: uv ends a path at a comma or #.
            *([f"--find-links={query.find_links.absolute().as_uri()}"] if query.find_links else []),
            *([f"--find-links={folder}"] if query.local else []),
            *(f"--find-links={wheel.parent.as_uri()}" for wheel in query.made),
        ]
        try:
            run(argv, env=env, timeout=timeout)
        except CommandFailed as failed:
            raise _find_machine_error(query, failed) or _map_error(query, failed.stderr, env) from None
        try:
            return Pylock.from_dict(tomllib.loads(answer.read_text())).packages
        except (ValueError, RecursionError, PylockValidationError) as error:
            what = f"tfimg cannot read the lock that {uv} wrote for {query.requirements[0]}"
            raise UnsuitableHost(f"{what}: {error}.", next_step="Install tfimg and its uv again.") from None


def best_wheel(wheels: Sequence[PackageWheel], python: str, platform: Platform) -> PackageWheel | None:
    """Return the wheel that an installer prefers on this Python with glibc 2.31."""
    from packaging.tags import create_compatible_tags_selector
    from packaging.utils import parse_wheel_filename

    select = create_compatible_tags_selector(list_wheel_tags(python, PROCESSORS[platform]))
    return next(select((wheel, parse_wheel_filename(wheel.filename)[-1]) for wheel in wheels), None)


@cache
def list_wheel_tags(python: str, processor: str) -> tuple[Tag, ...]:
    """Return the tags of wheels that fit a Python on a processor with glibc 2.31, the most specific first."""
    from packaging.tags import compatible_tags, cpython_tags  # 7 ms, which reading a lock need not take

    major, minor = map(int, python.split("."))
    names = [name for glibc in range(GLIBC_MINOR, 4, -1) for name in (f"manylinux_2_{glibc}", LEGACY_TAGS.get(glibc))]
    platforms = [f"{name}_{processor}" for name in (*names, "linux") if name]
    compatible = compatible_tags((major, minor), f"cp{major}{minor}", platforms)
    return *cpython_tags((major, minor), platforms=platforms), *compatible


def format_line(package: Package, query: LockQuery, reason: str | None = None) -> str:
    """Return a package's line of a lock. Raises `LockError` if it has no wheel for the image."""
    wheel = best_wheel(package.wheels or (), query.python, query.platform)
    if wheel is None or package.version is None:
        raise LockError(
            f"{package.name} {package.version} has no wheel for Python {query.python} on {query.platform}.",
            next_step="Constrain it in matrix.yaml to a version that has one.",
        )
    if "sha256" not in wheel.hashes:
        raise LockError(
            f"The package index states no SHA-256 of {wheel.filename}.",
            next_step="Name an index that does, or put the wheel into a folder and name that with --find-links.",
        )
    notes = [f"{wheel.upload_time:%Y-%m-%d}" if wheel.upload_time else "", reason or ""]
    comment = f"  # {', '.join(filter(None, notes))}" if any(notes) else ""
    return f"{package.name}=={package.version} --hash=sha256:{wheel.hashes['sha256']}{comment}\n"


_REFUSED = re.compile(
    r"index(?: URL)? \((?P<index>\S+)\) (?:could not be queried|returned)\b.*?(?P<status>40[13] \w+)", re.DOTALL
)
"""uv's hint about credentials, below the proof that a package does not exist."""


_CRASH = re.compile(r"memory allocation of \d+ bytes failed|panicked at")


def _find_machine_error(query: LockQuery, failed: CommandFailed) -> TfimgError | None:
    """Return the error for what this machine did to uv: no `LockError`, which says something of the requirements."""
    what, stderr = f"uv could not resolve {query.requirements[0]}", failed.stderr
    if FULL_DISK.search(stderr):
        path = re.search("[`'\"](/[^`'\"]+)[`'\"]", stderr)
        return disk_error(what, Path(path[1]).parent if path else Path(tempfile.gettempdir()))
    if "No solution found" in stderr or "timed out" in stderr or NETWORK_FAILURE.search(stderr):
        return None
    if failed.returncode < 0 or _CRASH.search(stderr):
        reason = last_line(stderr) or f"it was ended by signal {-failed.returncode}"
        step = "Give it more memory, or see the kernel's log (`dmesg`); then run it again."
        return UnsuitableHost(f"{what}: {reason}", next_step=step)
    if re.search(r"\(os error \d+\)", stderr):
        reason = " ".join(stderr.split()).removeprefix("error: ")
        step = "uv writes to its cache (UV_CACHE_DIR) and to the folder for temporary files (TMPDIR): name others."
        return FileError(f"{what}: {reason}", next_step=step)
    return None


def _map_error(query: LockQuery, stderr: str, env: Mapping[str, str]) -> Exception:
    root = query.requirements[0]
    last = last_line(stderr) or "no reason was given."
    # uv does nothing that could time out but ask the index.
    text = stderr.replace("timed out", "Read timed out")
    if failure := read_output(text, env.get("https_proxy") or env.get("HTTPS_PROXY") or ""):
        return network_error(f"The package index did not answer while {root} was resolved", failure)
    if "was not found in the package registry" in stderr and (refused := _REFUSED.search(stderr)):
        index = remove_credentials(refused["index"])
        return NetworkError(
            f"The package index {index} refused the request for {root} or for what it needs: {refused['status']}.",
            next_step="Check the credentials in the index settings of pip or uv, or in .netrc.",
        )
    if "No solution found" not in stderr:
        return LockError(f"uv could not resolve {root}: {last}", next_step="Correct that and try again.")
    # uv's hints name options that are not for the users of tfimg.
    reason = " ".join(stderr.split("hint:")[0].split())
    day = date.fromisoformat(query.cutoff[:10]) - timedelta(days=1)
    if f"there is no version of {root}" in reason:
        return LockError(
            f"The package index has no {root} that was uploaded by {day}.",
            next_step="Check the version and cut-off in matrix.yaml, and the index settings of pip or uv; "
            "the index has to state upload times (PEP 700).",
        )
    return LockError(
        f"{root} has no solution on Python {query.python}, {query.platform}, as of {day}: {reason}",
        next_step="Correct the row's constraints or its cut-off in matrix.yaml.",
    )


def end_of(day: date) -> str:
    """Return the first instant after a day, as uv takes it."""
    return f"{day + timedelta(days=1)}T00:00:00Z"

"""Every file of the installed packages is the file that was published: its SHA-256 is that of its RECORD.

The specification of RECORD: packaging.python.org, "Recording installed projects".
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped

from .files import enumerated
from .packages import TENSORFLOW, around_tensorflow, installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import FileIO

    from contract import Facts, Measured

    from .packages import Distribution, Entry

    Files = dict[str, set[Entry]]

# The specification forbids weaker ones.
HASHES = ("sha256", "sha384", "sha512")
# RECORD and its signatures may have no hash.
UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")
PIECE = 1 << 20
LISTED = 200


def intact(facts: Facts) -> Measured:
    """Every file of every installed distribution has the hash of its RECORD, which lists all of them.

    In an image that claims a lock, each locked distribution needs a RECORD; elsewhere only TensorFlow and what it
    requires are compared. Files that the facts state as removed are missing.
    """
    began = time.monotonic()
    compared, unrecorded = _split(facts)
    expected, problems = _expected(compared)
    problems += [f"{name} has no RECORD" for name in unrecorded if name in (facts.packages or {})]
    removed = _removed(compared, facts) if facts.removed else {}
    problems += [
        f"{path} is there, which the facts state as removed ({pattern})"
        for path, pattern in removed.items()
        if os.path.lexists(path)
    ]
    removed = {path: pattern for path, pattern in removed.items() if not os.path.lexists(path)}
    sizes = {path: _size(path) for path in expected.keys() - removed.keys()}
    # The largest first, so that no thread begins with one when the others are done.
    waiting = iter(sorted(sizes, key=sizes.__getitem__, reverse=True))
    count = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(count) as threads:
        for found in threads.map(lambda _: _differences(waiting, expected), range(count)):
            problems += found
    measured = {
        "distributions": len(compared), "files": len(sizes), "bytes": sum(sizes.values()),
        "removed": len(removed), "without_record": unrecorded, "seconds": round(time.monotonic() - began, 3),
    }  # fmt: skip
    if problems:
        raise CheckFailed(
            f"expected the files of {len(compared)} distributions as their RECORD lists them, found {len(problems)} "
            f"differences ({enumerated(sorted(problems))}): the disk or a later step damaged, replaced or removed "
            "them; pull or build the image again, or install the packages again",
            problems=sorted(problems)[:LISTED],
            **measured,
        )
    if not set(TENSORFLOW) & compared.keys():
        raise CheckSkipped("no distribution of TensorFlow has a RECORD, so there is nothing to compare with")
    return measured


def _split(facts: Facts) -> tuple[dict[str, Distribution], list[str]]:
    """Return the distributions to compare, and the names of those that have no RECORD."""
    chosen = around_tensorflow() if facts.packages is None else installed()
    recorded = {name: one for name, one in chosen.items() if (one.info / "RECORD").is_file()}
    return recorded, sorted(chosen.keys() - recorded.keys())


def _expected(compared: dict[str, Distribution]) -> tuple[Files, list[str]]:
    """Return the entries by the path of their file, and what is wrong with the RECORDs themselves.

    Two distributions may bring one file, as __init__.py of a common package; it is what either says.
    """
    expected: Files = {}
    problems = []
    for name, distribution in compared.items():
        try:
            entries = distribution.entries()
        except (OSError, ValueError) as error:
            problems.append(f"the RECORD of {name} cannot be read: {error}")
            continue
        own = [f"{distribution.info.name}/{one}" for one in UNHASHED]
        if own[0] not in {entry.path for entry in entries}:
            problems.append(f"the RECORD of {name} does not list itself: it is cut short")
        for entry in entries:
            if entry.path in own or _is_byte_code(entry):
                continue
            if entry.hash.partition("=")[0] not in HASHES:
                problems.append(f"the RECORD of {name} has no SHA-256 of {entry.path}")
                continue
            expected.setdefault(_place(distribution, entry), set()).add(entry)
    return expected, problems


def _is_byte_code(entry: Entry) -> bool:
    """Whether a file is made in the image, in the place of what a wheel brings; environment.read_only judges it."""
    return entry.path.endswith(".pyc") and ("__pycache__/" in entry.path or not entry.hash)


def _removed(compared: dict[str, Distribution], facts: Facts) -> dict[str, str]:
    """Return the files of locked packages that the facts state as removed, each with the pattern that it fits.

    A pattern is one of whole paths as RECORD has them, such as tensorflow/include/*. The facts of a variant have those
    of all releases, so one may fit no file of this one.
    """
    found = {}
    patterns = [(pattern, re.compile(fnmatch.translate(pattern)).match) for pattern in facts.removed or ()]
    for name in compared.keys() & (facts.packages or {}).keys():
        distribution = compared[name]
        with contextlib.suppress(OSError, ValueError):  # reported where the files are compared
            for entry in distribution.entries():
                path = os.path.normpath(entry.path)  # pip writes ./clang for what a wheel has in NAME.data/platlib
                pattern = next((pattern for pattern, fits in patterns if fits(path)), None)
                if pattern:
                    found[_place(distribution, entry)] = pattern
    return found


def _place(distribution: Distribution, entry: Entry) -> str:
    return os.path.normpath(f"{_real(distribution.folder)}/{entry.path}")


@lru_cache(maxsize=None)
def _real(folder: Path) -> str:
    return os.path.realpath(folder)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:  # reported where the files are compared
        return 0


def _differences(waiting: Iterator[str], expected: Files) -> list[str]:
    """Compare the files that no other thread has taken, and return what is wrong with them.

    A future for each file would cost as much as a small file's hash, and so would a buffer.
    """
    buffer = memoryview(bytearray(PIECE))
    problems = ((path, _difference(path, expected[path], buffer)) for path in waiting)
    return [f"{path} {problem}" for path, problem in problems if problem]


def _difference(path: str, entries: Iterable[Entry], buffer: memoryview) -> str | None:
    """Return how a file differs from each of these entries, or None."""
    sizes = {entry.size for entry in entries if entry.size}
    stated = {entry.hash for entry in entries}
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            size = os.fstat(file.fileno()).st_size
            if sizes and str(size) not in sizes:
                return f"has {size} bytes, not {' or '.join(sorted(sizes))}"
            found = {_hash(file, algorithm, buffer) for algorithm in {one.partition("=")[0] for one in stated}}
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found & stated:
        return None
    return f"has the hash {', '.join(sorted(found))}, not {', '.join(sorted(stated))}"


def _hash(file: FileIO, algorithm: str, buffer: memoryview) -> str:
    """Return the hash of a file as RECORD writes it. `hashlib` lets other threads run meanwhile."""
    state = hashlib.new(algorithm)
    file.seek(0)
    while True:
        count = file.readinto(buffer)
        if not count:
            break
        state.update(buffer[:count])
    return f"{algorithm}={base64.urlsafe_b64encode(state.digest()).rstrip(b'=').decode()}"

"""Find the file of a supplied wheel: a path, or an address that is downloaded once and verified."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import FileError, HashMismatchError, NetworkError, UsageError
from tfimg.core.files import hash_file, wait_for_lock
from tfimg.index.client import MAX_WHEEL, UNREADABLE, Index, make_network_error
from tfimg.index.network import LimitExceeded, read_chunks

MAX_RESUMES = 20
"""Requests for one wheel, however little each of them brings."""

GRACE_SECONDS = 60.0
MIN_BYTES_PER_SECOND = 10_000
"""Lowest average rate of a response after the grace seconds."""

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Errors of writing a file, which no connection has."""

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
        """The file name of the wheel."""
        return self.file.name if self.file else unquote(urlsplit(self.url or "").path).rpartition("/")[2]


def parse_address(text: str) -> WheelAddress:
    """Parse FILE-or-URL#sha256=…; an address needs the hash. Raises `UsageError`."""
    place, mark, fragment = text.partition("#")
    match = _SHA256.fullmatch(fragment.lower())
    shown = re.sub(r"//[^/@]*@", "//", place)  # without a password
    if mark and not match:
        raise UsageError(
            f"--wheel {shown}: what follows # is not sha256= and 64 hexadecimal digits.",
            next_step="`sha256sum FILE` prints the digits.",
        )
    sha256 = match[1] if match else None
    is_url = re.match(r"[a-z][a-z0-9+.-]*://", place, re.IGNORECASE) is not None
    address = WheelAddress(file=None if is_url else Path(place), url=place if is_url else None, sha256=sha256)
    if is_url and urlsplit(place).scheme not in ("http", "https"):
        raise UsageError(
            f"--wheel {shown} is not an address of https or http.", next_step="Name such an address, or a file."
        )
    if is_url and sha256 is None:
        raise UsageError(
            f"--wheel {shown} has no hash: anybody who changes the file would change the image.",
            next_step="Append #sha256= and the hash that the wheel's publisher states.",
        )
    if not _FILENAME.fullmatch(address.name):
        raise UsageError(
            f"--wheel {shown} is not a wheel: its name does not end in .whl, or has other characters than a wheel's.",
            next_step="Name a file such as tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl.",
        )
    return address


def find_wheel(
    address: WheelAddress, cache: Path, open_index: Callable[[str], Index], on_download: Callable[[str], None]
) -> Path:
    """Return the file of a wheel, downloaded into `cache` if it is not there yet.

    Raises `FileError` for a missing file, `HashMismatchError` for another one, `NetworkError`, and `OSError` for a full
    disk.
    """
    if address.file:
        return _find_file(address.file, address.sha256)
    folder = cache / str(address.sha256)
    wheel = folder / address.name
    with wait_for_lock(cache / "locks" / str(address.sha256), raise_if_cancelled):
        if not wheel.is_file() or hash_file(wheel) != address.sha256:
            folder.mkdir(parents=True, exist_ok=True)
            on_download(address.name)
            partial = folder / "partial"
            _download(str(address.url), partial, open_index(str(address.url)))
            found = hash_file(partial)
            if found != address.sha256:
                partial.unlink()
                raise _mismatch(address.name, found, str(address.sha256))
            partial.replace(wheel)
    return wheel


def _find_file(file: Path, sha256: str | None) -> Path:
    if not file.is_file():
        raise FileError(f"--wheel {file} is not a file.", next_step="Name the file of a wheel, or its address.")
    if sha256 and (found := hash_file(file)) != sha256:
        raise _mismatch(file.name, found, sha256)
    return file.resolve()


def _mismatch(name: str, found: str, expected: str) -> HashMismatchError:
    return HashMismatchError(
        f"{name} has sha256 {found}, and --wheel names {expected}.",
        next_step="Compare both with what the wheel's publisher states; do not build until you know who changed it.",
    )


def _download(url: str, partial: Path, index: Index) -> None:
    """Write a file, from where an earlier download ended. Raises `NetworkError`, and `OSError` for a full disk."""
    what = urlsplit(url).path.rpartition("/")[2]
    for _ in range(MAX_RESUMES):
        before = partial.stat().st_size if partial.exists() else 0
        try:
            if _append(url, partial, before, index):
                return
        except requests.HTTPError as error:
            if error.response.status_code == requests.codes.requested_range_not_satisfiable and before:
                partial.unlink()  # of another file, or complete but for a crash
                continue
            raise make_network_error(f"the wheel {what}", error, source="its server") from None
        except UNREADABLE as error:
            if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                error.filename = str(partial)
                raise
            has_grown = partial.exists() and partial.stat().st_size > before
            if not has_grown or isinstance(error, LimitExceeded):
                raise make_network_error(f"the wheel {what}", error, source="its server") from None
    raise NetworkError(
        f"The connection was cut {MAX_RESUMES} times while {what} was downloaded.",
        next_step="Run the same command again: it continues where it was interrupted.",
    )


def _append(url: str, partial: Path, offset: int, index: Index) -> bool:
    """Write what a server sends from an offset on; return whether it was all of it."""
    with closing(index.get(url, {"Range": f"bytes={offset}-"} if offset else None)) as response:
        is_rest = response.status_code == requests.codes.partial_content
        if is_rest and not response.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
            raise ValueError(f"it answers another range than the one from {offset} on")
        start = offset if is_rest else 0
        length = response.headers.get("Content-Length", "")
        expected = start + int(length) if re.fullmatch(r"[0-9]{1,15}", length) else None
        if expected and expected > MAX_WHEEL:
            raise LimitExceeded(f"it has {expected} bytes, and at most {MAX_WHEEL} are allowed")
        with partial.open("r+b" if start else "wb") as sink:
            sink.seek(start)
            for chunk in read_chunks(response, GRACE_SECONDS, MIN_BYTES_PER_SECOND):
                raise_if_cancelled()
                if sink.tell() + len(chunk) > MAX_WHEEL:
                    raise LimitExceeded(f"it has more than {MAX_WHEEL} bytes")
                sink.write(chunk)
            return expected is None or sink.tell() >= expected

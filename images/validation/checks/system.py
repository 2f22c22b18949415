"""Settings of the container: writable folders, and shared memory."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed

if TYPE_CHECKING:
    from contract import Facts, Measured

MIB = 2**20
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - it is looked at
# Docker gives 64 MiB to a container that asks for nothing, Podman 62.5.
SHARED_MIB = 62
PROBE = b"tfimg" * 1000


def temporary(_facts: Facts) -> Measured:
    """The folder for temporary files exists, and a file written there reads back the same."""
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise CheckFailed(
            f"expected a writable folder for temporary files, found none ({error}): the root file system is read-only "
            "or /tmp belongs to another user; start the container with --tmpfs /tmp, or chmod 1777 /tmp"
        ) from None
    measured = {"folder": folder, "free_mib": _free_mib(folder), "root_read_only": read_only("/")}
    wanted = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - it is looked at
    if os.path.realpath(folder) != os.path.realpath(wanted):
        raise CheckFailed(
            f"expected temporary files in {wanted}, found them in {folder}: {wanted} is missing or not writable; start "
            "the container with --tmpfs /tmp, or chmod 1777 /tmp",
            **measured,
        )
    problem = writing_fails(folder)
    if problem is not None:
        raise CheckFailed(
            f"expected to write to {folder}, found {problem.strerror}: it is full or broken; give it more room "
            "(--tmpfs /tmp:size=1g)",
            **measured,
        )
    return measured


def home(_facts: Facts) -> Measured:
    """HOME can be written to, or is on a file system that is read-only on purpose."""
    return judge_home(str(Path("~").expanduser()))


def judge_home(folder: str) -> Measured:
    """The verdict on a home folder."""
    problem = writing_fails(folder)
    measured = {"home": folder, "uid": os.geteuid(), "writable": problem is None}
    if problem is None or problem.errno == errno.EROFS:
        return measured
    raise CheckFailed(
        f"expected a HOME that uid {os.geteuid()} can write to, found {folder} ({problem.strerror}{_owner(folder)}): "
        "downloads, caches and `pip install` end there; the image gave it to another user, or the container was "
        "started with another --user: chown it, or start with -e HOME=/tmp",
        **measured,
    )


def shared_memory(_facts: Facts) -> Measured:
    """Shared memory has at least the 62 MiB that every engine gives, and can be written to."""
    return judge_shared_memory(SHARED_MEMORY)


def judge_shared_memory(folder: str) -> Measured:
    """The verdict on a folder for shared memory."""
    problem = writing_fails(folder)
    if problem is not None:
        raise CheckFailed(
            f"expected to write to {folder}, found {problem.strerror}: the container was started without it, or it is "
            "full; start it with --shm-size 1g",
            folder=folder,
        )
    size = os.statvfs(folder)
    measured = {"mib": round(size.f_blocks * size.f_frsize / MIB, 1), "free_mib": _free_mib(folder)}
    if measured["mib"] < SHARED_MIB:
        raise CheckFailed(
            f"expected at least {SHARED_MIB} MiB of {folder}, found {measured['mib']} MiB: the container was started "
            "with a small --shm-size, and NCCL and workers that share memory end with bus errors; start it with "
            "--shm-size 1g or --ipc host",
            **measured,
        )
    return measured


def writing_fails(folder: str) -> OSError | None:
    """What keeps this user from writing a file there; None: nothing. Nothing stays behind."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(PROBE)
            file.seek(0)
            if file.read() != PROBE:
                return OSError(errno.EIO, os.strerror(errno.EIO))
    except OSError as error:
        return error
    return None


def read_only(folder: str) -> bool:
    """Whether a folder's file system is mounted read-only."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _free_mib(folder: str) -> int:
    size = os.statvfs(folder)
    return size.f_bavail * size.f_frsize // MIB


def _owner(folder: str) -> str:
    try:
        status = Path(folder).stat()
    except OSError:
        return ""
    return f", owned by uid {status.st_uid}, mode {status.st_mode & 0o7777:o}"

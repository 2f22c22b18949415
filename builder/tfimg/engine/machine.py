"""What the machine of an engine offers: emulators, disk space, candidates of builds.

A build holds the lock of a file for its candidate. The kernel releases the lock when the process ends, however it ends:
a file that can be locked is that of a killed build, and the next build on the same engine removes what it left there.
"""

import hashlib
import os
import secrets
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tfimg.core.errors import EngineError, EngineSetupError, EngineUnavailable
from tfimg.core.events import InfoEvent, OnEvent
from tfimg.core.failures import disk_error
from tfimg.core.files import lock_existing, wait_for_lock
from tfimg.core.process import CommandFailed, clean_up, last_line, run
from tfimg.engine.interface import Capabilities, Engine
from tfimg.matrix.devices import DEVICES, Device
from tfimg.matrix.schema import PROCESSORS, Platform

_BY_ROOT = "" if getattr(os, "geteuid", lambda: None)() == 0 else " as root"  # Windows has no root
INSTALL_ENGINE = f"`tfimg engine up --install`{_BY_ROOT}"
EMULATE = f"`tfimg engine up --emulate`{_BY_ROOT} installs an emulator"

BINFMT = Path("proc/sys/fs/binfmt_misc")
"""Where the kernel's registrations are (Documentation/admin-guide/binfmt-misc.rst)."""

MACHINES: Mapping[Platform, int] = {"linux/amd64": 62, "linux/arm64": 183}
"""`e_machine` in the header of a program (elf.h)."""

EXIT: Mapping[Platform, bytes] = {
    "linux/amd64": bytes.fromhex("31ff b83c000000 0f05"),  # xor edi, edi; mov eax, 60; syscall
    "linux/arm64": bytes.fromhex("000080d2 a80b80d2 010000d4"),  # mov x0, 0; mov x8, 93; svc 0
}
"""The system call `exit(0)`."""

ADDRESS, HEADERS = 0x400000, 120  # where the program is loaded, and the size of its headers


class PrivateEngine:
    """The private engine of a state folder: all of its files are in `folder`, and `host` is its `DOCKER_HOST`."""

    def __init__(self, state: Path) -> None:
        self.folder = state / "engine"
        self.socket = self.folder / "docker.sock"
        self.host = f"unix://{self.socket}"
        self.settings = self.folder / "daemon.json"
        self.log = self.folder / "dockerd.log"

    def pid(self) -> int | None:
        """Return the process of its daemon; None if it does not run."""
        try:
            pid = int((self.folder / "dockerd.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        # Process numbers are used again: only a daemon with this socket is ours.
        return pid if self.host.encode() in command else None


def find_private_engine(host: str) -> PrivateEngine | None:
    """Return the engine of tfimg's at a host, running or stopped, whichever user started it; None for another one."""
    socket = Path(os.path.normpath(host.removeprefix("unix://")))
    engine = PrivateEngine(socket.parent.parent)
    return engine if host.startswith("unix://") and socket == engine.socket and engine.settings.exists() else None


def describe_starter(host: str) -> str:
    """Return who started the engine at a host, in a few words."""
    if (engine := find_private_engine(host)) is None:
        return "not started by tfimg"
    number = engine.settings.stat().st_uid
    return "private" if number == os.geteuid() else f"tfimg's engine, started by {_user_name(number, f'user {number}')}"


def _user_name(number: int, unknown: str) -> str:
    import pwd  # Windows, where some commands run, has none

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return unknown


def may_use(host: str) -> bool:
    """Return False where this user may not use an engine's socket, which is there."""
    socket = Path(host.removeprefix("unix://"))
    try:
        return not (host.startswith("unix://") and socket.exists() and not os.access(socket, os.R_OK | os.W_OK))
    except OSError:  # no file can have this name
        return True


def describe_access(host: str) -> str:
    """Return what this user does to use the engine at a host, which does not answer."""
    if may_use(host):
        if find_private_engine(host):
            return f"Start it: `tfimg engine up`{_BY_ROOT}."
        return f"Start it; or unset DOCKER_HOST and let {INSTALL_ENGINE} set one up."
    number = Path(host.removeprefix("unix://")).stat().st_gid
    if number == 0:
        return "Its socket is for root alone: run the command as root, or give the socket a group of its users."
    import grp

    try:
        group = grp.getgrgid(number).gr_name
    except KeyError:
        group = str(number)
    return (
        f"As root: `usermod -aG {group} {_user_name(os.geteuid(), 'USER')}`, then log in again. Members of "
        "that group have the rights of root."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceProblem:
    """Why programs of an ordinary user get no user namespace with a range of IDs, and what changes that."""

    what: str
    next_step: str


MIN_RANGE = 65536  # IDs of one user's range: as many as useradd gives (SUB_UID_COUNT, login.defs(5))

_SWITCHES = (
    ("proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
)
"""File of the kernel, its value where unprivileged user namespaces are off, and the command that allows them."""


def find_namespace_problem(
    environ: Mapping[str, str], *, root: Path = Path("/"), user: int | None = None
) -> NamespaceProblem | None:
    """Return what keeps an ordinary user from bases of Debian packages; None for root, or if nothing is known to.

    In the order in which mmdebstrap looks; `user` is a number, None for this process's.
    """
    user = os.geteuid() if user is None else user
    if user == 0:
        return None
    for name, off, command in _SWITCHES:
        with suppress(OSError):
            if (root / name).read_text().strip() == off:
                return NamespaceProblem(
                    what=f"unprivileged user namespaces are off (/{name} is {off})", next_step=f"As root: `{command}`."
                )
    path = f"{environ.get('PATH', '')}:/usr/sbin:/sbin"
    if missing := [program for program in ("newuidmap", "newgidmap") if not shutil.which(program, path=path)]:
        return NamespaceProblem(
            what=f"{missing[0]} is not installed, of Debian's package uidmap",
            next_step="As root: `apt-get install uidmap`.",
        )
    name = _user_name(user, str(user))
    for file in ("etc/subuid", "etc/subgid"):
        try:
            lines = [line.split(":") for line in (root / file).read_text(errors="replace").splitlines()]
        except OSError:
            lines = []
        counts = [
            int(fields[2]) for fields in lines if len(fields) == 3 and fields[0] == name and fields[2].isdecimal()
        ]
        if max(counts, default=0) < MIN_RANGE:
            return NamespaceProblem(
                what=f"/{file} has no range of {MIN_RANGE} IDs for {name}",
                next_step=f"As root: `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}`, with a "
                "range that no other user has.",
            )
    return None


def make_probe(platform: Platform) -> bytes:
    """Return the smallest program of a platform: it exits with 0."""
    code = EXIT[platform]
    entry, size = ADDRESS + HEADERS, HEADERS + len(code)
    identification = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack("<HHIQQQIHHHHHH", 2, MACHINES[platform], 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, ADDRESS, ADDRESS, size, size, 0x10000)
    return identification + header + segment + code


def find_platform(machine: str) -> Platform | None:
    """Return the platform of a processor, as the kernel or Docker names it."""
    return next((name for name, known in PROCESSORS.items() if machine in (known, name.partition("/")[2])), None)


def runs_here(platform: Platform) -> bool:
    """Return whether this machine runs programs of a platform, natively or emulated."""
    with tempfile.TemporaryDirectory(prefix="tfimg-probe-") as folder:
        probe = Path(folder, "probe")
        probe.write_bytes(make_probe(platform))
        probe.chmod(0o755)
        try:
            run([str(probe)], env={})
        except (OSError, CommandFailed):
            return False
    return True


def is_installed(platform: Platform, root: Path = Path("/")) -> bool:
    """Return whether QEMU for a platform is installed, with what to register of it: a restart loses registrations."""
    try:
        line = _read_registration(platform, root)
    except (OSError, StopIteration):
        return False
    return Path(root, line.rpartition(":")[0].rpartition(":")[2].lstrip("/")).exists()


def register(platform: Platform, environ: Mapping[str, str], root: Path = Path("/")) -> None:
    """Register the installed QEMU with the kernel until the next start, where no service of the system does it.

    Raises `EngineSetupError`.
    """
    name = f"qemu-{PROCESSORS[platform]}"
    folder = root / BINFMT
    try:
        line = _read_registration(platform, root)
        if not (folder / "register").exists():
            run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(folder)], env=environ)
        if (folder / name).exists():
            (folder / name).write_text("-1")  # an earlier registration, of an emulator that is gone
        # The flag F: the kernel opens the emulator now, so that containers need none.
        start, _, flags = line.rpartition(":")
        (folder / "register").write_text(line if "F" in flags else f"{start}:{flags}F")
    except (OSError, StopIteration, CommandFailed) as error:
        reason = last_line(error.stderr) if isinstance(error, CommandFailed) else error
        what = reason or f"{_registration_file(platform, root)} has no registration"
        raise EngineSetupError(
            f"QEMU could not be registered for programs of {platform}: {what}.",
            next_step="The kernel needs binfmt_misc, and the machine's first namespace of users: run it on the "
            f"machine itself, not in a container. Or use a machine of {platform}.",
        ) from None


def _registration_file(platform: Platform, root: Path) -> Path:
    return root / f"usr/lib/binfmt.d/qemu-{PROCESSORS[platform]}.conf"


def _read_registration(platform: Platform, root: Path) -> str:
    """Return the line that registers QEMU (binfmt.d(5)). Raises `OSError`, or `StopIteration` without one."""
    lines = _registration_file(platform, root).read_text().splitlines()
    return next(line for line in lines if line.startswith(":"))


def check_disk_space(capabilities: Capabilities, device: Device) -> None:
    """Raise `DiskSpaceError` when the engine's disk is known to be too full."""
    free, needed = capabilities.free_bytes, required_disk_bytes(device, packed=capabilities.accepts_layers)
    if free is not None and free < needed:
        docker = f"docker --host {capabilities.host}"
        raise disk_error(
            "A build in the engine",
            Path(capabilities.data_root),
            needed=needed,
            free=free,
            next_step=f"Free some with `{docker} builder prune --all` (build cache), `{docker} image prune` (unnamed "
            f"images) or `{docker} image rm NAME` (of `{docker} image ls`), or use an engine with more space.",
        )


def required_disk_bytes(device: Device, *, packed: bool) -> int:
    """Return the free bytes that a build needs; `packed`: it receives ready layers."""
    return DEVICES[device].packed_bytes if packed else DEVICES[device].build_bytes


CANDIDATE = "tfimg/candidate"  # repository of the candidates

OUTLIVED_SECONDS = 24 * 3600
"""Time in which the build of a killed process may still name its image: the program that builds it may live on."""


@contextmanager
def open_candidate(folder: Path, identifier: str, engine: Engine, host: str, on_event: OnEvent) -> Iterator[str]:
    """Yield a candidate's name, which is removed from the engine at the end of the block.

    Before, removes those of killed builds on the engine at `host`, and no others: they belong to builds that live, and
    to other users. `folder` has the locks. Of an engine that is lost, the next build removes the candidate.
    """
    locks = _locks_of(folder, host)
    removed = []
    for lock in sorted(locks.glob("*")):
        # Another build may remove the same; what the engine refuses is tried again by the next build.
        with suppress(FileNotFoundError, EngineError), lock_existing(lock) as is_free:
            killed = f"{CANDIDATE}:{lock.name}"
            if not is_free:
                continue
            if engine.find_digest(killed) is not None:
                engine.remove_with_containers(killed)
                removed.append(killed)
            elif time.time() - lock.stat().st_mtime < OUTLIVED_SECONDS:
                continue
            lock.unlink()
    if removed:
        on_event(InfoEvent(text=f"Removed what a killed build left behind: {', '.join(removed)}"))
    name = candidate_name(identifier)
    file = locks / name.rpartition(":")[2]
    with wait_for_lock(file, on_wait=lambda: None):
        try:
            yield name
        finally:
            with suppress(EngineError, EngineUnavailable):
                clean_up(partial(engine.remove, name))
                file.unlink()


def list_candidates(folder: Path, host: str) -> Iterator[str]:
    """Yield the names of the candidates on the engine at `host` whose locks are in `folder`."""
    yield from (f"{CANDIDATE}:{lock.name}" for lock in sorted(_locks_of(folder, host).glob("*")))


def _locks_of(folder: Path, host: str) -> Path:
    return folder / hashlib.sha256(host.encode()).hexdigest()[:16]


def candidate_name(identifier: str) -> str:
    """Return a name for an image that no other build uses."""
    return f"{CANDIDATE}:{identifier}-{secrets.token_hex(4)}"


def remove_name(engine: Engine, name: str) -> None:
    """Remove a name from the engine; ignore an engine that cannot, so that the error before it stays visible."""
    with suppress(EngineError, EngineUnavailable):
        engine.remove(name)

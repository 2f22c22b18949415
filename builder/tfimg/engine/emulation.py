"""Programs of other platforms: find out whether this machine runs them, and register an emulator with its kernel."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tfimg.core.errors import EngineSetupError, NoEmulation
from tfimg.core.process import CommandFailed, last_line, run
from tfimg.matrix.schema import PROCESSORS, Platform

EMULATE = "`tfimg engine up --emulate` installs an emulator"

BINFMT = Path("proc/sys/fs/binfmt_misc")
"""Where the kernel's registrations are (Documentation/admin-guide/binfmt-misc.rst)."""

MACHINES: Mapping[Platform, int] = {"linux/amd64": 62, "linux/arm64": 183}
"""`e_machine` in the header of a program (elf.h)."""

EXIT: Mapping[Platform, bytes] = {
    "linux/amd64": bytes.fromhex("31ff b83c000000 0f05"),  # xor edi, edi; mov eax, 60; syscall
    "linux/arm64": bytes.fromhex("000080d2 a80b80d2 010000d4"),  # mov x0, 0; mov x8, 93; svc 0
}
"""The system call `exit(0)`."""

ADDRESS, HEADERS = 0x400000, 120
"""Where the program is loaded, and the size of its headers."""


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


def require_runs_here(platform: Platform, *, what: str, alternative: str) -> None:
    """Raise `NoEmulation` if this machine does not run a platform's programs, which `what` needs."""
    if not runs_here(platform):
        raise NoEmulation(
            f"{what} runs programs of {platform}, and this machine does not.", next_step=f"{EMULATE}; {alternative}"
        )


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
        (folder / "register").write_text(_with_fixed_interpreter(line))
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


def _with_fixed_interpreter(line: str) -> str:
    """Return a registration with the flag F: the kernel opens the emulator now, so that containers need none."""
    start, _, flags = line.rpartition(":")
    return line if "F" in flags else f"{start}:{flags}F"

"""Detect an engine that has lost the network interface of its default bridge, without which no build starts.

A second daemon in the same network namespace removes docker0 when it ends. The first one still lists its network
`bridge`, and fails when it attaches a container.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from pathlib import Path

DAEMON = "dockerd"

SYSTEM_PID_FILE = Path("/run/docker.pid")
"""The distribution's engine, whose socket systemd may have opened."""


def daemon_pid(host: str, pid_file: Path = SYSTEM_PID_FILE) -> int | None:
    """Return the process of the daemon behind a socket on this machine; None if it is unknown.

    The process may be a forwarder, as with Docker Desktop, whose interfaces are not the daemon's.
    """
    if not host.startswith("unix://"):
        return None
    pids = [_listener(host.removeprefix("unix://"))]
    if host in ("unix:///var/run/docker.sock", "unix:///run/docker.sock"):
        pids.append(_read(pid_file))
    return next((int(pid) for pid in pids if pid.isdecimal() and _read(Path(f"/proc/{pid}/comm")) == DAEMON), None)


def _listener(path: str) -> str:
    """Return the id of the process that opened a Unix socket (SO_PEERCRED, unix(7)); empty if it is unknown."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        size = struct.calcsize("3i")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return str(struct.unpack("3i", credentials)[0])
    return ""


def _read(file: Path) -> str:
    with suppress(OSError):
        return file.read_text().strip()
    return ""


def list_interfaces(pid: int) -> frozenset[str]:
    """Return the network interfaces that a process sees; none where they cannot be read."""
    lines = _read(Path(f"/proc/{pid}/net/dev")).splitlines()
    return frozenset(line.partition(":")[0].strip() for line in lines if ":" in line)


def missing_bridge(bridge: str | None, present: frozenset[str]) -> str | None:
    """Return the engine's bridge if it is not among the interfaces; None if it is, or nothing is known."""
    return bridge if bridge and present and bridge not in present else None


def suggest_bridge_repair(bridge: str, *, private: bool) -> str:
    """Return the next step for an engine without its bridge."""
    restart = "`tfimg engine down`, then `tfimg engine up`" if private else "`systemctl restart docker`, as root"
    return f"Restart the engine, which makes {bridge} again: {restart}. Running containers end."

"""Listening sockets: no process of a new container has one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contract import CheckFailed, claimed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract import Facts, Measured

PROC = Path("/proc")
# Linux' states of a socket (include/net/tcp_states.h): TCP_LISTEN, and TCP_CLOSE for UDP that is bound to no peer.
WAITING = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}


class Socket(NamedTuple):
    """A socket that waits: protocol, port, inode."""

    protocol: str
    port: int
    inode: str


def nothing(facts: Facts) -> Measured:
    """No process of the container listens on a port."""
    claimed(facts.identifier, "an image, and a machine may serve")
    return judge(PROC)


def judge(proc: Path) -> Measured:
    """The verdict on a /proc.

    With --network host the host's ports are seen too, and on a network of Docker's its name server: sockets of
    processes outside the container. They count only where some process hides its files.
    """
    sockets = [socket for protocol in WAITING for socket in waiting(protocol, _table(proc, protocol))]
    owners, hidden = _owners(proc) if sockets else ({}, [])
    own = [socket for socket in sockets if socket.inode in owners or hidden]
    measured = {"listening": len(own), "outside": len(sockets) - len(own)}
    if own:
        named = [
            f"{socket.protocol} port {socket.port} ({owners.get(socket.inode, 'a process of another user')})"
            for socket in own
        ]
        raise CheckFailed(
            f"expected no listening socket, found {', '.join(named)}: the image or its entry point starts a server; "
            "start it by a command of its own",
            sockets=named,
            **measured,
        )
    return measured


def waiting(protocol: str, table: str) -> Iterable[Socket]:
    """The waiting sockets of a table such as /proc/net/tcp: address, peer, state; the tenth column is the inode."""
    for line in table.splitlines()[1:]:
        columns = line.split()
        if len(columns) > 9 and columns[3] == WAITING[protocol]:
            yield Socket(protocol, int(columns[1].rpartition(":")[2], 16), columns[9])


def _table(proc: Path, protocol: str) -> str:
    file = proc / "net" / protocol
    # A kernel without IPv6 has no table for it.
    return file.read_text() if file.exists() else ""


def _owners(proc: Path) -> tuple[dict[str, str], list[str]]:
    """Command of the process that has a socket, by inode; and the processes that hide what they have."""
    owners, hidden = {}, []
    for process in (entry for entry in proc.iterdir() if entry.name.isdigit()):
        try:
            for descriptor in (process / "fd").iterdir():
                target = os.readlink(str(descriptor))  # noqa: PTH115 - Path has it since Python 3.9
                if target.startswith("socket:["):
                    owners[target[len("socket:[") : -1]] = _command(process)
        except PermissionError:
            hidden.append(process.name)
        except OSError:
            continue
    return owners, hidden


def _command(process: Path) -> str:
    return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()

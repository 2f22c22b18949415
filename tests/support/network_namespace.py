"""Other machines, as far as a network goes: namespaces of this one, each at the end of a cable of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A namespace that is reached at `address`, and reaches us at `host`."""

    name: str
    host: str
    address: str

    def program(self, program: str, folder: Path) -> str:
        """A program that runs another one in there. Not `ip netns exec`: that mounts a /sys without control groups."""
        start = folder / f"in-{self.name}"
        start.write_text(f'#!/bin/sh\nexec nsenter --net=/run/netns/{self.name} {program} "$@"\n')
        start.chmod(0o755)
        return str(start)

    def unplug(self) -> None:
        """Pull the cable at the far end: nothing answers, not even to refuse, and the way there stays."""
        ip("-netns", self.name, "link", "set", "eth0", "down")


def ip(*arguments: str) -> str:
    """Plain `ip`."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


@contextmanager
def machine(number: int) -> Iterator[Machine]:
    """One for as long as the block lasts, in a private network of two addresses."""
    name, cable, network = f"tfimg-{os.getpid()}-{number}", f"tfi{os.getpid()}n{number}", f"10.213.{number}"
    try:
        ip("netns", "add", name)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{network}.1/30", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-netns", name, "address", "add", f"{network}.2/30", "dev", "eth0")
        ip("-netns", name, "link", "set", "eth0", "up")
        ip("-netns", name, "link", "set", "lo", "up")
        yield Machine(name=name, host=f"{network}.1", address=f"{network}.2")
    finally:
        # Whatever still runs in there was started in there, by us: an engine that was killed leaves some behind.
        for pid in subprocess.run(
            ["ip", "netns", "pids", name], capture_output=True, text=True, check=False
        ).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "link", "delete", cable], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

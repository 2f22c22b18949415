"""A network of the benchmark's own, so that its engines leave the machine's bridge and firewall chains alone.

Engines that share a network also share the chains that each of them flushes when it starts. In a network namespace with
one link to the machine, an engine has its own bridge, its own loopback and its own chains.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.images.failure import CannotMeasure
from tfimg.core.process import CommandFailed, run

NAME = "tfimg-bench"
OUTSIDE, INSIDE = "tfbench0", "tfbench1"
GATEWAY, ADDRESS, SUBNET = "10.213.77.1", "10.213.77.2", "10.213.77.0/30"
"""Of the link's two ends; the machine reaches what listens inside at the second."""

ENTER = ("nsenter", f"--net=/run/netns/{NAME}")
"""Begins a command line that runs inside. Not `ip netns exec`: it hides the control groups, which engines need."""

IDLE = "idle"
UNCONNECTED = (f"--bridge={IDLE}", "--iptables=false", "--ip6tables=false")
"""Options of an engine beside another one. It must have a bridge: with `none`, an engine deletes the other's."""

UP = (
    f"ip netns add {NAME}",
    f"ip link add {OUTSIDE} type veth peer name {INSIDE} netns {NAME}",
    f"ip address add {GATEWAY}/30 dev {OUTSIDE}",
    f"ip link set {OUTSIDE} up",
    f"ip -n {NAME} address add {ADDRESS}/30 dev {INSIDE}",
    f"ip -n {NAME} link set {INSIDE} up",
    f"ip -n {NAME} link set lo up",
    f"ip -n {NAME} link add {IDLE} type bridge",
    f"ip -n {NAME} route add default via {GATEWAY}",
)
RULES = (
    f"-t nat {{}} POSTROUTING -s {SUBNET} ! -o {OUTSIDE} -j MASQUERADE",
    f"-t filter {{}} FORWARD -i {OUTSIDE} -j ACCEPT",
    f"-t filter {{}} FORWARD -o {OUTSIDE} -j ACCEPT",
)
"""Of iptables; a running engine's policy for FORWARD is DROP, so they go before its rules."""


@contextmanager
def alone(lock: Path = Path("/run/tfimg-bench.lock")) -> Iterator[None]:
    """Hold off a second benchmark. Raises `CannotMeasure` where one runs, or where this is not root."""
    with ExitStack() as stack:
        try:
            held = stack.enter_context(lock.open("a"))
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotMeasure("Another benchmark of image builds is running on this machine.") from None
        except PermissionError:
            raise CannotMeasure("The benchmark starts engines of its own; run it as root.") from None
        yield


@contextmanager
def namespace() -> Iterator[None]:
    """The network, for as long as the block lasts. Raises `CannotMeasure` where it cannot be made."""
    if missing := [program for program in ("ip", "iptables", "nsenter", "dockerd") if not shutil.which(program)]:
        raise CannotMeasure(f"{', '.join(missing)} cannot be found; the benchmark starts engines of its own, as root.")
    remove()
    try:
        for line in UP:
            run(line.split())
        for rule in RULES:
            run(["iptables", *rule.format("-I").split()])
        forwarding = Path("/proc/sys/net/ipv4/ip_forward")
        if forwarding.read_text().strip() != "1":
            forwarding.write_text("1")
    except (CommandFailed, OSError) as error:
        remove()
        raise CannotMeasure(f"No network for the benchmark's engines: {error}") from None
    try:
        yield
    finally:
        remove()


def remove() -> None:
    """Take everything of it away; what is not there is no mistake."""
    lines = [f"ip netns delete {NAME}", f"ip link delete {OUTSIDE}"]
    for line in [*lines, *(f"iptables {rule.format('-D')}" for rule in RULES)]:
        with suppress(CommandFailed):
            run(line.split())

"""An engine without its bridge: told from the interfaces of the daemon's network namespace."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, capabilities
from tfimg.engine.docker.bridge import DAEMON, daemon_pid, list_interfaces, missing_bridge


def test_the_names_of_interfaces_are_read() -> None:
    assert list_interfaces(os.getpid()) == {name for _, name in socket.if_nameindex()}
    assert list_interfaces(0) == frozenset(), "no such process"


@pytest.mark.parametrize(
    ("bridge", "present", "missing"),
    [
        ("docker0", {"lo", "docker0"}, None),
        ("docker0", {"lo", "docker01"}, "docker0"),
        ("br-own", {"lo", "docker0"}, "br-own"),
        (None, {"lo"}, None),
        ("docker0", set(), None),
    ],
)
def test_a_bridge_is_missing_where_the_daemon_sees_others_only(
    bridge: str | None, present: set[str], missing: str | None
) -> None:
    assert missing_bridge(bridge, frozenset(present)) == missing


def test_a_daemon_is_found_by_its_socket_or_its_pid_file_and_nothing_else_is_taken_for_one(
    tmp_path: Path,
) -> None:
    pid_file = tmp_path / "docker.pid"
    pid_file.write_text(f"{os.getpid()}\n")
    assert daemon_pid("tcp://far:1", pid_file) is None
    assert daemon_pid(f"unix://{tmp_path}/none", pid_file) is None
    comm = Path("/proc/self/comm")
    before = comm.read_text()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        assert daemon_pid(f"unix://{tmp_path}/s", pid_file) is None, "this process is no daemon"
        comm.write_text(DAEMON)
        try:
            assert daemon_pid(f"unix://{tmp_path}/s", pid_file) == os.getpid()
        finally:
            comm.write_text(before)


def test_engine_status_says_what_is_missing_and_how_to_get_it_back(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    environment.docker = FakeEngine(found=replace(capabilities(), missing_bridge="docker0"))
    (line,) = [line for line in tfimg("engine", "status").lines if line.startswith("network ")]
    assert line == (
        "network its bridge docker0 is missing. Restart the engine, which makes docker0 again: `systemctl restart "
        "docker`, as root. Running containers end."
    )
    assert tfimg("engine", "status", "--json").json["missing_bridge"] == "docker0"
    environment.docker = FakeEngine()
    assert "bridge" not in tfimg("engine", "status").stdout

"""Ctrl-C once and again, at any moment: one message, exit code 130, soon, and nothing keeps running."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMANDS = {
    "a pipe": ("explain",),
    "a registry": ("verify", "{server}/team/tf:1", "--public-key", "{key}"),
    "threads of an index": ("matrix", "check", "2.15.1"),
    "a program": ("plan", "--tf", "2.15", "--with", "six"),
}
"""What a command waits for → its words."""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


def running_with(text: str) -> list[str]:
    """Return the programs in whose environment a text is."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in file.read_bytes():
                found.append((file.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass  # it has ended, or is of another user
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("what", "pause"),
    [
        *((what, pause) for what in COMMANDS for pause in (None, 0.02)),
        *((what, pause) for what in ("threads of an index", "a program") for pause in (0.0, 0.3)),
    ],
)
def test_ctrl_c_twice_ends_in_one_message_and_leaves_nothing(
    what: str, pause: float | None, server: socket.socket, key: str, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{server.getsockname()[1]}"
    words = [word.format(server=address, key=key) for word in COMMANDS[what]]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    env |= {"TFIMG_STATE": str(tmp_path / "state"), "UV_DEFAULT_INDEX": f"http://{address}/simple", "NO_PROXY": "*"}
    connections = []
    with subprocess.Popen(
        [sys.executable, "-m", "tfimg", *words], env={**env, "UV_INDEX": "", "UV_CACHE_DIR": str(tmp_path / "uv")},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        if what == "a pipe":
            time.sleep(1.5)
        else:
            connections.append(server.accept()[0])
        child.send_signal(signal.SIGINT)
        if pause is not None:
            time.sleep(pause)
            child.send_signal(signal.SIGINT)
        began = time.monotonic()
        try:
            stdout, stderr = child.communicate(timeout=30)
        finally:
            child.kill()
    for connection in connections:
        connection.close()
    assert (child.returncode, stdout) == (130, ""), stderr
    lines = [line for line in stderr.splitlines() if not line.startswith("Resolving ")]
    assert set(lines) == {"tfimg: Interrupted. Run the same command again."}
    assert time.monotonic() - began < 10
    assert running_with(str(tmp_path)) == []

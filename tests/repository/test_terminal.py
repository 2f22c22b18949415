"""A registry that would steer the terminal: what is printed on a terminal, in a pipe and for programs."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.hostile_text import HOSTILE, unprintable
from support.loopback_registry import Answer, Loopback, error, loopback
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.signing import OURS
from tfimg.project.services import Services

WORDS = HOSTILE.replace("\ud800", "") + "\ntfimg: verified\r\n"
OWN = re.compile(r"\x1b\[(?:\d+(?:;\d+)*)?[mKAhl]|\x1b\[\?25[hl]|\r")
"""Styles, cursor movements and line ends that rich and the terminal make."""

COMMANDS = {
    "verify": ("verify", "--public-key", "{key}"),
    "inspect": ("inspect",),
    "pull": ("pull", "--public-key", "{key}"),
    "save": ("save", "{folder}/bundle.tar", "--public-key", "{key}"),
}


class Refusing(Loopback):
    """A registry that refuses everything with hostile words, as JSON or as text."""

    as_text = False

    def answer(self, *_: Any) -> Answer:
        if self.as_text:
            return 403, {"Content-Type": "text/plain"}, WORDS.encode()
        return error(403, f"DENIED{WORDS}", WORDS)


@contextmanager
def refusing(as_text: bool) -> Iterator[Refusing]:
    with loopback() as registry:
        registry.__class__ = Refusing
        registry.as_text = as_text  # type: ignore[attr-defined]
        yield registry  # type: ignore[misc]


@pytest.fixture(scope="module", params=[False, True], ids=["JSON", "text"])
def refusal(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    with refusing(request.param) as registry:
        yield registry


class OnNetwork(TestEnvironment):
    """The test's environment, with real clients of registries."""

    registry = Services.registry


@pytest.fixture
def tfimg(tmp_path: Path) -> CliRunner:
    return CliRunner(home=tmp_path, services=OnNetwork())


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "TFIMG_STATE": str(tmp_path / "state"), "TERM": "xterm-256color"}


def arguments(command: str, address: str, tmp_path: Path) -> list[str]:
    key = tmp_path / "tfimg.pub"
    key.write_bytes(OURS.verifying_key.pem)
    name, *options = COMMANDS[command]
    return [name, f"{address}/team/tf:2.15", *(one.format(key=key, folder=tmp_path) for one in options)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refusal_is_one_escaped_line(command: str, refusal: Refusing, tmp_path: Path, tfimg: CliRunner) -> None:
    ended = tfimg(*arguments(command, refusal.address, tmp_path))
    assert ended.code == 15, ended.stderr
    assert r"\x1b]0;title\x07" in ended.stderr
    assert unprintable(ended.stdout + ended.stderr) == set()
    lines = ended.stderr.splitlines()
    assert [line for line in lines if line.startswith("tfimg:")] == lines[-1:]


def test_a_refusal_for_programs_is_json_with_every_character(
    refusal: Refusing, tmp_path: Path, tfimg: CliRunner
) -> None:
    ended = tfimg(*arguments("inspect", refusal.address, tmp_path), "--json")
    assert "\x1b]0;title\x07" in json.loads(ended.stdout)["message"]
    assert unprintable(ended.stdout + ended.stderr) == set()


def test_a_refusal_on_a_terminal_has_no_sequences_of_the_registry(tmp_path: Path, environ: dict[str, str]) -> None:
    with refusing(as_text=False) as registry:
        shown = on_a_terminal(arguments("verify", registry.address, tmp_path), environ)
    assert r"\x1b]0;title\x07" in shown
    assert unprintable(OWN.sub("", shown)) == set()


def test_an_image_on_a_terminal_has_no_sequences_of_the_registry(tmp_path: Path, environ: dict[str, str]) -> None:
    held = MemoryRegistry()
    names = ("tfimg.tensorflow", "tfimg.python", "org.opencontainers.image.title", "tfimg.identifier")
    put_image(held, "2.15", [{"a": b"1"}], config={"Labels": dict.fromkeys(names, WORDS), "Env": [f"A={WORDS}"]})
    with loopback() as registry:
        registry.blobs = held.blobs
        registry.tags = held.named
        registry.manifests = {
            digest: (manifest.media_type, manifest.content) for digest, manifest in held.manifests.items()
        }
        shown = on_a_terminal(["inspect", f"{registry.address}/team/tf:2.15"], environ)
    assert "gnp.exe" in shown
    assert unprintable(OWN.sub("", shown)) == set()


def on_a_terminal(argv: list[str], environ: dict[str, str]) -> str:
    """Run the program with a pseudo-terminal as its three standard streams; return what it wrote there."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "tfimg", *argv], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, **environ},
    )  # fmt: skip
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 60
    try:
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # EIO: the program has closed the terminal
                break
            if not piece:
                break
            shown += piece
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    return shown.decode()

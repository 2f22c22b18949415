"""The program as it is started: what it answers before its commands are even known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tfimg import __version__

VERSION = [sys.executable, "-m", "tfimg", "--version"]


def test_the_version_is_printed_without_loading_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *VERSION[1:]], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"tfimg {__version__}\n"
    assert "tfimg.cli\n" in done.stderr
    assert "argparse" not in done.stderr


def test_a_version_that_cannot_be_printed_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(VERSION, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 10
    assert done.stderr.startswith("tfimg: The disk is full")

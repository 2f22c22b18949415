"""The commands that choose an image answer on any system, from the wheel, without root, an engine and a compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Installed

ABSENT_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
ABSENT_NAMES = {
    "os": (
        "chown",
        "fchmod",
        "fork",
        "getegid",
        "geteuid",
        "getgid",
        "getgroups",
        "getuid",
        "killpg",
        "setsid",
        "statvfs",
        "uname",
    ),
    "signal": ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "pthread_sigmask"),
}
"""What Python's documentation says that Windows lacks."""

LIKE_WINDOWS = f"""
import importlib, runpy, subprocess, sys, tempfile
class Absent:
    def find_spec(name, path=None, target=None):
        if name in {ABSENT_MODULES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Absent)
for name in {ABSENT_MODULES!r}:
    sys.modules.pop(name, None)
for module, names in {ABSENT_NAMES!r}.items():
    for name in names:
        delattr(importlib.import_module(module), name)
runpy.run_module("tfimg", run_name="__main__")
"""

COMMANDS = {
    "tfimg --help": (0, "tfimg build --tf 2.15"),
    "tfimg resolve --tf 2.15 --python 3.12": (4, "--tf 2.16 --python 3.12  (2.16.2-cpu-py3.12)"),
    "tfimg resolve --tf 2.15": (0, "2.15.1-cpu-py3.11"),
    "tfimg which --gpu A100 --driver 535": (0, "tfimg/tensorflow:2.21-gpu"),
    "tfimg list 2.15": (0, "2.15.1-cuda12.2-py3.11"),
}
"""Command → exit code, and a part of what it prints."""


@pytest.mark.parametrize("command", COMMANDS)
def test_it_answers_without_what_windows_lacks(command: str, tmp_path: Path) -> None:
    """Text is read and written as UTF-8, too: Windows' own encoding has no ≥."""
    for _ in range(2):  # from the matrix, and from what the first run kept
        done = subprocess.run(
            [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", LIKE_WINDOWS,
             *command.split()[1:]],
            env={"USERPROFILE": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8"},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        code, part = COMMANDS[command]
        assert (done.returncode, part in done.stdout + done.stderr) == (code, True), done.stderr


@pytest.mark.full
def test_the_wheel_answers_with_no_other_program(installed: Installed, tmp_path: Path) -> None:
    """There is no engine, no compiler and no checkout on the path."""
    for command, (code, part) in COMMANDS.items():
        done = subprocess.run(
            [str(installed.program), *command.split()[1:]],
            env={"HOME": str(tmp_path), "PATH": "", "TFIMG_STATE": str(tmp_path)},
            cwd=installed.elsewhere, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, part in done.stdout + done.stderr) == (code, True), done.stderr

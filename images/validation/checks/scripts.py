"""Run programs that pip installed, by their scripts on PATH, in forks of this process.

A fork has imported TensorFlow already, which takes a new process two seconds.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

from contract import CheckFailed
from emulation import extend

# It takes 20 ms; the rest is for a cold disk.
PREFIX_SECONDS = 60


def script(name: str, absence: str) -> str:
    """The path of a program that pip installed. Raises CheckFailed without one, or when another Python runs it."""
    command = shutil.which(name)
    if command is None:
        raise CheckFailed(
            f"expected `{name}` on PATH, found none: {absence} or its scripts are elsewhere; lock it, and put its "
            "scripts on PATH"
        )
    with Path(command).open("rb") as stream:
        first = stream.readline().decode(errors="replace").strip()
    prefix = _prefix(first[2:]) if first.startswith("#!") else "no Python"
    if prefix != sys.prefix:
        raise CheckFailed(
            f"expected {command} to be run by the Python in {sys.prefix}, found {first!r}, that is {prefix}: the "
            "script belongs to another installation; reinstall it",
            command=command,
        )
    return command


def _prefix(interpreter: str) -> str:
    """Where the interpreter of a script is at home, or why that is not known."""
    try:
        command = [*interpreter.split(), "-c", "import sys; print(sys.prefix)"]
        return subprocess.run(command, capture_output=True, text=True, timeout=extend(PREFIX_SECONDS)).stdout.strip()
    except OSError as error:
        return str(error)


def run(command: str, *arguments: str) -> int:
    """Exit code of a Python script, run in this process as if it were the only one."""
    sys.argv = [command, *arguments]
    try:
        runpy.run_path(command, run_name="__main__")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def printed(command: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a Python script."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = run(command, *arguments)
    return code, output.getvalue()

"""The interpreter and the user that a container starts with."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, claimed
from emulation import extend

if TYPE_CHECKING:
    from contract import Facts, Measured

# Both children answer within a second on an idle machine; a minute leaves room for a cold disk.
CHILD_SECONDS = 60


def python(facts: Facts) -> Measured:
    """`python` and `pip` on PATH are this interpreter and its pip, in the claimed minor version."""
    expected = claimed(facts.python, "the Python version")
    measured = {"executable": sys.executable, "python": _python_on_path(), "pip": _pip_on_path()}
    found = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found != expected:
        raise CheckFailed(
            f"expected Python {expected}, found {found}: the base image differs; rebuild on the base of the row",
            **measured,
        )
    return {"version": sys.version.split()[0], **measured}


def user(facts: Facts) -> Measured:
    """The process is not root where that is claimed."""
    measured = {"uid": os.geteuid(), "gid": os.getegid(), "groups": os.getgroups(), "name": _user_name()}
    if claimed(facts.user, "the user") == "non-root" and os.geteuid() == 0:
        raise CheckFailed(
            "expected a user other than root, found uid 0: the image has no USER line or the container was "
            "started with --user root; set USER in the last stage",
            **measured,
        )
    return measured


def _python_on_path() -> str:
    command = _on_path("python")
    prefix = _output(command, "-c", "import sys; print(sys.prefix)")
    if Path(prefix).resolve() != Path(sys.prefix).resolve():
        raise CheckFailed(
            f"expected `python` on PATH to be the interpreter in {sys.prefix}, found the one in {prefix}: "
            f"{command} hides it; put {Path(sys.executable).parent} first on PATH",
            python=command,
        )
    return command


def _pip_on_path() -> str:
    command = _on_path("pip")
    answer = _output(command, "--version")
    # importlib.util.find_spec would ask setuptools too, which takes that for a run of pip, and does not import later.
    spec = PathFinder.find_spec("pip")
    own = Path(spec.origin).parent if spec and spec.origin else None
    found = re.search(r" from (.+) \(python ", answer)
    if not (own and found and Path(found.group(1)).resolve() == own.resolve()):
        raise CheckFailed(
            f"expected `pip` on PATH to run the pip of {sys.executable} ({own}), found {answer!r}: it would "
            "install for another Python; remove it or put this interpreter's scripts first on PATH",
            pip=command,
        )
    return command


def _on_path(name: str) -> str:
    command = shutil.which(name)
    if command is None:
        raise CheckFailed(
            f"expected `{name}` on PATH, found none: PATH is {os.environ.get('PATH')!r}; link {name} there"
        )
    return command


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=extend(CHILD_SECONDS))
    if done.returncode:
        raise CheckFailed(
            f"expected `{' '.join(command[:2])}` to run, found exit code {done.returncode}: it is broken; reinstall it",
            output=done.stderr.splitlines(),
        )
    return done.stdout.strip()


def _user_name() -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None

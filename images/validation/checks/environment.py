"""The interpreter and the user that a container starts with."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, claimed
from emulation import extend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


LOGIN_SHELLS = {
    "bash -l": ("bash", "bash", "-l"),
    "sh -l": ("sh", "sh", "-l"),
    # As login, su and sshd start the user's shell.
    "-sh": ("sh", "-sh"),
}
"""The program and its arguments, of which the first is its name, of shells that read /etc/profile."""

LOGIN = """\
python -c 'import sys; print(sys.prefix)'
command -v pip
printf '%s\\n' "${TENSORFLOW_VERSION-}"
"""


def login_shell(facts: Facts) -> Measured:
    """Login shells find `python` and `pip` of this interpreter, and know TensorFlow's version.

    They start without any variable but HOME, as after `su -` and over SSH.
    """
    with tempfile.TemporaryDirectory() as home:
        found = {name: _logged_in(arguments, home) for name, arguments in LOGIN_SHELLS.items()}
    return judge_login(found, facts.tensorflow)


def judge_login(found: Mapping[str, list[str]], version: str | None) -> Measured:
    """The verdict on what each shell has printed: the interpreter's prefix, the path of pip, and the version."""
    measured = {"shells": dict(found)}
    pip = str(Path(sys.prefix) / "bin/pip")
    wrong = {name: lines for name, lines in found.items() if lines != [sys.prefix, pip, version or ""]}
    if wrong:
        name, lines = next(iter(wrong.items()))
        raise CheckFailed(
            f"expected `{name}` to have {sys.prefix}/bin on PATH and TENSORFLOW_VERSION={version}, found "
            f"{' · '.join(lines) or 'nothing'}: /etc/profile.d/tfimg.sh was removed or changed, or another file there "
            "sets PATH; build the image again",
            **measured,
        )
    return measured


def _logged_in(arguments: Sequence[str], home: str) -> list[str]:
    """What a login shell prints."""
    program = shutil.which(arguments[0])
    if program is None:
        raise CheckFailed(f"expected `{arguments[0]}` on PATH, found none: platforms start programs by it; add it")
    done = subprocess.run(
        [*arguments[1:], "-c", LOGIN],
        executable=program,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=extend(CHILD_SECONDS),
        env={"HOME": home},
        cwd=home,
    )
    return done.stdout.splitlines()


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

"""The shell steps of a cloud's machine, run below a folder that stands for the root of its file system."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.machine_orders import machine
from tfimg.host.cloud import STEPS, list_machine_files

PATHS = re.compile(r"(?<![A-Za-z0-9_}/$])/(?:usr/local/lib|usr/share/keyrings|etc|var|run|opt|srv|sys|proc)/")
"""The machine's paths that steps name."""

TOOLS = (
    "sh", "awk", "cat", "chmod", "chown", "cp", "cut", "env", "getconf", "gpg", "gpg-agent", "grep", "head", "id",
    "mkdir", "mktemp", "mv", "od", "pgrep", "printf", "rm", "sed", "sha256sum", "sort", "stat", "sync",
    "tail", "timeout", "touch", "tr",
)  # fmt: skip
"""What steps take from this host. Whatever else they start has to be a stand-in."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The exit code of a step, and what it printed."""

    code: int
    text: str


@dataclass(frozen=True)
class StepMachine:
    """A machine without a system: files below `root`, and programs that are stand-ins."""

    root: Path

    def __post_init__(self) -> None:
        programs = self.root / "bin"
        programs.mkdir()
        for name in TOOLS:
            if found := shutil.which(name):
                (programs / name).symlink_to(found)
        for path in ("etc/apt/sources.list.d", "etc/yum.repos.d", "usr/share/keyrings"):
            (self.root / path).mkdir(parents=True)
        self.stand_in("ps", "echo 100")
        self.stand_in("sleep", "echo sleep $* >>$ROOT/calls")
        for name in ("systemctl", "apt-get", "curl", "modprobe", "ubuntu-drivers"):
            self.stand_in(name, f"echo {name} $* >>$ROOT/calls")

    def order(self, **changes: Any) -> StepMachine:
        """Lay out the files of an order, with this folder as their root."""
        for file in list_machine_files(machine(**changes)):
            path = self.root / file.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            # The key is compared byte by byte, and names no path.
            text = file.text if file.path.endswith(".pub") else PATHS.sub(f"{self.root}\\g<0>", file.text)
            path.write_text(text)
            path.chmod(int(file.mode, 8))
        return self

    def stand_in(self, name: str, script: str) -> None:
        """Put a program into the machine; `$ROOT/calls` is where calls are noted."""
        self.write(f"bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)

    def tfimg(self, script: str) -> None:
        """Put a tfimg, and a Python beside it, where the step `verifier` does."""
        self.write("opt/tfimg/bin/tfimg", f"#!/bin/sh\necho tfimg $* >>$ROOT/calls\n{script}\n").chmod(0o755)
        self.python("opt/tfimg/bin/python")

    def python(self, path: str) -> None:
        """Put this Python into the machine, with what is installed for it."""
        self.write(path, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n').chmod(0o755)

    def write(self, path: str, text: str) -> Path:
        """Write a file of the machine."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # a link to a program of this machine
        file.write_text(text)
        return file

    def read(self, path: str) -> str:
        """Return the text of a file of the machine, "" where there is none."""
        file = self.root / path
        return file.read_text() if file.exists() else ""

    def replace(self, step: str, old: str, new: str) -> None:
        """Replace a text of a step, which has to have it."""
        file = self.root / STEPS.lstrip("/") / step
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def boot(self) -> None:
        """Forget what a reboot forgets."""
        shutil.rmtree(self.root / "run", ignore_errors=True)
        (self.root / "calls").unlink(missing_ok=True)

    @property
    def calls(self) -> list[str]:
        """The stand-ins that were called, with their arguments."""
        return self.read("calls").splitlines()

    def run(self, step: str) -> Ended:
        """Run a step."""
        environment = {"PATH": str(self.root / "bin"), "ROOT": str(self.root), "HOME": str(self.root)}
        done = subprocess.run(
            [str(self.root / STEPS.lstrip("/") / step)],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return Ended(code=done.returncode, text=done.stdout + done.stderr)

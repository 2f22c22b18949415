"""Run `tfimg`: in this process with a given environment, or as the installed program in a process of its own."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfimg.cli import main
from tfimg.project.services import Services

NO_ENGINE = "tcp://127.0.0.1:1"
"""An address at which no engine answers."""


@dataclass(frozen=True)
class CliResult:
    """The exit code of a command, and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """All of standard output, parsed as one JSON document."""
        return json.loads(self.stdout)

    @property
    def documents(self) -> list[Any]:
        """Every line of standard output, parsed as JSON."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def lines(self) -> list[str]:
        """Every line of standard output, with its words one space apart."""
        return [" ".join(line.split()) for line in self.stdout.splitlines()]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the JSON events of one kind, in order."""
        return [document for document in self.documents if document["event"] == name]

    def succeeded(self) -> CliResult:
        """Require exit code 0."""
        assert self.code == 0, self.stderr
        return self

    def refusal(self, code: int) -> str:
        """Require this exit code and one error, and nothing else for people; return its message."""
        assert self.code == code, self.stderr
        assert self.stderr.startswith("tfimg: "), self.stderr
        assert "Traceback" not in self.stderr
        assert "\n\n" not in self.stderr
        assert self.stdout == "" or self.json["event"] == "error"
        return self.stderr.removeprefix("tfimg: ").removesuffix("\n")

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each image of a batch, by identifier."""
        return {result["identifier"]: result["status"] for result in self.events("result")}


@dataclass(kw_only=True)
class CliRunner:
    """Run commands in this process; `services` replaces what they would reach outside.

    `environ` are variables of every call. `prefix` is put before the arguments of every call.
    """

    home: Path
    services: Services
    environ: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    @property
    def state(self) -> Path:
        """The folder in which these commands keep their state."""
        return self.home / "state"

    def __call__(self, *argv: str, **environ: str) -> CliResult:
        """Run one command. No engine answers at the address in its environment."""
        isolated = {
            "PATH": os.defpath, "HOME": str(self.home), "DOCKER_HOST": NO_ENGINE, "TFIMG_STATE": str(self.state),
        }  # fmt: skip
        stdout, stderr = _TextStream(), _TextStream()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            try:
                self.services.environ = {**isolated, **self.environ, **environ}
                self.services.__dict__.pop("network", None)  # that of another environment
                code = main((*self.prefix, *argv), self.services.environ, self.services)
            except SystemExit as error:  # argparse
                code = int(error.code or 0)
        return CliResult(code, stdout.content, stderr.content)


class _TextStream(io.TextIOWrapper):
    """A standard stream that keeps what is written to it."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", newline="", write_through=True)

    @property
    def content(self) -> str:
        return self._bytes.getvalue().decode()


def run_tfimg(*arguments: str, env: Mapping[str, str] | None = None) -> CliResult:
    """Run the real program in a process of its own and wait for its end."""
    done = subprocess.run(
        [sys.executable, "-m", "tfimg", *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    return CliResult(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@contextmanager
def start_tfimg(*arguments: str, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start the real program; kill it when the block leaves it running."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tfimg", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **env},
    )  # fmt: skip
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def assert_refused(result: CliResult, *, code: int, says: str) -> None:
    """Require an error of one paragraph that matches `says`, this exit code, and no traceback."""
    assert (result.code, "Traceback" in result.stderr) == (code, False), result.stderr
    message = result.stderr[result.stderr.index("tfimg: ") :].strip()
    assert re.search(says, message), message
    assert message.count("\n") == 0, message

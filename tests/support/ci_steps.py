"""A composite action of GitHub's and a job of GitLab's, without their services: the steps, in bash."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from support.cli import CliResult

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github/actions/verify/action.yml"
JOB = ROOT / ".gitlab/verify.yml"

INSTALL = re.compile(r"builder/install|-m pip ")
"""In the step that installs tfimg."""

SNIPPET = re.compile(r"^```yaml\n# (?P<title>Git.+?)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)

BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""GitHub's `shell: bash` (its workflow syntax, "Defaults when you specify a shell")."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How the steps ended, and what the action's outputs are."""

    ended: CliResult
    outputs: Mapping[str, str]


def read(file: Path) -> Any:
    return YAML(typ="safe").load(file)


JOB_PAGE = ROOT / "docs/tutorials/ci-job.md"
"""The page with a CI job on a verified image."""


def snippets(page: Path) -> list[tuple[str, str]]:
    """Return the title and text of every YAML snippet of a page for GitHub or GitLab."""
    return [(found["title"], found["text"]) for found in SNIPPET.finditer(page.read_text())]


def run_action(
    folder: Path, inputs: Mapping[str, str], environ: Mapping[str, str] | None = None,
    *, environment: Path | None = None,
) -> Ran:  # fmt: skip
    """Run the action's steps until one fails, in a folder that is the caller's checkout.

    With an `environment` that has tfimg, the step that would make one is left out: it takes half a minute.
    """
    temporary = folder.with_name(f"{folder.name}-runner")
    temporary.mkdir()
    action = read(ACTION)
    steps = action["runs"]["steps"]
    if environment:
        assert INSTALL.search(steps[0]["run"])
        steps = steps[1:]
        (temporary / "tfimg").symlink_to(environment)
    given = {name: inputs.get(name, fields.get("default")) for name, fields in action["inputs"].items()}
    missing = [name for name, fields in action["inputs"].items() if fields.get("required") and not given[name]]
    assert missing == []
    output = temporary / "output"
    output.touch()
    runner = {
        "RUNNER_TEMP": str(temporary), "GITHUB_OUTPUT": str(output), "GITHUB_ACTION_PATH": str(ACTION.parent),
        **(environ or {}),
    }  # fmt: skip
    ended = CliResult(0, "", "")
    for step in steps:
        assert step["shell"] == "bash"
        variables = {name: _filled(value, given) for name, value in step.get("env", {}).items()}
        ended = bash(step["run"], folder, {**runner, **variables}, file=temporary / "step.sh")
        if ended.code:
            break
    written = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return Ran(
        ended=ended, outputs={name: _output(value["value"], written) for name, value in action["outputs"].items()}
    )


def run_job(folder: Path, variables: Mapping[str, str], *, environment: Path | None = None) -> CliResult:
    """Run the script of GitLab's job in a folder that is the checkout, as GitLab's runner does: in one shell.

    With an `environment` that has tfimg, the commands that would make one are left out: they take half a minute.
    """
    job = read(JOB)[".tfimg-verify"]
    commands = job["script"]
    if environment:
        (left_out,) = [command for command in commands if INSTALL.search(command)]
        commands[commands.index(left_out)] = f"tfimg={shlex.quote(str(environment))}"
    temporary = folder.with_name(f"{folder.name}-runner")
    temporary.mkdir()
    environ = {"TMPDIR": str(temporary), **job["variables"], **variables}
    return bash("\n".join(commands), folder, environ, file=temporary / "job.sh")


def bash(script: str, folder: Path, variables: Mapping[str, str], *, file: Path) -> CliResult:
    file.write_text(script)
    done = subprocess.run(
        [*BASH, str(file)], cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    return CliResult(done.returncode, done.stdout, done.stderr)


def _filled(value: str, inputs: Mapping[str, str]) -> str:
    found = re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value)
    assert found, value
    return inputs[found[1]]


def _output(value: str, written: Mapping[str, str]) -> str:
    found = re.fullmatch(r"\$\{\{ steps\.verify\.outputs\.(\w+) \}\}", value)
    assert found, value
    return written.get(found[1], "")

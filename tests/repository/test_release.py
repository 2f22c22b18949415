"""The release workflow without its services: each step that needs no permission, and what the others are given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

import tfimg
from support.checkout import copy_checkout
from support.ci_steps import bash, read
from support.cli import CliResult
from support.paths import ROOT
from support.programs import program

WORKFLOW = ROOT / ".github/workflows/release.yml"
TAG = f"v{tfimg.__version__}"
NOTES = "### Added\n- The notes of a dry run.\n"


def jobs() -> dict[str, Any]:
    return dict(read(WORKFLOW)["jobs"])


def checkout(folder: Path) -> Path:
    """Copy this checkout, with a changelog that has a section of its version."""
    copy_checkout(folder)
    (folder / "docs/CHANGELOG.md").write_text(f"## [{tfimg.__version__}] - 2026-11-22\n\n{NOTES}")
    return folder


def run_steps(job: str, folder: Path, environ: dict[str, str]) -> CliResult:
    """Run the commands of a job until one fails; actions are left out."""
    temporary = folder.parent / "runner"
    temporary.mkdir(exist_ok=True)
    ended = CliResult(0, "", "")
    for step in jobs()[job]["steps"]:
        if "run" in step:
            variables = {"RUNNER_TEMP": str(temporary), "GITHUB_REF_NAME": TAG, **environ}
            ended = bash(step["run"], folder, variables, file=temporary / "step.sh")
            if ended.code:
                break
    return ended


@pytest.mark.full
def test_a_dry_run_builds_checks_and_installs_what_would_be_published(tmp_path: Path) -> None:
    source = checkout(tmp_path / "source")
    built = run_steps("build", source, {})
    assert built.code == 0, built.stderr
    release = tmp_path / "runner/release"
    assert (release / "notes.md").read_text() == NOTES
    wheel, sdist = (release / "dist" / f"tfimg-{tfimg.__version__}{end}" for end in ("-py3-none-any.whl", ".tar.gz"))
    assert sorted((release / "dist").iterdir()) == [wheel, sdist]
    assert len(re.findall("PASSED", built.stdout)) == 2, "twine has checked both"
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"docs/CHANGELOG.md", "LICENSE", "README.md", "matrix.yaml", "builder/release.txt"} <= names
    metadata = message_from_bytes(zipfile.ZipFile(wheel).read(f"tfimg-{tfimg.__version__}.dist-info/METADATA"))
    assert metadata["Version"] == TAG[1:]
    checked = run_steps("check", source, {})
    assert checked.code == 0, checked.stderr
    lines = checked.stdout.splitlines()
    assert lines[0] == f"tfimg {TAG[1:]}"
    assert any(line.startswith("2.15.1-cpu-py3.11 ") for line in lines)


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("v9.9.9", f"The tag is v9.9.9, but builder/tfimg/__init__.py has version {TAG[1:]}: the tag must be {TAG}.\n"),
        (
            TAG[1:],
            f"The tag is {TAG[1:]}, but builder/tfimg/__init__.py has version {TAG[1:]}: the tag must be {TAG}.\n",
        ),
    ],
)
def test_a_tag_of_another_version_is_refused(tag: str, message: str, tmp_path: Path) -> None:
    done = release("build", tag, str(tmp_path / "new"))
    assert (done.returncode, done.stderr) == (1, message)
    assert not (tmp_path / "new").exists()


def test_a_folder_with_another_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    done = release("build", TAG, str(tmp_path))
    assert (done.returncode, done.stderr) == (1, f"{tmp_path}/dist exists already; name a folder without it.\n")


def test_a_version_without_a_section_in_the_changelog_is_refused(tmp_path: Path) -> None:
    source = copy_checkout(tmp_path / "source", "builder/release", "builder/changelog.py", "builder/tfimg/__init__.py")
    (source / "docs").mkdir()
    (source / "docs/CHANGELOG.md").write_text("## [Unreleased]\n- a\n")
    done = run_steps("build", source, {})
    assert done.code == 1
    assert f"has no section `## [{TAG[1:]}] - date`; it has Unreleased." in done.stderr


def test_other_arguments_are_answered_with_the_usage() -> None:
    for arguments in ((), ("build", TAG), ("check",), ("publish", TAG, "folder")):
        done = release(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert [line.split()[:3] for line in done.stderr.splitlines()] == [
            ["usage:", "builder/release", "build"], ["usage:", "builder/release", "check"],
        ]  # fmt: skip


def test_the_release_has_the_notes_and_both_files(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(ROOT / "tests/actionlint", folder / "release/dist", ignore=shutil.ignore_patterns("node_modules"))
    environ = program(tmp_path / "bin", "gh", f'printf "%s\\n" "$@" >>{tmp_path}/arguments')
    assert run_steps("notes", folder, environ).code == 0
    assert (tmp_path / "arguments").read_text().split("\n") == [
        "release", "create", TAG, "--verify-tag", "--title", TAG, "--notes-file", "release/notes.md",
        "release/dist/package-lock.json", "release/dist/package.json", "",
    ]  # fmt: skip


def test_images_are_published_at_the_tag_by_the_workflow_that_has_such_an_input(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    environ = program(tmp_path / "bin", "gh", f'printf "%s\\n" "$@" >>{tmp_path}/arguments')
    assert run_steps("images", tmp_path / "work", environ).code == 0
    arguments = (tmp_path / "arguments").read_text().split("\n")
    assert arguments == ["workflow", "run", "publish.yml", "--ref", TAG, "--raw-field", "patterns=*-cpu-*", ""]
    publish = read(WORKFLOW.with_name("publish.yml"))
    assert list(publish["on"]["workflow_dispatch"]["inputs"]) == ["patterns"]


def test_the_job_with_the_identity_runs_nothing_but_the_upload_of_what_was_checked() -> None:
    found = jobs()
    assert {name: job.get("needs") for name, job in found.items()} == {
        "build": None, "check": "build", "package": "check", "notes": "package", "images": "package",
    }  # fmt: skip
    download, upload = found["package"]["steps"]
    assert download["uses"].startswith("actions/download-artifact@")
    assert upload["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert upload["with"] == {"packages-dir": "release/dist", "attestations": True}
    assert found["package"]["environment"] == "pypi"
    artifacts = {
        step["with"]["name"] for job in found.values() for step in job["steps"] if "name" in step.get("with", {})
    }
    assert artifacts == {"release"}


def release(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "builder/release", *arguments], capture_output=True, text=True, check=False, env=dict(os.environ)
    )

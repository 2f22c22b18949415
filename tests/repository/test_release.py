"""The release workflow without its services: each step that needs no permission, and what the others are given."""

import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import tfimg
from support.ci_steps import bash, read
from support.cli import CliResult
from support.paths import ROOT
from support.programs import program


def copy_checkout(folder: Path, *names: str) -> Path:
    """Copy the files that git tracks or would add, or those under the names, into a new folder."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *names],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    return folder


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


def run_steps(
    job: str, folder: Path, environ: dict[str, str], values: Mapping[str, str] = MappingProxyType({})
) -> CliResult:
    """Run the commands of a job until one fails; actions are left out.

    A step gets those of `values` that its own variables name.
    """
    temporary = folder.parent / "runner"
    temporary.mkdir(exist_ok=True)
    ended = CliResult(0, "", "")
    for step in jobs()[job]["steps"]:
        if "run" in step:
            own = {name: values[name] for name in step.get("env", {}) if name in values}
            variables = {"RUNNER_TEMP": str(temporary), "GITHUB_REF_NAME": TAG, **environ, **own}
            ended = bash(step["run"], folder, variables, file=temporary / "step.sh")
            if ended.code:
                break
    return ended


@pytest.mark.full
@pytest.mark.group("release")
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
    for arguments in ((), ("build", TAG), ("check",), ("image", "folder"), ("publish", TAG, "folder")):
        done = release(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert [line.split()[:3] for line in done.stderr.splitlines()] == [
            ["usage:", "builder/release", "build"], ["usage:", "builder/release", "check"],
            ["usage:", "builder/release", "image"],
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
        "tool-image": "check", "publish-tool-image": ["package", "tool-image"],
    }  # fmt: skip
    download, upload = found["package"]["steps"]
    assert download["uses"].startswith("actions/download-artifact@")
    assert upload["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert upload["with"] == {"packages-dir": "release/dist", "attestations": True}
    assert found["package"]["environment"] == "pypi"
    artifacts = {
        step["with"]["name"] for job in found.values() for step in job["steps"] if "name" in step.get("with", {})
    }
    assert artifacts == {"release", "tool-image"}


def test_the_image_of_tfimg_is_built_in_the_container_of_the_tests_by_a_job_that_may_only_read() -> None:
    job = jobs()["tool-image"]
    assert "permissions" not in job
    assert "environment" not in job
    assert job["container"] == read(WORKFLOW.with_name("check.yml"))["jobs"]["check"]["container"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[-1] == 'builder/release image release "tfimg/cli:${GITHUB_REF_NAME#v}"'


def test_the_image_of_tfimg_is_pushed_by_digest_and_tagged_once_it_is_attested(tmp_path: Path) -> None:
    job, folder, log = jobs()["publish-tool-image"], tmp_path / "work", tmp_path / "arguments"
    assert job["environment"] == "publish"
    (folder / "image").mkdir(parents=True)
    (folder / "image/digest").write_text("sha256:ab\n")
    program(tmp_path / "bin", "docker", f'echo "docker $* $(cat)" >>{log}')
    environ = program(tmp_path / "bin", "skopeo", f'echo "skopeo $* ${{TOKEN-}}" >>{log}')
    outputs = tmp_path / "outputs"
    environ |= {"GITHUB_REPOSITORY": "Owner/tfimg", "GITHUB_OUTPUT": str(outputs)}
    values = {"ACTOR": "ann", "TOKEN": "secret", "REPOSITORY": "ghcr.io/owner/tfimg/cli", "DIGEST": "sha256:ab"}
    ended = run_steps("publish-tool-image", folder, environ, values)
    assert ended.code == 0, ended.stderr
    assert "secret" not in ended.stdout + ended.stderr
    assert outputs.read_text() == "repository=ghcr.io/owner/tfimg/cli\ndigest=sha256:ab\n"
    assert [line.rstrip() for line in log.read_text().splitlines()] == [
        "docker login ghcr.io --username ann --password-stdin secret",
        "skopeo copy --preserve-digests oci-archive:image/image.tar docker://ghcr.io/owner/tfimg/cli@sha256:ab",
        "skopeo copy --preserve-digests docker://ghcr.io/owner/tfimg/cli@sha256:ab"
        f" docker://ghcr.io/owner/tfimg/cli:{TAG[1:]}",
        "docker logout ghcr.io",
    ]
    download, push, attest, tag, log_out = job["steps"]
    assert download["with"] == {"name": "tool-image", "path": "image"}
    assert attest["uses"].startswith("actions/attest-build-provenance@")
    assert attest["with"] == {
        "subject-name": "${{ steps.push.outputs.repository }}", "subject-digest": "${{ steps.push.outputs.digest }}",
        "push-to-registry": True, "create-storage-record": False,
    }  # fmt: skip
    assert (push["id"], tag["name"], log_out["if"]) == ("push", "Tag", "always()")


def release(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "builder/release", *arguments], capture_output=True, text=True, check=False, env=dict(os.environ)
    )

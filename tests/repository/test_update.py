"""`builder/update` and the job that opens a pull request, with programs in the place of tfimg, uv and GitHub."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.ci_steps import bash, read
from support.paths import ROOT
from support.programs import program

WORKFLOW = ROOT / ".github/workflows/facts.yml"
LOCK = "images/locks/2.15.1-cpu-py3.11/packages.txt"
NEW_LOCK = "images/locks/2.22.0-cpu-py3.13/packages.txt"
CHANGE = f"""\
case "$1 $2" in "lock --fix") echo "1 fix"; exit ;; esac
case $1 in
sync) echo '+ "2.22.0": # confirm'; echo 'rows:' >>matrix.yaml ;;
lock)
    sed -i s/numpy==1.26.3/numpy==1.26.4/ {LOCK}
    mkdir -p $(dirname {NEW_LOCK})
    echo 'numpy==2.3.0 --hash=sha256:0' >{NEW_LOCK} ;;
audit) echo '```advisory``` of numpy'; exit 14 ;;
build) echo "built $2 as $4 of $(cat "$TFIMG_WORKSPACE/images/locks/$2/packages.txt")" ;;
compare) echo "compared $3 with $4" ;;
esac"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that an update may change, and its own `.venv/bin/tfimg`."""
    folder = tmp_path / "checkout"
    for name in ("matrix.yaml", "README.md", "images/rendered/a", "builder/requirements.txt", "builder/release.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("first\n")
    (folder / LOCK).parent.mkdir(parents=True)
    (folder / LOCK).write_text("numpy==1.26.3 \\\n    --hash=sha256:0\n")
    (folder / ".gitignore").write_text(".venv\n")
    shutil.copy(ROOT / "builder/update", folder / "builder")
    program(folder / "builder", "lock", 'echo "$@"')
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def update(checkout: Path, script: str) -> tuple[str, str]:
    """Run the update with a tfimg; return what it prints, and the text for the pull request."""
    (checkout / ".venv").mkdir()
    program(checkout / ".venv/bin", "tfimg", script)
    folder = checkout.parent / "runner/update"
    done = subprocess.run(
        [checkout / "builder/update", folder], capture_output=True, text=True, check=True, cwd=checkout.parent
    )
    assert done.stderr == ""
    return done.stdout, (folder / "body.md").read_text()


def test_an_update_without_changes_says_so(checkout: Path) -> None:
    printed, body = update(checkout, "echo all is current")
    assert printed == "changed=false\n"
    assert body.count("all is current") == 5
    assert "The lock of no CPU image changed." in body
    assert (checkout.parent / "runner/update/changes.patch").read_text() == ""


def test_changes_become_a_patch_and_a_comparison_and_failures_are_told(checkout: Path) -> None:
    printed, body = update(checkout, CHANGE)
    assert printed == "changed=true\n"
    sections = dict(part.split("\n", 1) for part in body.split("\n## ")[1:])
    assert '+ "2.22.0": # confirm' in sections["Releases: tfimg sync"]
    left = sections["Advisories that are left: tfimg audit"]
    assert "Exit code 14." in left
    assert "'''advisory''' of numpy" in left
    assert "1 fix" in sections["Fixes: tfimg lock --fix"]
    images = sections["An image before and after: tfimg build, tfimg compare"]
    assert [line for line in images.splitlines() if line.startswith(("built", "compared"))] == [
        "built 2.15.1-cpu-py3.11 as update/before of numpy==1.26.3 \\",
        "built 2.15.1-cpu-py3.11 as update/after of numpy==1.26.4 \\",
        "compared update/before:2.15.1-cpu-py3.11 with update/after:2.15.1-cpu-py3.11",
    ]
    assert git(checkout, "worktree", "list").count("\n") == 1
    assert "builder/requirements.txt --upgrade" in sections["Dependencies of tfimg: builder/lock --upgrade"]
    assert "--release builder/release.txt --upgrade" in sections["Tools of a release: builder/lock --release --upgrade"]
    (pins,) = (text for title, text in sections.items() if title.startswith("Added and removed pins"))
    assert [line.split() for line in pins.splitlines() if "==" in line] == [
        ["1", "-numpy==1.26.3"], ["1", "+numpy==1.26.4"], ["1", "+numpy==2.3.0"],
    ]  # fmt: skip
    assert NEW_LOCK in sections["Changed files"]


def test_the_text_fits_into_a_pull_request(checkout: Path) -> None:
    _, body = update(checkout, "yes 'a long line of output' | head -n 100000")
    assert 9000 < len(body) < 65_536


@pytest.mark.parametrize("number", ["", "12"])
def test_the_pull_request_is_opened_or_renewed(number: str, checkout: Path) -> None:
    update(checkout, CHANGE)
    runner, elsewhere = checkout.parent / "runner", checkout.parent / "elsewhere"
    with (runner / "update/changes.patch").open("a") as patch:
        patch.write(
            "diff --git a/builder/setup b/builder/setup\nnew file mode 100755\nindex 0000000..e69de29\n"
            "--- /dev/null\n+++ b/builder/setup\n@@ -0,0 +1 @@\n+echo unwanted\n"
        )
    git(checkout.parent, "clone", "--quiet", "--bare", str(checkout), "origin.git")
    git(checkout.parent, "clone", "--quiet", "origin.git", str(elsewhere))
    script = f'echo "$@" >>{runner}/asked\n[ "$1 $2" != "pr list" ] || echo "{number}"'
    environ = {**program(checkout.parent / "bin", "gh", script), "RUNNER_TEMP": str(runner)}
    environ["PATH"] += os.pathsep + os.environ["PATH"]
    (step,) = (step for step in read(WORKFLOW)["jobs"]["propose"]["steps"] if "run" in step)
    done = bash(step["run"], elsewhere, environ, file=runner / "step.sh")
    assert done.code == 0, done.stderr
    changed = git(elsewhere, "diff", "--name-only", "origin/main", "origin/update/facts").split()
    assert changed == [LOCK, NEW_LOCK, "matrix.yaml"], "and not builder/setup"
    asked = (runner / "asked").read_text().splitlines()
    assert asked[0] == "auth setup-git"
    assert asked[2].startswith(f"pr edit {number} --body-file" if number else "pr create --head update/facts --title")
    assert asked[2].endswith("/update/body.md")
    git(checkout.parent / "origin.git", "rev-parse", "update/facts")

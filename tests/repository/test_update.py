"""`builder/update` and the job that opens a pull request, with programs in the place of tfimg, uv and GitHub."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.ci_steps import bash, read
from support.paths import ROOT
from support.programs import program

WORKFLOW = ROOT / ".github/workflows/facts.yml"
LOCK = "images/locks/2.15.1-cpu-py3.11/packages.txt"
NEW_LOCK = "images/locks/2.22.0-cpu-py3.13/packages.txt"
FIXED = "images/locks/2.21.0-cpu-py3.13-arm64/packages.txt"
AUDITED = "docs/generator/advisories.json"
VARIANT = "images/locks/2.21.0-cpu-py3.13-arm64-jupyter/variant.txt"
FIX = f"""\
if [ "$1" = matrix ]; then shift; fi
case "$1 $2" in
"lock --fix")
    echo "3 fixes"
    sed -i 's/keras==3.13/keras==3.14/' {LOCK} {FIXED}
    sed -i 's/tornado==6.5/tornado==6.6/' {VARIANT}
    exit ;;
esac
"""
AUDIT = json.dumps(
    {
        "source": "https://osv.example",
        "images": ["2.15.1-cpu-py3.11", "2.21.0-cpu-py3.11"],
        "packages": 90,
        "not_audited": [],
        "findings": [
            {
                "advisory": f"CVE-{number}", "package": package, "version": "1.0", "severity": "high", "fixed": ["1.1"],
                "images": ["2.15.1-cpu-py3.11"], "accepted": accepted,
            }
            for number, package, accepted in ((1, "```numpy```", None), (2, "keras", {"reason": "no fix"}))
        ],
    }
)  # fmt: skip
CHANGE = f"""\
{FIX}
case $1 in
sync) echo '+ "2.22.0": # confirm'; echo 'rows:' >>matrix.yaml ;;
lock)
    sed -i s/numpy==1.26.3/numpy==1.26.4/ {LOCK}
    mkdir -p $(dirname {NEW_LOCK})
    echo 'numpy==2.3.0 --hash=sha256:0' >{NEW_LOCK} ;;
audit) echo '{AUDIT}'; exit 1 ;;
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
    builder = ("builder/requirements.txt", "builder/release.txt")
    for name in ("matrix.yaml", "README.md", "docs/a.md", "images/rendered/a", *builder):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("first\n")
    for name, text in {
        LOCK: "numpy==1.26.3 \\\n    --hash=sha256:0\n",
        FIXED: "",
        VARIANT: "tornado==6.5 --hash=sha256:0\n",
    }.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(f"{text}keras==3.13 --hash=sha256:0\n")
    (folder / ".gitignore").write_text(".venv\n")
    shutil.copy(ROOT / "builder/update", folder / "builder")
    (folder / AUDITED).parent.mkdir()
    shutil.copy(ROOT / "docs/generator/advisories.py", (folder / AUDITED).parent)
    program(folder / "builder", "lock", 'echo "$@"')
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder


def update(checkout: Path, script: str) -> tuple[str, str]:
    """Run the update with a tfimg; return what it prints, and the text for the pull request."""
    (checkout / ".venv").mkdir()
    program(checkout / ".venv/bin", "tfimg", script)
    (checkout / ".venv/bin/python").symlink_to(sys.executable)
    folder = checkout.parent / "runner/update"
    done = subprocess.run(
        [checkout / "builder/update", folder], capture_output=True, text=True, check=True, cwd=checkout.parent
    )
    assert done.stderr == ""
    return done.stdout, (folder / "changes.md").read_text()


def test_an_update_without_changes_says_so(checkout: Path) -> None:
    printed, body = update(checkout, "echo all is current")
    assert printed == "changed=false\n"
    assert body.count("all is current") == 4
    assert "Standard input has no audit" in body
    assert "The lock of no CPU image changed." in body
    assert (checkout.parent / "runner/update/changes.patch").read_text() == ""


def test_changes_become_a_patch_and_a_comparison_and_failures_are_reported(checkout: Path) -> None:
    printed, body = update(checkout, CHANGE)
    assert printed == "changed=true\n"
    sections = dict(part.split("\n", 1) for part in body.split("\n## ")[1:])
    assert '+ "2.22.0": # confirm' in sections["Releases: tfimg matrix sync"]
    left = sections["Advisories that are left: tfimg matrix audit"]
    assert "Exit code 1." in left
    assert "CVE-1: '''numpy''' 1.0, fixed in 1.1, 1 images\n1 advisories are open, 1 accepted" in left
    assert "3 fixes" in sections["Fixes, each in a pull request of its own: tfimg matrix lock --fix"]
    assert "keras" not in sections["Changed files"]
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


def test_the_fixes_of_an_image_and_its_variants_become_a_patch_of_their_own(checkout: Path) -> None:
    printed, _ = update(checkout, f"{FIX}\necho all is current")
    assert printed == "changed=true\n"
    folder = checkout.parent / "runner/update"
    assert (folder / "changes.patch").read_text() == ""
    fixes = {file.name: file.read_text() for file in sorted((folder / "fixes").iterdir())}
    arm = "2.21.0-cpu-py3.13-arm64"
    assert list(fixes) == [f"{image}.{kind}" for image in ("2.15.1-cpu-py3.11", arm) for kind in ("md", "patch")]
    git(checkout, "apply", "--index", str(folder / f"fixes/{arm}.patch"))
    assert git(checkout, "diff", "--cached", "--name-only").split() == [VARIANT, FIXED]
    text = fixes[f"{arm}.md"]
    assert f"1. `tfimg build {arm} --record` and `tfimg matrix render`" in text
    assert text.endswith("````text\n-tornado==6.5\n+tornado==6.6\n-keras==3.13\n+keras==3.14\n````\n")


PLANTED = """\
diff --git a/builder/setup b/builder/setup
new file mode 100755
index 0000000..e69de29
--- /dev/null
+++ b/builder/setup
@@ -0,0 +1 @@
+echo unwanted
"""


@dataclass(frozen=True)
class Proposed:
    """What the job that opens pull requests left in the repository, and what it said to GitHub."""

    origin: Path
    requested: list[str]

    def changed(self, branch: str) -> list[str]:
        return git(self.origin, "diff", "--name-only", "main", branch).split()

    @property
    def branches(self) -> list[str]:
        return git(self.origin, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def propose(checkout: Path, open_branch: str = "") -> Proposed:
    """Run the job; GitHub has the pull request 12 for a branch."""
    runner, elsewhere = checkout.parent / "runner", checkout.parent / "elsewhere"
    for name in ("changes", "fixes/2.15.1-cpu-py3.11"):
        with (runner / f"update/{name}.patch").open("a") as patch:
            patch.write(PLANTED)
    (runner / "update/fixes/..;echo.patch").write_text(PLANTED)
    git(checkout.parent, "clone", "--quiet", "--bare", str(checkout), "origin.git")
    git(checkout.parent, "clone", "--quiet", "origin.git", str(elsewhere))
    script = f'echo "$@" >>{runner}/asked\n[ "$1 $2 $4" != "pr list {open_branch}" ] || echo 12'
    environ = {**program(checkout.parent / "bin", "gh", script), "RUNNER_TEMP": str(runner)}
    environ["PATH"] += os.pathsep + os.environ["PATH"]
    (step,) = (step for step in read(WORKFLOW)["jobs"]["propose"]["steps"] if "run" in step)
    done = bash(step["run"], elsewhere, environ, file=runner / "step.sh")
    assert done.code == 0, done.stderr
    requested = [line for line in (runner / "asked").read_text().splitlines() if "pr list" not in line]
    assert requested.pop(0) == "auth setup-git"
    return Proposed(origin=checkout.parent / "origin.git", requested=requested)


FIX_BRANCHES = ("fix/2.15.1-cpu-py3.11", "fix/2.21.0-cpu-py3.13-arm64")


@pytest.mark.parametrize("open_branch", ["", "update/facts"])
def test_pull_requests_are_opened_and_that_of_updates_is_renewed(open_branch: str, checkout: Path) -> None:
    update(checkout, CHANGE)
    proposed = propose(checkout, open_branch)
    assert proposed.branches == [*FIX_BRANCHES, "main", "update/facts"]
    assert proposed.changed("update/facts") == [AUDITED, LOCK, NEW_LOCK, "matrix.yaml"], "and not builder/setup"
    assert [proposed.changed(branch) for branch in FIX_BRANCHES] == [[LOCK], [VARIANT, FIXED]]
    first, *fixes = proposed.requested
    assert first.startswith("pr edit 12 --body-file" if open_branch else "pr create --head update/facts --title")
    assert first.endswith("/update/changes.md")
    assert [line.split()[3] for line in fixes] == [*reversed(FIX_BRANCHES)], "the newest first"
    assert fixes[0].endswith("/update/fixes/2.21.0-cpu-py3.13-arm64.md")


def test_an_open_pull_request_of_a_fix_stays_as_it_is(checkout: Path) -> None:
    update(checkout, CHANGE)
    proposed = propose(checkout, FIX_BRANCHES[1])
    assert proposed.branches == [FIX_BRANCHES[0], "main", "update/facts"]
    assert [line.split()[3] for line in proposed.requested] == ["update/facts", FIX_BRANCHES[0]]

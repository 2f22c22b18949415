"""`tfimg build --affected`: which images it builds, and how a red suite takes a fix back."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine
from support.suite_events import done_event, end, make_output, start, suite
from tfimg.core.paths import Workspace
from tfimg.engine.protocol import Exit, Line, RunRequest
from tfimg.matrix.load import parse_matrix

OFFICIAL = {f"docker.io/library/python:{python}-slim-bookworm": "sha256:1" for python in ("3.10", "3.11")}
GREEN = make_output(suite("a"), start("a"), end("a"), done_event())
RED = make_output(suite("a"), start("a"), end("a", "failed", "idna \x1b[2J is: broken\n# 'x'"), done_event(1), status=1)
KEPT, GOOD, BAD = "2.15.1-cpu-py3.9", "2.15.1-cpu-py3.10", "2.15.1-cpu-py3.11"
TODAY = datetime(2026, 11, 22, tzinfo=UTC)
FIXED = f"idna==3.21 --hash=sha256:{'1' * 64}  # 2026-11-20, fixes CVE-2026-1, GHSA-2\n"


@dataclass
class Choosy(FakeEngine):
    """The suite is red in images of these identifiers."""

    red: set[str] = field(default_factory=set)
    failure: list[Line | Exit] = field(default_factory=lambda: RED)

    def run(self, request: RunRequest, **options: object) -> Generator[Line | Exit, None, None]:
        self.story = self.failure if any(f":{name}-" in request.image for name in self.red) else GREEN
        return super().run(request, **options)


@pytest.fixture
def engine() -> Choosy:
    return Choosy(remote={**OFFICIAL, "docker.io/library/python:3.9-slim-bullseye": "sha256:2"})


def git(workspace: Workspace, *arguments: str) -> None:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    subprocess.run(
        ["git", "-C", str(workspace.root), *arguments], check=True, capture_output=True, env={**os.environ, **identity}
    )


def commit(workspace: Workspace) -> None:
    git(workspace, "add", "--all")
    git(workspace, "commit", "--quiet", "--no-gpg-sign", "-m", "x")


def fix(workspace: Workspace, identifier: str) -> str:
    """Write a lock as `lock --fix` does; return it as it was."""
    file = workspace.lock(identifier, "packages")
    before = file.read_text()
    lines = [FIXED if line.startswith("idna==") else line for line in before.splitlines(keepends=True)]
    file.write_text("".join(lines))
    return before


@pytest.fixture
def here(tmp_path: Path, engine: Choosy, workspace_copy: Workspace) -> CliRunner:
    """Three images with evidence, committed."""
    environment = TestEnvironment(docker=engine, time=TODAY)
    tfimg = CliRunner(home=tmp_path, edge=environment, environ={"TFIMG_WORKSPACE": str(workspace_copy.root)})
    tfimg("build", KEPT, GOOD, BAD, "--record").succeeded()
    git(workspace_copy, "init", "--quiet")
    commit(workspace_copy)
    return tfimg


def test_without_another_lock_nothing_is_built(here: CliRunner, engine: Choosy) -> None:
    before = len(engine.built)
    here("build", "--affected", "--record").succeeded()
    assert len(engine.built) == before


@pytest.mark.parametrize("is_committed", [False, True])
def test_images_of_other_locks_are_proven_and_a_red_suite_takes_the_fix_back(
    is_committed: bool, here: CliRunner, engine: Choosy, workspace_copy: Workspace
) -> None:
    fix(workspace_copy, GOOD)
    before = fix(workspace_copy, BAD)
    if is_committed:
        commit(workspace_copy)
    good_lock = workspace_copy.lock(GOOD, "packages").read_text()
    evidence = workspace_copy.evidence(BAD).read_bytes()
    engine.red = {BAD}
    ended = here("build", "--affected", "--record", "--json")
    assert (ended.code, ended.statuses) == (13, {GOOD: "built", BAD: "failed"})
    (reverted,) = ended.events("reverted")
    assert (reverted["files"], reverted["accepted"]) == ([f"images/locks/{BAD}/packages.txt"], ["CVE-2026-1", "GHSA-2"])
    assert workspace_copy.lock(BAD, "packages").read_text() == before
    assert workspace_copy.lock(GOOD, "packages").read_text() == good_lock
    assert workspace_copy.evidence(BAD).read_bytes() == evidence
    matrix = parse_matrix(workspace_copy.matrix.read_text(), source="matrix.yaml", today=TODAY.date())
    (risk,) = matrix.accepted_risks
    assert (risk.advisories, risk.package, risk.images) == (("CVE-2026-1", "GHSA-2"), "idna", BAD)
    assert str(risk.review_by) == "2027-02-20"
    assert risk.reason.startswith("idna 3.21 breaks the image: ")
    assert "\x1b" not in workspace_copy.matrix.read_text()
    again = here("build", "--affected", "--record", "--json").succeeded()
    assert again.statuses == {}, "the evidence is about every lock"


def test_a_second_red_image_is_added_to_the_same_list(
    here: CliRunner, engine: Choosy, workspace_copy: Workspace
) -> None:
    for name in (GOOD, BAD):
        fix(workspace_copy, name)
    engine.red = {GOOD, BAD}
    ended = here("build", "--affected", "--record")
    assert ended.stdout.count("Reverted images/locks/") == 2
    assert "accepted in matrix.yaml for 90 days: CVE-2026-1, GHSA-2" in ended.stdout
    text = workspace_copy.matrix.read_text()
    assert (text.count("accepted_risks:"), text.count("- advisories:\n")) == (1, 2)
    assert json.loads(workspace_copy.evidence(GOOD).read_text())["identifier"] == GOOD


def test_a_red_flavour_without_a_lock_of_its_own_leaves_that_of_its_image(
    here: CliRunner, engine: Choosy, workspace_copy: Workspace
) -> None:
    slim = f"{BAD}-slim"
    here("build", slim, "--record").succeeded()
    fix(workspace_copy, BAD)
    fixed = workspace_copy.lock(BAD, "packages").read_text()
    engine.red = {slim}
    ended = here("build", "--affected", "--record")
    assert ended.code == 13
    assert f"{slim} has the lock of {BAD}, which its own suite decides" in ended.stderr
    assert workspace_copy.lock(BAD, "packages").read_text() == fixed


def test_a_reason_beyond_the_basic_plane_is_written(here: CliRunner, engine: Choosy, workspace_copy: Workspace) -> None:
    before = fix(workspace_copy, BAD)
    engine.red = {BAD}
    engine.failure = make_output(
        suite("a"), start("a"), end("a", "failed", "idna says 💥 to «é»"), done_event(1), status=1
    )
    assert here("build", "--affected", "--record").code == 13
    assert workspace_copy.lock(BAD, "packages").read_text() == before
    matrix = parse_matrix(workspace_copy.matrix.read_text(), source="matrix.yaml", today=TODAY.date())
    assert "idna says 💥 to «é»" in matrix.accepted_risks[0].reason


def test_an_acceptance_that_has_expired_is_renewed(
    here: CliRunner, engine: Choosy, environment: TestEnvironment, workspace_copy: Workspace
) -> None:
    fix(workspace_copy, BAD)
    engine.red = {BAD}
    assert here("build", "--affected", "--record").code == 13
    fix(workspace_copy, BAD)
    later = replace(here, edge=TestEnvironment(docker=engine, time=TODAY + timedelta(days=100)))
    ended = later("build", "--affected", "--record")
    assert "accepted in matrix.yaml for 90 days: CVE-2026-1, GHSA-2" in ended.stdout
    today = (TODAY + timedelta(days=100)).date()
    matrix = parse_matrix(workspace_copy.matrix.read_text(), source="matrix.yaml", today=today)
    assert [risk.review_by for risk in matrix.accepted_risks] == [today + timedelta(days=90)]


def test_an_expired_acceptance_of_a_person_stays_and_is_not_claimed(
    here: CliRunner, engine: Choosy, workspace_copy: Workspace
) -> None:
    written = (
        f'accepted_risks:  # reviewed each month\n  - {{advisories: [CVE-2026-1], package: idna, images: "{BAD}", '
        "reason: x, review_by: 2026-01-31}\n"
    )
    with workspace_copy.matrix.open("a") as file:
        file.write(f"\n{written}")
    fix(workspace_copy, BAD)
    engine.red = {BAD}
    (reverted,) = here("build", "--affected", "--record", "--json").events("reverted")
    assert reverted["accepted"] == ["GHSA-2"]
    matrix = parse_matrix(workspace_copy.matrix.read_text(), source="matrix.yaml", today=TODAY.date())
    assert [risk.advisories for risk in matrix.accepted_risks] == [("GHSA-2",), ("CVE-2026-1",)]
    assert all(line in workspace_copy.matrix.read_text() for line in written.splitlines())


def test_without_record_and_without_git_nothing_is_reverted(
    here: CliRunner, engine: Choosy, workspace_copy: Workspace
) -> None:
    fix(workspace_copy, BAD)
    lock = workspace_copy.lock(BAD, "packages").read_text()
    engine.red = {BAD}
    assert here("build", "--affected").code == 13
    (workspace_copy.root / ".git").rename(workspace_copy.root.parent / "gone")
    ended = here("build", "--affected", "--record")
    assert ended.code == 13
    assert f"None of 0 commits has the lock that the evidence of {BAD} is about." in ended.stderr
    assert workspace_copy.lock(BAD, "packages").read_text() == lock


def test_an_engine_that_fails_says_nothing_of_a_fix(
    here: CliRunner, workspace_copy: Workspace, environment: TestEnvironment
) -> None:
    from tfimg.core.errors import BuildError

    fix(workspace_copy, BAD)
    lock = workspace_copy.lock(BAD, "packages").read_text()
    broken = Choosy(remote=OFFICIAL, script=[BuildError("No disk.", next_step="Try.")])
    failing = replace(here, edge=TestEnvironment(docker=broken, time=TODAY))
    assert failing("build", "--affected", "--record").code == 12
    assert workspace_copy.lock(BAD, "packages").read_text() == lock
    assert "accepted_risks" not in workspace_copy.matrix.read_text()


def test_affected_selects_by_itself_or_within_patterns(here: CliRunner, workspace_copy: Workspace) -> None:
    assert "--all and --affected cannot be combined." in here("build", "--all", "--affected").refusal(2)
    assert "cannot be combined: a request means" in here("build", "--affected", "--tf", "2.15").refusal(2)
    for name in (GOOD, BAD):
        fix(workspace_copy, name)
    assert here("build", "--affected", GOOD, "--json").statuses == {GOOD: "built"}


def test_a_flavour_that_patterns_name_beside_its_image_is_built_once(
    here: CliRunner, workspace_copy: Workspace
) -> None:
    slim = f"{GOOD}-slim"
    here("build", slim, "--record").succeeded()
    fix(workspace_copy, GOOD)
    ended = here("build", GOOD, slim, "--affected", "--record").succeeded()
    assert "2 images have evidence of another lock than theirs." in ended.stderr

"""Fifty planted advisories: each is fixed or explained by `audit` and `lock --fix`. With the real uv, on loopback."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from uv import find_uv_bin

from conftest import ROOT
from support.advisories import advisory, affected, osv_server
from support.cli import CliResult, CliRunner
from support.extra_packages import RealUv
from support.inventories import INVENTORY
from support.memory_engine import FakeEngine, stored_image
from support.package_index import package_index
from support.planted_advisories import GPU, IMAGES, NEW, NOTEBOOK, OLD, PLANTS, copy_workspace, fill_index
from tfimg.core.paths import Workspace
from tfimg.engine.interface import Exit, Line
from tfimg.index.client import Index
from tfimg.project.project import Project
from tfimg.recipe.lock import find_fixes, read_packages, resolve_lock

PAGE = ROOT / "docs" / "reference" / "planted-advisories.md"
TODAY = datetime(2026, 11, 22, tzinfo=UTC)


class PlantedServices(RealUv):
    def index(self) -> Index:
        return self.open_index(self.environ["UV_DEFAULT_INDEX"])


@dataclass
class Run:
    """What the commands said, and the workspace before and after."""

    before: dict[str, dict[str, str]]
    after: dict[str, dict[str, str]]
    preview: Any
    notebook: Any
    partial: CliResult
    fixed: Any
    again: Any
    audited: Any
    image: Any
    relocked: Any


def read_locks(workspace: Workspace) -> dict[str, dict[str, str]]:
    return {identifier: workspace.read_lock(identifier) for identifier in IMAGES}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, workspace: Workspace) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("planted")
    copy = copy_workspace(workspace, home / "workspace")
    engine = FakeEngine(story=[Line(stream="stdout", text=json.dumps(INVENTORY)), Exit(status=0, out_of_memory=False)])
    engine.names["mine:1"] = stored_image(labels={"tfimg.identifier": GPU})
    with package_index() as index, osv_server(*(plant.document for plant in PLANTS)) as osv:
        fill_index(index, copy)
        index.cached = True
        environ = {"UV_DEFAULT_INDEX": f"{index.url}/simple", "UV_CACHE_DIR": str(home / "uv")}
        environ["TFIMG_WORKSPACE"] = str(copy.root)
        tfimg = CliRunner(home=home, edge=PlantedServices(docker=engine, time=TODAY), environ=environ)
        options = ("--osv", osv.url, "--json")
        before = read_locks(copy)
        audited = tfimg("audit", OLD, GPU, NEW, *options).documents[0]
        image = tfimg("audit", "--built", "mine:1", *options).documents[0]
        preview = tfimg("lock", "--fix", "--dry-run", OLD, GPU, NEW, *options).documents[0]
        notebook = tfimg("lock", "--fix", "--dry-run", NOTEBOOK, *options).documents[0]
        assert read_locks(copy) == before
        fixed = tfimg("lock", "--fix", OLD, GPU, NEW, *options)
        assert fixed.code == 1, fixed.stderr
        after = read_locks(copy)
        again = tfimg("lock", "--fix", OLD, GPU, NEW, *options).documents[0]
        assert read_locks(copy) == after
        project = Project(services=tfimg.edge)
        newer, env = project.matrix.newer, project.services.environ
        relocked = {
            spec.identifier: resolve_lock(
                spec, newer, uv=find_uv_bin(), env=env, fixes=find_fixes(after[spec.identifier])
            )
            for spec in project.select([OLD, NEW])
        }
        for spec, found in project.locks.resolve_variants(project.select([NOTEBOOK])):
            assert isinstance(found, dict), found
            relocked[spec.identifier] = found
        some = [plant.document for plant in PLANTS if plant.identifier == "TFIMG-TEST-33"]
        some.append(advisory("TFIMG-TEST-90", affected("opt-einsum", {"introduced": "0"}, {"fixed": "3.4.0"})))
        with osv_server(*some) as two:
            partial = tfimg("lock", "--fix", OLD, "--osv", two.url)
        yield Run(before, after, preview, notebook, partial, fixed.documents[0], again, audited, image, relocked)


def test_there_are_fifty(run: Run) -> None:
    assert len(PLANTS) == 50


def outcomes(run: Run, identifier: str) -> list[str]:
    """Return what became of an advisory, with the images."""
    found = []
    for row in run.fixed["packages"]:
        if identifier in row["advisories"]:
            moves = [f"{move['name']} {move['before'] or '(new)'} → {move['after']}" for move in row["moves"]]
            what = f"fixed: {', '.join(moves)}" if moves else f"blocked: {row['blocked']}"
            found.append(f"{what} ({', '.join(map(short, row['images']))})")
    for one in (*run.audited["findings"], *run.image["findings"]):
        if identifier == one["advisory"] and one["accepted"]:
            found.append(f"accepted until {one['accepted']['review_by']}: {one['accepted']['reason']}")
        elif identifier == one["advisory"] and one["ecosystem"] != "PyPI":
            found.append(f"fixed in {', '.join(one['fixed'])}: comes with a newer base ({one['installed']})")
        elif identifier in one["aliases"]:
            found.append(f"the same finding as {one['advisory']}")
    return list(dict.fromkeys(found)) or ["no finding"]


def short(image: str) -> str:
    return {OLD: "2.15 CPU", GPU: "2.15 GPU", NEW: "2.21", NOTEBOOK: "2.21 jupyter"}[image]


def test_each_advisory_is_fixed_or_explained_as_the_page_says(run: Run) -> None:
    rows = [
        f"| {plant.identifier} | {plant.kind} | {plant.package} | {'<br>'.join(outcomes(run, plant.identifier))} |"
        for plant in PLANTS
    ]
    written = [line for line in PAGE.read_text().splitlines() if line.startswith("| TFIMG-TEST")]
    assert written == rows, "\n".join(["", *rows])


def test_a_variant_is_fixed_without_the_image_below_it(run: Run) -> None:
    assert [
        move["after"] for row in run.notebook["packages"] for move in row["moves"] if move["name"] == "tornado"
    ] == ["6.9.1"]


def test_the_text_says_what_was_fixed_what_was_not_and_what_comes_next(run: Run) -> None:
    ended = run.partial
    assert ended.lines[1:] == [
        f"opt-einsum 3.3.0 TFIMG-TEST-90 opt-einsum 3.3.0 → 3.4.0 {OLD}",
        f"opt-einsum 3.3.0 TFIMG-TEST-33 blocked: its advisory names no fixed version {OLD}",
        "1 files changed; 1 fixes, 1 blocked",
    ]
    assert f"Run `tfimg render`, and prove the fixes: `tfimg build {OLD} --record`." in ended.stderr
    assert "1 vulnerable package has no fix that all bounds allow: opt-einsum 3.3.0." in ended.stderr
    assert ended.code == 1


def lines(run: dict[str, dict[str, str]], image: str) -> dict[str, str]:
    text = "".join(run[image].values())
    return {line.partition("==")[0]: line for line in text.splitlines() if "==" in line}


def test_only_lines_of_packages_that_move_differ_and_say_why(run: Run) -> None:
    for image in IMAGES:
        moved = {move["name"] for row in run.fixed["packages"] if image in row["images"] for move in row["moves"]}
        before, after = lines(run.before, image), lines(run.after, image)
        assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == moved
        assert all(re.search(r"  # 2026-11-20, (fixes TFIMG-TEST-|goes with )", after[name]) for name in moved)
        kept = [part for part in run.before[image] if part not in ("packages", "variant")]
        assert all(run.after[image][part] == run.before[image][part] for part in kept)
        assert len(read_packages(run.after[image])) == len(after)


def test_a_preview_says_the_same_and_a_second_run_has_nothing_to_fix(run: Run) -> None:
    assert run.preview == {**run.fixed, "dry_run": True}
    assert run.again["changed"] == []
    assert [row["moves"] for row in run.again["packages"]] == [[]] * len(run.again["packages"])


def test_locking_again_keeps_the_fixes(run: Run) -> None:
    for image in (OLD, NEW, NOTEBOOK):
        assert lines(run.relocked, image) == lines(run.after, image)

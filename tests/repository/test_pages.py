"""Blocks of pages that need neither an engine nor a network run, as an ordinary user."""

import tempfile
from pathlib import Path

import pytest

from support.cli import NO_ENGINE
from support.paths import ROOT
from support.shell_blocks import Block, blocks, make_folder, run_script
from support.strategies import RELEASES, SITUATIONS, STRATEGIES, read_rows

PAGES = (ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
GENERATED = ROOT / "docs/reference/commands"
"""Pages of the commands: their examples are those of `--help`."""

ALL = [(page, block) for page in PAGES if GENERATED not in page.parents for block in blocks(page)]
PROGRAMS = {"sh", "bash", "python", "dockerfile"}


def test_each_block_that_no_test_runs_says_why() -> None:
    for page, block in ALL:
        kind, _, value = block.mark.partition(": ")
        shown = f"{page.relative_to(ROOT)}: {block.text.splitlines()[0]}"
        if block.language not in PROGRAMS or not block.mark:
            assert block.language not in {"python", "dockerfile"}, f"{shown}: a comment before it says what tests it"
            continue
        assert kind in {"engine", "file", "tested", "not run"}, shown
        assert (kind == "engine") is (not value), shown
        assert kind != "tested" or (ROOT / value).is_file(), shown
        if kind == "file":
            later = [one.mark for other, one in ALL if other == page]
            assert "engine" in later[later.index(block.mark) :] or "not run" in " ".join(later), shown


OFFLINE = [(page, block) for page, block in ALL if block.language in {"sh", "bash"} and not block.mark]


@pytest.mark.parametrize(
    ("page", "block"), OFFLINE, ids=[f"{page.stem}-{number}" for number, (page, _) in enumerate(OFFLINE)]
)
def test_a_block_runs_without_an_engine(page: Path, block: Block) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        environ = make_folder(Path(name), ROOT)
        run_script(block.text, Path(name), {**environ, "DOCKER_HOST": NO_ENGINE})


def test_some_blocks_run() -> None:
    assert len(OFFLINE) >= 6
    assert sum(block.mark == "engine" for _, block in ALL) >= 15


def test_the_table_of_strategies_has_a_difference_or_a_reason_in_each_cell() -> None:
    rows = read_rows()
    places = [(row.strategy, row.situation) for row in rows]
    assert set(places) >= {(strategy, situation) for strategy in STRATEGIES for situation in SITUATIONS}
    assert len(set(places)) == len(places)
    for row in rows:
        assert list(row.found) == RELEASES
        for cell in row.found.values():
            assert cell == "refused" if row.bound is None else float(cell) <= row.bound

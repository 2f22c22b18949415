"""Blocks of pages that need an engine run on it, page by page, as an ordinary user who may use its socket."""

from pathlib import Path

import pytest

from engine.conftest import REPOSITORY, Setting
from support.paths import ROOT
from support.shell_blocks import blocks, run_script

pytestmark = pytest.mark.full
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


WITH_BLOCKS = [page for page in PAGES if any(block.mark == "engine" for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, setting: Setting) -> None:
    for block in blocks(page):
        text = block.text.replace("tfimg/tensorflow", REPOSITORY)
        if block.mark.startswith("file: "):
            (setting.folder / block.mark.removeprefix("file: ")).write_text(text)
        elif block.mark == "engine":
            run_script(text, setting.folder, setting.environ, group=setting.group)

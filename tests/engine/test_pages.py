"""Blocks of pages that need an engine run on it, page by page, as an ordinary user who may use its socket."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.conftest import REPOSITORY, Built
from support.paths import ROOT
from support.shell_blocks import USER, blocks, make_folder, run_script
from tfimg.engine.docker import DockerEngine

pytestmark = pytest.mark.full
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Setting:
    """A folder with links to the checkout, and the environment of an ordinary user."""

    folder: Path
    environ: Mapping[str, str]
    group: int


@pytest.fixture
def setting(engine: DockerEngine, built: Built) -> Iterator[Setting]:
    """A folder whose matrix names the tests' repository, so that no tag of the engine's user moves."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environ = make_folder(folder, ROOT)
        workspace = folder / "home/workspace"
        workspace.mkdir()
        shutil.copytree(ROOT / "images", workspace / "images", ignore=shutil.ignore_patterns("__pycache__"))
        matrix = (ROOT / "matrix.yaml").read_text().replace("tfimg/tensorflow", REPOSITORY)
        (workspace / "matrix.yaml").write_text(matrix)
        socket = Path(engine.host.removeprefix("unix://"))
        group = socket.stat().st_gid if socket.is_socket() else USER
        yield Setting(folder, {**environ, "DOCKER_HOST": engine.host, "TFIMG_WORKSPACE": str(workspace)}, group)
        for image in ("my-training", "faulty"):
            with suppress(Exception):
                engine.remove(image)


WITH_BLOCKS = [page for page in PAGES if any(block.mark == "engine" for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, setting: Setting) -> None:
    for block in blocks(page):
        text = block.text.replace("tfimg/tensorflow", REPOSITORY)
        if block.mark.startswith("file: "):
            (setting.folder / block.mark.removeprefix("file: ")).write_text(text)
        elif block.mark == "engine":
            run_script(text, setting.folder, setting.environ, group=setting.group)

"""The tutorial from training to a server: each of its blocks runs as it stands, as an ordinary user."""

import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.docker_daemon import wait_until
from support.paths import ROOT
from support.shell_blocks import AS_USER, USER, blocks, make_folder, run_script
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, REPOSITORY, _built

pytestmark = [pytest.mark.full, pytest.mark.group("serve")]

PAGE = ROOT / "docs/tutorials/train-export-serve.md"
MARK = "tested: tests/engine/test_train_export_serve.py"


@contextmanager
def started(text: str, folder: Path, environ: dict[str, str], group: int) -> Iterator[subprocess.Popen[str]]:
    """Run a block for as long as the `with` block lasts, and end it as Ctrl-C does."""
    user = [*AS_USER, str(group)] if AS_USER else []
    # What replaces the shell gets the signal itself.
    with subprocess.Popen(
        [*user, "bash", "-c", f"exec {text.strip()}"], cwd=folder, env=environ, text=True, stdout=subprocess.PIPE
    ) as child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(90)


def read(url: str) -> bytes:
    """The body of an answer; empty if there is none."""
    try:
        with urllib.request.urlopen(url, timeout=20) as response:  # noqa: S310 - of loopback
            return bytes(response.read())
    except OSError:
        return b""


def test_the_blocks_of_the_tutorial_run(engine: DockerEngine) -> None:
    request = ["--tf", "2.15", "--python", "3.11", "--device", "cpu"]
    for suffix in ("", "-export-litert", "-export-tfjs", "-serve"):
        _built(f"{IDENTIFIER}{suffix}", *request, *(["--variant", suffix[1:]] if suffix else []))
    found = [block for block in blocks(PAGE) if block.mark == MARK]
    build, program, train, board, export, browser, page, serve, ask = found
    wanted = [
        ["tfimg", "build", *request],
        *[["tfimg", "build", *request, "--variant", one] for one in ("export-litert", "export-tfjs", "serve")],
    ]
    assert [shlex.split(line) for line in build.text.splitlines()] == wanted
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environ = {**make_folder(folder, ROOT), "DOCKER_HOST": engine.host}
        workspace = folder / "home/workspace"
        workspace.mkdir()
        (workspace / "images").symlink_to(ROOT / "images")
        (workspace / "matrix.yaml").write_text(
            (ROOT / "matrix.yaml").read_text().replace("tfimg/tensorflow", REPOSITORY)
        )
        environ["TFIMG_WORKSPACE"] = str(workspace)
        socket = Path(engine.host.removeprefix("unix://"))
        group = socket.stat().st_gid if socket.is_socket() else USER
        work = folder / "work"
        work.mkdir()
        os.chown(work, USER, USER)

        def run(text: str) -> str:
            return run_script(text.replace("tfimg/tensorflow", REPOSITORY), work, environ, group=group)

        (work / "train.py").write_text(program.text)
        said = run(train.text)
        read_digits = re.search(r"it has not seen, it reads (\d+)", said)
        assert read_digits, said
        assert int(read_digits[1]) >= 95
        with started(board.text.replace("tfimg/tensorflow", REPOSITORY), work, environ, group):
            wait_until(lambda: read("http://127.0.0.1:6006/data/plugin/scalars/tags"), seconds=180)
            wait_until(lambda: b"epoch_accuracy" in read("http://127.0.0.1:6006/data/plugin/scalars/tags"))
        assert "the bound is 0.0001" in run(export.text)
        assert (work / "exported/digits.tflite").stat().st_size > 5000
        assert "the bound is 0.0001" in run(browser.text)
        with started(page.text, work, environ, group):
            wait_until(lambda: b"TensorFlow.js" in read("http://127.0.0.1:8000/"))
        with started(serve.text, work, environ, group) as child:
            assert child.stdout is not None
            printed = child.stdout.readline()
            assert printed.startswith("python3 -c "), printed
            assert len(json.loads(run(printed).splitlines()[-1])["predictions"][0]) == 10
            (answer,) = json.loads(run(ask.text).splitlines()[-1])["predictions"]
            assert answer.index(max(answer)) == 7, answer
        assert child.returncode == 0

"""`tfimg run` on a real engine: what a program in a container is given, and what its end leaves behind."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import run_tfimg, start_tfimg
from support.containers import container
from support.docker_daemon import wait_until
from support.registry_container import docker
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, Built

pytestmark = pytest.mark.full

FOREIGN = "tfimg-test/tensorflow:foreign"


def test_the_status_of_the_program_is_ours(built: Built) -> None:
    ended = run_tfimg("run", built.name, "--", "python", "-c", "print('out'); raise SystemExit(42)")
    assert (ended.code, ended.stdout) == (42, "out\n"), ended.stderr


def test_the_program_reads_our_standard_input(built: Built) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfimg", "run", built.name, "--", "python", "-c", "print(input()[::-1])"],
        input="abc\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "cba\n"), done.stderr


def test_options_reach_the_container(built: Built, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("shown")
    tmp_path.chmod(0o755)
    program = "import os; print(os.getcwd(), open('file').read(), os.environ['X'], os.getuid())"
    options = ("-v", f"{tmp_path}:/work:ro", "-w", "/work", "-e", "X=-y", "-u", "4321:4321", "--shm-size", "128m")
    ended = run_tfimg("run", built.name, *options, "--", "python", "-c", program)
    assert (ended.code, ended.stdout) == (0, "/work shown -y 4321\n"), ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_program_owns_what_it_writes(built: Built, tmp_path: Path) -> None:
    os.chown(tmp_path, 4321, 4322)
    program = 'touch new && echo "$(id -u) $(id -g)" && touch "$HOME/new"'
    ended = run_tfimg("run", built.name, "-v", f"{tmp_path}:/work", "-w", "/work", "--", "sh", "-c", program)
    assert (ended.code, ended.stdout) == (0, "4321 4322\n"), ended.stderr
    written = (tmp_path / "new").stat()
    assert (written.st_uid, written.st_gid) == (4321, 4322)


def test_an_interrupt_leaves_no_container(built: Built, engine: DockerEngine) -> None:
    name = f"tfimg-test-{secrets.token_hex(8)}"
    program = "import time; print('up', flush=True); time.sleep(600)"

    def containers() -> list[str]:
        return docker("ps", "--all", "--quiet", f"--filter=name={name}", host=engine.host).split()

    arguments = ("run", built.name, "--name", name, "--", "python", "-c", program)
    with start_tfimg(*arguments, env={}) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        assert len(containers()) == 1
        child.send_signal(signal.SIGINT)
        # What Python does at an interrupt, and tini passes on.
        assert child.wait(60) == 130
    wait_until(lambda: containers() == [])


@pytest.fixture
def foreign(engine: DockerEngine, built: Built) -> Iterator[str]:
    """An image that says nothing of itself: the built one's files, without its labels."""
    with container(engine, built.name) as prepared:
        docker("commit", "--change=LABEL tfimg.identifier=", prepared.start()._container.id, FOREIGN, host=engine.host)
    yield FOREIGN
    engine.remove(FOREIGN)


def test_an_image_without_labels_is_foreign(foreign: str) -> None:
    assert run_tfimg("run", foreign).code == 3
    ended = run_tfimg("run", foreign, "--as", IDENTIFIER, "--", "python", "-c", "print(1)")
    assert (ended.code, ended.stdout) == (0, "1\n"), ended.stderr

"""What several tiers share: the wheel, built from this checkout and installed away from it."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from uv import find_uv_bin

from support.paths import ROOT
from support.rotation import group_of, today
from support.session import Session, run_once, session_folder
from tfimg.index.network import read_host_network, read_pip_settings

SESSION = pytest.StashKey[Session]()


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach what tests start, also in the background, and start the session once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        # Rewriting the asserts of all tests takes seconds in each worker; the next run finds what this one has cached.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        config.stash[SESSION] = Session()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from what lives to the end, such as 9,000 tests: a sixth of all processor time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests whose turn it is not, unless the command line names files or tests."""
    if [Path(one).resolve() for one in config.args] != [ROOT / one for one in config.getini("testpaths")]:
        return
    waiting = {
        item for item in items if (mark := item.get_closest_marker("group")) and mark.args[0] != group_of(today())
    }
    if waiting:
        config.hook.pytest_deselected(items=list(waiting))
        items[:] = [item for item in items if item not in waiting]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes and texts without backslashes: mutation testing collects twice, and pytest escapes them each time."""
    if isinstance(val, str | bytes) and len(val) <= 100 and "\\" in ascii(val):
        return ascii(val).replace("\\", "/")
    return None


@pytest.hookimpl(optionalhook=True)  # mutation testing runs without xdist
def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores: tests wait for the engine, the package index and the disk."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the tests left in the engine."""
    if session := config.stash.get(SESSION, None):
        session.end()


@dataclass(frozen=True, kw_only=True)
class Installed:
    """tfimg's wheel, a virtual environment that has nothing but it, and an empty folder to run it in."""

    wheel: Path
    environment: Path
    elsewhere: Path

    @property
    def program(self) -> Path:
        return self.environment / "bin/tfimg"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel and install it into an empty environment: once in a run, for all workers."""
    wheel, environment = run_once("installed", _install)
    return Installed(wheel=Path(wheel), environment=Path(environment), elsewhere=tmp_path_factory.mktemp("elsewhere"))


def _install() -> tuple[str, str]:
    folder = session_folder() / "installed"
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    (wheel,) = folder.glob("tfimg-*.whl")
    environment = folder / "environment"
    # uv installs in seconds what takes pip half a minute; it needs pip's settings as variables.
    env = read_host_network(os.environ, read_pip_settings()).environment(os.environ)
    for arguments in (
        ["venv", "--python", sys.executable, str(environment)],
        ["pip", "install", "--python", str(environment), str(wheel)],
    ):
        done = subprocess.run([find_uv_bin(), *arguments], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return str(wheel), str(environment)

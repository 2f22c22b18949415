"""What several tiers share: the wheel, built from this checkout and installed away from it."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.paths import ROOT
from support.session import Session

SESSION = pytest.StashKey[Session]()


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach what tests start, also in the background, and start the session once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.stash[SESSION] = Session()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what the tests left in the engine."""
    if session := config.stash.get(SESSION, None):
        session.end()


@dataclass(frozen=True, kw_only=True)
class Installed:
    """tfimg in an environment of its own."""

    wheel: Path
    program: Path
    elsewhere: Path


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel, make an empty environment, install nothing but the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    wheel = next(folder.glob("tfimg-*.whl"))
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    return Installed(wheel=wheel, program=environment / "bin/tfimg", elsewhere=elsewhere)

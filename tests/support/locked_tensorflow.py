"""A real TensorFlow, installed from an image's lock, for checks that need one and no container."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from packaging.version import Version
from uv import find_uv_bin

from support.paths import ROOT
from support.session import run_once, session_folder
from tfimg.index.network import read_host_network, read_pip_settings

SUITE = ROOT / "images" / "validation"
LOCKS = ROOT / "images" / "locks"
PYTHON = f"py{sys.version_info.major}.{sys.version_info.minor}"
SUFFIX = f"-cpu-{PYTHON}" + ("-arm64" if platform.machine() == "aarch64" else "")
# Set while coverage measures the processes that tests start (tests/accelerators).
MEASURED = "COVERAGE_PROCESS_START"


def locked_releases() -> list[str]:
    """Return the releases that have a CPU image for this Python, oldest first."""
    return sorted((file.name.removesuffix(SUFFIX) for file in LOCKS.glob(f"*{SUFFIX}")), key=Version)


def tensorflow_python(release: str) -> Path:
    """Install what the lock of a release's CPU image names, once in a test run; return its interpreter."""
    return locked_python(f"{release}{SUFFIX}")


def locked_python(identifier: str) -> Path:
    """Install what the lock of an image names, once in a test run; return the interpreter.

    Where coverage measures the tests, the environment has it too.
    """
    return Path(run_once(f"locked-{identifier}", lambda: _install(identifier)))


def run_python(python: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script that can import TensorFlow and the suite's modules."""
    environment = {**os.environ, "PYTHONPATH": str(SUITE), "TF_CPP_MIN_LOG_LEVEL": "1", **variables}
    return subprocess.run([str(python), "-c", script], env=environment, capture_output=True, text=True, timeout=300)


def _install(identifier: str) -> str:
    # images/on_host/run.py names the folder of its virtual environment so.
    folder = session_folder() / identifier / "environment"
    # uv needs pip's settings as variables.
    environment = read_host_network(os.environ, read_pip_settings()).environment(os.environ)
    files = sorted((LOCKS / identifier).glob("*.txt"))
    requirements = [part for file in files for part in ("--requirement", str(file))]
    install = ["pip", "install", "--python", str(folder)]
    commands = [
        ["venv", "--python", sys.executable, str(folder)],
        [*install, "--require-hashes", "--no-deps", *requirements],
        *([[*install, f"coverage=={version('coverage')}"]] if MEASURED in os.environ else []),
    ]
    for command in commands:
        done = subprocess.run([find_uv_bin(), *command], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return str(folder / "bin" / "python")

"""Make a virtual environment of an image's locked wheels, and the variables that its suite needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_OUTPUT = 600
"""Characters of a failed command's output in a message."""


class NotRun(Exception):
    """The suite was not run; the message says why, and what to do."""


def make_environment(minor: str, locks: Sequence[Path], wheels: Path, work: Path, interpreter: str | None) -> Path:
    """Make a virtual environment in `work` with exactly the locked wheels, and return its interpreter.

    `minor` is the Python that it has to have, `wheels` the folder of the wheels. Raises `NotRun`.
    """
    interpreter = interpreter or shutil.which(f"python{minor}")
    if interpreter is None and minor == f"{sys.version_info.major}.{sys.version_info.minor}":
        interpreter = sys.executable
    if interpreter is None:
        raise NotRun(f"this machine has no python{minor}; install it, or name it with --python PATH")
    print(f"making an environment with {interpreter}", flush=True)
    environment = work / "environment"
    _run([interpreter, "-m", "venv", str(environment)], "the environment", "Debian and Ubuntu need python3-venv")
    python = str(environment / "bin" / "python")
    version = _run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], "the interpreter", "").strip()
    if version != minor:
        raise NotRun(f"{interpreter} is Python {version}, and the image is for {minor}")
    pip = [python, "-I", "-m", "pip", "--isolated", "--disable-pip-version-check"]
    options = ["--quiet", "--no-index", "--no-deps", "--no-cache-dir", "--require-hashes", f"--find-links={wheels}"]
    requirements = [f"--requirement={file}" for file in locks]
    _run([*pip, "install", *options, *requirements], "the wheels", "fill --wheels with `pip download`, see --help")
    return Path(python)


def _run(command: Sequence[str], what: str, hint: str) -> str:
    """Return the standard output of a command. Raises `NotRun`."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    except OSError as error:
        raise NotRun(f"{what} cannot be made: {error}") from None
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())[-MAX_OUTPUT:]
        raise NotRun(f"{what} cannot be made ({hint}): {output or f'status {done.returncode}'}")
    return done.stdout


def make_variables(work: Path) -> dict[str, str]:
    """Return the variables of the suite's process.

    An image lets the loader find NVIDIA's libraries with ld.so.conf.d, and XLA with /usr/local/cuda. Here variables do
    the same, for every release: which libraries TensorFlow finds without them differs between releases.
    """
    environment = work / "environment"
    # The user's PYTHON* variables could add modules that are not of the release.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables["VIRTUAL_ENV"] = str(environment)
    paths = [str(environment / "bin")]
    libraries = sorted(str(path) for path in environment.glob("lib/python3*/site-packages/nvidia/*/lib"))
    if libraries:
        links = str(link_unversioned(libraries, work / "links"))
        variables["LD_LIBRARY_PATH"] = ":".join([links, *libraries, *_list_inherited("LD_LIBRARY_PATH")])
    for compiler in environment.glob("lib/python3*/site-packages/nvidia/cuda_nvcc"):
        paths.append(str(compiler / "bin"))
        flags = os.environ.get("XLA_FLAGS", "").split()
        variables["XLA_FLAGS"] = " ".join([f"--xla_gpu_cuda_data_dir={compiler}", *flags])
    variables["PATH"] = ":".join([*paths, *_list_inherited("PATH")])
    return variables


def _list_inherited(name: str) -> list[str]:
    return [path for path in os.environ.get(name, "").split(":") if path]


def link_unversioned(libraries: Sequence[str], folder: Path) -> Path:
    """Make a folder of library names without a version, which wheels lack, as images/build/nvidia does.

    TensorFlow 2.10 and 2.11 load libcupti.so.11.2, which no wheel has, and then libcupti.so; cuDNN 8.6 and 8.7 load
    libnvrtc.so, and abort the process without it.
    """
    folder.mkdir(exist_ok=True)
    for name in ("libcupti.so", "libnvrtc.so"):
        found = [path for library in libraries for path in sorted(Path(library).glob(f"{name}.1*"))]
        if found:
            (folder / name).symlink_to(found[0])
    return folder

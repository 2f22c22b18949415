"""Make a virtual environment of a release's wheels, and the variables that its suite needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wheel_files import NotRun, find_folder, read_description

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

MAX_OUTPUT = 600
"""Characters of a failed command's output in a message."""


def make_environment(release: Mapping[str, Any], folder: Path, shared: Path, pythons: Mapping[str, str]) -> Path:
    """Make a virtual environment with exactly the wheels of a release, and return its interpreter.

    `shared` is the folder for joined wheels, `pythons` has interpreters by minor version. Raises `NotRun`.
    """
    minor = release["python"]
    interpreter = pythons.get(minor) or shutil.which(f"python{minor}")
    if interpreter is None and minor == f"{sys.version_info.major}.{sys.version_info.minor}":
        interpreter = sys.executable
    if interpreter is None:
        raise NotRun(f"this machine has no python{minor}; install it, or name it with --python {minor}=PATH")
    shutil.rmtree(folder, ignore_errors=True)
    print(f"  environment of {len(release['wheels'])} wheels, with {interpreter}", flush=True)
    environment = folder / "environment"
    _run([interpreter, "-m", "venv", str(environment)], "the environment", "Debian and Ubuntu need python3-venv")
    python = str(environment / "bin" / "python")
    version = _run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], "the interpreter", "").strip()
    if version != minor:
        raise NotRun(f"{interpreter} is Python {version}, and the release is for {minor}")
    lock = folder / "lock.txt"
    lock.write_text(release["requirements"], encoding="utf-8")
    folders = {find_folder(read_description(sha), shared) for sha in release["wheels"]}
    links = [f"--find-links={path}" for path in sorted(folders)]
    pip = [python, "-I", "-m", "pip", "--isolated", "--disable-pip-version-check"]
    options = ["--quiet", "--no-index", "--no-deps", "--no-cache-dir", "--require-hashes", "--requirement", str(lock)]
    _run([*pip, "install", *options, *links], "the wheels", "a newer pip may know their tags")
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


def make_variables(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of the suite's process, and those that were set, with `{folder}` for the folder's path.

    An image lets the loader find NVIDIA's libraries with ld.so.conf.d, and XLA with /usr/local/cuda. Here variables do
    the same, for every release: which libraries TensorFlow finds without them differs between releases.
    """
    environment = folder / "environment"
    # The user's PYTHON* variables could add modules that are not of the release.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    paths = [str(environment / "bin")]
    libraries = sorted(str(path) for path in environment.glob("lib/python3*/site-packages/nvidia/*/lib"))
    chosen: dict[str, str] = {"VIRTUAL_ENV": str(environment)}
    if libraries:
        links = str(link_unversioned(libraries, folder / "links"))
        chosen["LD_LIBRARY_PATH"] = ":".join([links, *libraries, *_list_inherited("LD_LIBRARY_PATH")])
    for compiler in environment.glob("lib/python3*/site-packages/nvidia/cuda_nvcc"):
        paths.append(str(compiler / "bin"))
        flags = os.environ.get("XLA_FLAGS", "").split()
        chosen["XLA_FLAGS"] = " ".join([f"--xla_gpu_cuda_data_dir={compiler}", *flags])
    # The rest of PATH does not matter for the record.
    recorded = {name: value.replace(str(folder), "{folder}") for name, value in chosen.items()}
    recorded["PATH"] = ":".join(path.replace(str(folder), "{folder}") for path in paths)
    return {**inherited, **chosen, "PATH": ":".join([*paths, *_list_inherited("PATH")])}, recorded


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

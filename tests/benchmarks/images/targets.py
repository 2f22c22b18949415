"""What is built: an image of tfimg's matrix, as every contestant has to build it, and the knob that is turned."""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.images.failure import CannotMeasure
from tfimg.core.process import CommandFailed, run

ROOT = Path(__file__).parents[3]
PROGRAM = (sys.executable, "-m", "tfimg")

KNOB = "werkzeug"
"""The package whose version the one-knob change is: pure Python, 0.2 MB, and every TensorFlow has it."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An image: its identifier, the distribution that has TensorFlow, and the locked requirements."""

    identifier: str
    tensorflow: str
    python: str
    device: str
    package: str
    requirements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Knob:
    """Another version of one package, with the hash of its wheel."""

    requirement: str
    hash: str

    @property
    def name(self) -> str:
        """The package."""
        return self.requirement.partition("==")[0]


def target(tensorflow: str, python: str, device: str) -> Target:
    """Ask tfimg which image this is, and read its lock."""
    options = [f"--tf={tensorflow}", f"--python={python}", f"--device={device}", "--json"]
    found = json.loads(ask([*PROGRAM, "resolve", *options]))
    files = sorted((ROOT / "images/locks" / found["identifier"]).glob("*.txt"))
    return Target(
        identifier=found["identifier"], tensorflow=found["tensorflow"], python=found["python"], device=device,
        package=found["package"], requirements=requirements(file.read_text() for file in files),
    )  # fmt: skip


def ask(argv: Sequence[str]) -> str:
    """What a program of this checkout says. Raises `CannotMeasure` when it refuses."""
    try:
        return run(argv, env={**os.environ, "PYTHONPATH": str(ROOT / "builder"), "TFIMG_WORKSPACE": str(ROOT)})
    except CommandFailed as failed:
        raise CannotMeasure(f"`{' '.join(argv[1:])}` failed: {failed.stderr.strip()}") from None


def requirements(texts: Iterable[str]) -> tuple[str, ...]:
    """Texts of lock files → `name==version` of each locked wheel."""
    return tuple(found for text in texts for found in re.findall(r"^([\w.-]+==\S+) ", text, re.MULTILINE))


def find_knob(locked: Target) -> Knob:
    """The newest version of the knob's package that is older than the locked one."""
    version = next(one for one in locked.requirements if one.startswith(f"{KNOB}==")).partition("==")[2]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        # The Python of the image may be older than this one, and so what it can have.
        options = ["--no-deps", "--only-binary=:all:", f"--python-version={locked.python}", f"--dest={folder}"]
        ask([*pip, "download", *options, f"{KNOB}<{version}"])
        wheel = next(Path(folder).iterdir())
        said = ask([*pip, "hash", str(wheel)])
    return Knob(requirement=f"{KNOB}=={wheel.name.split('-')[1]}", hash=said.split("--hash=")[1].strip())


def replace_version(requirements: tuple[str, ...], knob: Knob | None) -> tuple[str, ...]:
    """Requirements with the knob's version in place of the locked one."""
    if knob is None:
        return requirements
    return tuple(knob.requirement if one.startswith(f"{knob.name}==") else one for one in requirements)


def turned_workspace(folder: Path, knob: Knob) -> Path:
    """A copy of the checkout's facts whose locks have the knob's version, for tfimg to build from."""
    shutil.copytree(ROOT / "images", folder / "images", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "matrix.yaml", folder)
    for file in (folder / "images/locks").glob("*/*.txt"):
        file.write_text(turned_lock(file.read_text(), knob))
    return folder


def turned_lock(text: str, knob: Knob) -> str:
    """A lock file's text with the knob's version and hash."""
    line = re.compile(rf"^{re.escape(knob.name)}==\S+ --hash=\S+", re.MULTILINE)
    return line.sub(f"{knob.requirement} --hash={knob.hash}", text)

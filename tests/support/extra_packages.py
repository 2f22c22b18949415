"""A package index on loopback with packages that do and do not fit on top of TensorFlow 2.15.1, and a project on it."""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from uv import find_uv_bin

from support.environment import TestEnvironment
from support.memory_engine import FakeEngine
from support.package_index import File, PackageIndex, package_index
from support.paths import ROOT
from support.suite_events import done_event, end, make_output, start, suite
from tfimg.core.paths import Workspace
from tfimg.index.client import Index
from tfimg.matrix.schema import Platform
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.lock import read_packages
from tfimg.recipe.releases import Releases

IMAGE = "2.15.1-cpu-py3.11"
BASE = {f"docker.io/library/python:{python}-slim-bookworm": "sha256:1" for python in ("3.9", "3.10", "3.11")}
RUN_OUTPUT = make_output(suite("a"), start("a"), end("a"), done_event())
TODAY = datetime(2026, 11, 22, tzinfo=UTC)

RELEASES = """
numpy 1.26.4 2024-02-05
numpy 2.0.2 2024-03-01
protobuf 4.25.3 2024-02-15
protobuf 6.30.0 2025-03-01
tensorflow 2.15.0 2023-11-14 numpy<2
tensorflow 2.15.1 2024-03-08 numpy<2
tensorflow 2.16.1 2024-03-07 numpy<2
tensorflow 2.16.2 2024-06-28 numpy<2
wheel-user 1.0 2024-01-01
pandas 2.2.0 2024-01-20 numpy>=1.26
pandas 2.2.1 2024-02-23 numpy>=1.26
pandas 3.0.0 2026-01-20 numpy>=1.26
companion 2.15.0 2024-01-01 tensorflow<2.16,>=2.15.0
companion 2.16.0 2024-03-10 tensorflow<2.17,>=2.16.0
text 2.15.0 2024-01-01 tensorflow<2.16,>=2.15.0
text 2.21.0 2026-01-01 tensorflow<2.22,>=2.21.0
latecomer 1.0 2025-06-01 numpy
of-its-time 1.0 2025-06-02 latecomer
needs-windows 1.0 2024-01-01 windows-only>=1
only-new 2.16.0 2024-03-10 tensorflow<2.17,>=2.16.0
arrays 1.0 2024-01-01 numpy<2
arrays 2.0 2024-03-02 numpy>=2
messages 5.0 2025-04-01 protobuf>=6
needs-source 1.0 2024-01-01 source-only
left 1.0 2024-01-01 shared==1.0
right 1.0 2024-01-01 shared==2.0
shared 1.0 2024-01-01
shared 2.0 2024-01-01
needs-unknown 1.0 2024-01-01 no-such-thing
packaging 23.2 2023-10-01
mover 1.0 2024-01-01 packaging<24
rising 1.0 2022-01-01
rising 2.0 2024-03-01 protobuf==4.25.3
forced 2.0 2024-03-01 metadata
metadata 0.1 2021-01-01
lagging 1.0 2024-03-01 notes
notes 0.1 2021-01-01
notes 1.0 2024-02-01 packaging==23.2
holds 1.0 2024-03-01 notes<1
trailing 1.0 2024-03-01 midway
midway 0.1 2021-01-01
midway 1.0 2024-01-01 packaging==23.2
midway 1.1 2024-02-01 protobuf==4.25.3
since-source 1.0 2023-10-01
since-source 2.0 2024-03-01 source-only
loosened 1.0 2022-01-01 notes
loosened 2.0 2024-03-01 notes<1
metadata 1.0 2024-02-01 protobuf==4.25.3
bounded 1.0 2022-01-01
bounded 2.0 2024-03-01 numpy>=1.27
steady 1.0 2019-01-01
early 1.0rc1 2024-02-01
early 1.0rc2 2024-03-01
early 1.0 2025-06-01
never-final 0.1b1 2024-01-01
needs-never-final 1.0 2024-01-01 never-final
narrowed 2.0 2024-01-01
needs-narrowed 1.0 2024-01-01 narrowed>=1 narrows
narrows 1.0 2024-01-01 narrowed<2
nowhere 1.0 2024-01-01 numpy>=2 tensorflow<2.16
made 1.0 2023-01-01 tensorflow<2.17,>=2.16.0
made 2.0 2024-03-01 tensorflow<2.21,>=2.20.0 numpy<2
needs-late 1.0 2024-01-01 latecomer
wheel 0.45.0 2024-01-01
opencv-python 4.9.0 2024-01-01
tensorflow-addons 0.23.0 2023-11-28
tensorflow-probability 0.23.0 2023-11-20
tensorflow-probability 0.24.0 2024-03-12
onnxruntime-gpu 1.17.1 2024-02-26
torch 2.0.1 2023-05-08 nvidia-cudnn-cu11==8.5.0
torch 2.2.1 2024-02-22 nvidia-cudnn-cu12==8.9.2.26
xgboost 2.1.1 2024-03-01 nvidia-cudnn-cu12==8.9.2.26
nvidia-cudnn-cu11 8.5.0 2023-01-01
nvidia-cudnn-cu12 8.9.2.26 2023-06-01
"""
"""Name, version, day and requirement of each release, all as wheels for every Python."""


class RealUv(TestEnvironment):
    """An environment that resolves with the real uv; its package index is on loopback."""

    def uv(self) -> str:
        return find_uv_bin()

    def index(self) -> Index:
        return self.open_index(self.environ["UV_DEFAULT_INDEX"])

    def open_index(self, url: str) -> Index:
        return Index(url, attempts=1)  # no test waits for another attempt

    def releases(self, python: str, platform: Platform) -> Releases:
        return Services.releases(self, python, platform)


IMAGES = (
    IMAGE,
    "2.15.1-cpu-py3.10",
    "2.15.0-cpu-py3.10",
    "2.15.1-cuda12.2-py3.11",
    "2.16.1-cpu-py3.11",
    "2.16.2-cpu-py3.11",
    "2.17.1-cpu-py3.11",
    "2.18.1-cpu-py3.11",
    "2.20.0-cpu-py3.11",
)
"""Images whose locked packages the index has, without requirements but for those of `TENSORFLOW`."""

TENSORFLOW = {"2.15.1": "numpy<2.0.0,>=1.23.5 protobuf<5,>=3.20.3 absl-py>=1.0.0 packaging", "2.20.0": "protobuf>=5.28"}
"""What TensorFlow requires, by release."""


def read_locks() -> str:
    """Return the packages of the images' locks in the form of `RELEASES`, each once."""
    lines: dict[tuple[str, str], str] = {}
    for image in IMAGES:
        lock = Workspace(root=ROOT).read_lock(image)
        for one in read_packages(lock):
            requires = TENSORFLOW.get(one.version, "") if one.name == "tensorflow-cpu" else ""
            lines[one.name, one.version] = f"{one.name} {one.version} {one.appeared or '2024-01-01'} {requires}\n"
    return "".join(line for (name, version), line in lines.items() if f"\n{name} {version} " not in RELEASES)


def fill_index(index: PackageIndex, more: str = "") -> None:
    """Give an index the releases, the packages of the images, `more` of them, and packages without wheels."""
    more = f"{read_locks()}{more}"
    for line in f"{RELEASES}{more}".strip().splitlines():
        name, version, day, *requires = line.split()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        text += "".join(f"Requires-Dist: {one}\n" for one in requires)
        file = File(
            f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
            uploaded=f"{day}T12:00:00Z",
            metadata=text,
            sha256=hashlib.sha256(line.encode()).hexdigest(),
        )
        index.files.setdefault(name, []).append(file)
    for name, tags in (("windows-only", "cp311-cp311-win_amd64"), ("old-python", "cp37-cp37m-manylinux2014_x86_64")):
        wheel = File(f"{name.replace('-', '_')}-1.0-{tags}.whl", sha256="0" * 64, uploaded="2024-01-01T00:00:00Z")
        index.files[name] = [wheel]
    wheels = {"1.0-cp310-cp310": "2024-01-01", "1.1-cp311-cp311": "2024-06-01"}
    index.files["other-python"] = [
        File(
            f"other_python-{name}-manylinux2014_x86_64.whl",
            sha256="0" * 64,
            uploaded=f"{day}T00:00:00Z",
            metadata=f"Metadata-Version: 2.1\nName: other-python\nVersion: {name.partition('-')[0]}\n",
        )
        for name, day in wheels.items()
    ]
    for name, version, python, needs in (
        ("of-earlier-pythons", "1.0", None, ""),
        ("of-earlier-pythons", "2.0", ">=3.7,<3.10", ""),
        ("of-earlier-both", "1.0", ">=3.8,<3.11", "Requires-Dist: tensorflow==2.15.0\n"),
    ):
        wheel = File(
            f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
            sha256="0" * 64,
            uploaded="2024-01-01T00:00:00Z",
            metadata=f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
            requires_python=python,
        )
        index.files.setdefault(name, []).append(wheel)
    for name in ("source-only", "second-source", "third-source", "late-source", "narrowed"):
        day = "2025-06-01" if name == "late-source" else "2024-01-01"
        stem = f"{name.replace('-', '_')}-1.0"
        source = make_archive(stem)
        digest = hashlib.sha256(source).hexdigest()
        file = File(f"{stem}.tar.gz", source, sha256=digest, uploaded=f"{day}T00:00:00Z")
        index.files.setdefault(name, []).append(file)


def make_archive(folder: str) -> bytes:
    """Return a source archive whose build is that of setuptools."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(f"{folder}/setup.py"))
    return gzip.compress(content.getvalue(), mtime=0)


@contextmanager
def extra_packages_index(folder: Path, more: str = "") -> Iterator[dict[str, str]]:
    """Serve the releases and `more` of them; yield the variables that point uv at them."""
    with package_index() as index:
        fill_index(index, more)
        yield {"UV_DEFAULT_INDEX": f"{index.url}/simple", "UV_CACHE_DIR": str(folder / "uv")}


@contextmanager
def extra_packages_project(folder: Path, workspace: Workspace, find_links: Path | None = None) -> Iterator[Project]:
    """Yield a project of the committed locks whose package index has the releases above."""
    with extra_packages_index(folder) as variables:
        environ = {
            **variables,
            "TFIMG_STATE": str(folder / "state"),
            "HOME": str(folder),
            "PATH": os.defpath,
            "TFIMG_WORKSPACE": str(workspace.root),
        }
        yield Project(services=RealUv(environ=environ, time=TODAY), find_links=find_links)


def extra_packages_engine() -> FakeEngine:
    """Return an engine that can resolve the official bases, and in which a suite of one check passes."""
    return FakeEngine(run_output=RUN_OUTPUT, remote=BASE)

"""Fifty planted advisories about packages of three images, and the package index that their fixes come from.

Names and locked versions are real, identifiers, later releases and most of their requirements are made up.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.accepted_risks import replace_risks
from support.advisories import advisory, affected, below
from support.package_index import File, PackageIndex
from tfimg.core.paths import Workspace
from tfimg.recipe.lock import LockedPackage, read_packages

OLD, GPU, NEW = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.21.0-cpu-py3.11"
NOTEBOOK = f"{NEW}-jupyter"
IMAGES = (OLD, GPU, NEW, NOTEBOOK)

ALL = ({"introduced": "0"},)

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "tensorflow 2.15.1": (
        "keras<2.16,>=2.15.0", "numpy<2.0.0,>=1.23.5", "ml-dtypes~=0.3.1", "wrapt<1.15,>=1.11.0",
        "tensorboard<2.16,>=2.15", "protobuf!=4.21.0,<5.0.0dev,>=3.20.3", "grpcio<2.0,>=1.24.3",
        "tensorflow-estimator<2.16,>=2.15.0",
    ),
    "tensorflow 2.21.0": (
        "keras>=3.12.0", "ml-dtypes<1.0.0,>=0.5.1", "protobuf<8.0.0,>=6.31.1", "h5py<3.15.0,>=3.11.0",
    ),
    "tensorboard 2.15.2": (
        "google-auth<3,>=1.6.3", "werkzeug>=1.0.1", "markdown>=2.6.8", "requests<3,>=2.21.0", "six<1.17",
    ),
    "tensorboard 2.15.3": ("google-auth<3,>=1.6.3", "werkzeug>=1.0.1", "markdown>=2.6.8", "requests<3,>=2.21.0"),
    "keras 3.15.0": ("namex<0.2", "rich", "h5py", "optree"),
    "keras 3.16.0": ("namex<0.2", "rich", "h5py", "optree"),
    "keras 3.17.0": ("namex<0.2", "rich", "h5py", "optree"),
    "google-auth 2.29.0": ("cachetools<6.0,>=2.0.0", "pyasn1-modules>=0.2.1", "rsa<5,>=3.1.4"),
    "pyasn1-modules 0.4.2": ("pyasn1<0.7.0,>=0.6.1",),
    "pyasn1-modules 0.5.0": ("pyasn1<0.8.0,>=0.6.1",),
    "rsa 4.9.2": ("pyasn1>=0.7.0",),
    "requests 2.34.2": ("urllib3<3,>=1.26", "idna<4,>=2.5", "certifi", "charset-normalizer<4,>=2"),
    "requests-oauthlib 2.0.0": ("oauthlib>=3.0.0", "requests>=2.0.0"),
    "oauthlib 3.3.0": ("requests>=2.35",),
    "astunparse 1.6.4": ("new-parser",),
    "gast 0.5.5": ("new-affected",),
    "gast 0.7.1": ("new-affected",),
    "jinja2 3.1.6": ("markupsafe<3.1",),
    "flatbuffers 25.13.0": ("Requires-Python: >=3.13",),
}  # fmt: skip
"""Requirements of releases. Those of TensorFlow and JupyterLab also name every other package of their lock."""

RELEASES = """
werkzeug 3.1.10
werkzeug 3.2.0
grpcio 1.62.2
grpcio 1.63.2
urllib3 2.8.1
urllib3 2.8.2
idna 3.21
certifi 2026.11.1
markdown 3.11.4
requests 2.35.0
requests 3.0.0
google-auth 2.30.0
cachetools 5.5.0
cachetools 6.0.0
google-pasta 0.3.0
keras 2.16.0
keras 3.16.0
keras 3.17.0
numpy 2.0.2
numpy 2.4.4
ml-dtypes 0.4.0
ml-dtypes 0.5.5
wrapt 1.15.0
wrapt 2.1.3
protobuf 4.25.9
protobuf 5.29.5
protobuf 7.34.2
protobuf 8.0.0
h5py 3.14.1
h5py 3.15.0
setuptools 82.0.1
six 1.17.0
tensorboard 2.15.3
namex 0.2.0
rich 14.3.4
optree 0.19.1
pillow 13.0.1
pygments 2.21.0
rsa 4.9.2
pyasn1 0.7.0
pyasn1-modules 0.5.0
oauthlib 3.3.0
astunparse 1.6.4
new-parser 1.0
gast 0.5.5
gast 0.5.6
gast 0.7.1
gast 0.7.2
new-affected 1.0
markupsafe 3.0.5
markupsafe 3.1.0
tornado 6.9.1
packaging 26.1
pip 26.3.1
flatbuffers 25.13.0
absl-py 2.4.1rc1
termcolor 3.4.0 yanked
libclang 18.2.0 windows
tensorflow 2.16.1
tensorflow-cpu 2.16.1
nvidia-cudnn-cu12 8.9.7.29
nvidia-cublas-cu12 12.2.6.1
"""
"""Name and version of each later release, with what is special of its file."""


@dataclass(frozen=True)
class Plant:
    """A planted advisory: what it is meant to show, and its document."""

    kind: str
    document: Mapping[str, Any]

    @property
    def identifier(self) -> str:
        return str(self.document["id"])

    @property
    def package(self) -> str:
        return ", ".join(dict.fromkeys(part["package"]["name"] for part in self.document["affected"]))


def _plants() -> list[Plant]:
    found: list[Plant] = []

    def plant(kind: str, *parts: Mapping[str, Any], **fields: Any) -> None:
        found.append(Plant(kind, advisory(f"TFIMG-TEST-{len(found) + 1:02}", *parts, **fields)))

    def simple(kind: str, name: str, *events: Mapping[str, str], **fields: Any) -> None:
        plant(kind, affected(name, *events), **fields)

    for name, fixed in (
        ("werkzeug", "3.1.10"), ("idna", "3.21"), ("certifi", "2026.11.1"), ("markdown", "3.11.4"),
        ("requests", "2.35.0"), ("cachetools", "5.5.0"), ("google-auth", "2.30.0"), ("rich", "14.3.4"),
        ("optree", "0.19.1"), ("pillow", "13.0.1"), ("pip", "26.3.1"),
    ):  # fmt: skip
        simple("fixable", name, *below(fixed))
    simple("only a newer minor", "grpcio", *below("1.63.2", "1.62"))
    simple("only a newer minor", "pygments", *below("2.21.0"))
    simple("the next release has another defect", "urllib3", *below("2.8.1"))
    plant("the next release has another defect", affected("urllib3", versions=["2.8.1"]))
    simple("last affected version", "packaging", {"introduced": "25"}, {"last_affected": "26.0"})
    plant("listed versions", affected("tornado", versions=["6.5.6", "6.5.7", "6.5.8"]))
    plant(
        "two branches",
        affected("keras", {"introduced": "0"}, {"fixed": "3.12.9"}, {"introduced": "3.13.0"}, {"fixed": "3.17.0"}),
    )
    simple(
        "two branches", "protobuf", {"introduced": "0"}, {"fixed": "4.25.9"}, {"introduced": "5"}, {"fixed": "7.34.2"}
    )
    simple("bounded by TensorFlow", "numpy", *below("2.4.4"))
    simple("bounded by TensorFlow", "ml-dtypes", *below("0.5.5"))
    simple("bounded by TensorFlow", "wrapt", *below("2.1.3"))
    simple("bounded by TensorFlow", "h5py", *below("3.15.0", "3.12"))
    simple("bounded by Keras", "namex", *below("0.2.0"))
    simple("bounded by the matrix", "setuptools", *below("82"))
    simple("bounded by a variant", "markupsafe", *below("3.1.0"))
    simple("another package moves too", "rsa", *below("4.9.2"))
    simple("another package moves too", "oauthlib", *below("3.3.0"))
    simple("another package moves too", "six", *below("1.17"))
    simple("the fix needs a new package", "astunparse", *below("1.6.4"))
    simple(
        "the fix needs a vulnerable package",
        "gast",
        *below("0.5.5"),
    )
    plant("a package that is not installed yet", affected("new-affected", *ALL))
    simple("no fixed release", "opt-einsum", *ALL)
    simple("no fixed release", "google-pasta", *ALL)
    simple("the fix needs a newer Python", "flatbuffers", *below("25.13"))
    simple("the fix is a pre-release", "absl-py", *below("2.4.1rc1"))
    simple("the fix was yanked", "termcolor", *below("3.4"))
    simple("the fix has no wheel for Linux", "libclang", *below("18.2"))
    plant("TensorFlow itself", affected("tensorflow", *below("2.16.1")), affected("tensorflow-cpu", *below("2.16.1")))
    simple("NVIDIA package", "nvidia-cudnn-cu12", *below("8.9.7"))
    simple("NVIDIA package", "nvidia-cublas-cu12", *below("12.2.6"))
    simple("withdrawn", "werkzeug", *below("99"), withdrawn="2026-06-01T00:00:00Z")
    simple("the same defect under another name", "idna", *below("3.21"), aliases=["TFIMG-TEST-02"])
    simple("not installed", "pandas", *below("99"))
    simple("not installed", "torch", *below("99"))
    plant("another ecosystem", affected("requests", *ALL, ecosystem="npm"))
    simple("an accepted risk", "typing-extensions", *ALL)
    plant("Debian package", affected("glibc", *below("2.36-9+deb12u13"), ecosystem="Debian:12"))
    plant("Debian package", affected("base-files", *below("12.4+deb12u12"), ecosystem="Debian:12"))
    plant("Debian package of another release", affected("glibc", *below("2.41-13"), ecosystem="Debian:13"))
    return found


PLANTS = tuple(_plants())

ACCEPTED = """\
  - {advisories: [TFIMG-TEST-47], package: typing-extensions, reason: no release fixes it, review_by: 2027-01-31}
"""


def copy_workspace(workspace: Workspace, root: Path) -> Workspace:
    """Copy a workspace with the locks of the images alone, and accept a risk in its matrix."""
    others = shutil.ignore_patterns("2.[0-9]*.[0-9]*-*", "rendered", "__pycache__")
    shutil.copytree(workspace.images, root / "images", ignore=others)
    copy = Workspace(root=root)
    for identifier in IMAGES:
        shutil.copytree(workspace.locks(identifier), copy.locks(identifier))
    shutil.copy(workspace.matrix, copy.matrix)
    replace_risks(copy.matrix, ACCEPTED)
    return copy


def fill_index(index: PackageIndex, workspace: Workspace) -> None:
    """Give an index the locked releases of the images with their hashes, and the later ones."""
    for identifier in IMAGES:
        locked = read_packages(workspace.read_lock(identifier))
        for package in locked:
            _add(
                index, package.name, package.version, _requirements(package, locked), sha256=package.sha256,
                day=str(package.appeared),
            )  # fmt: skip
    for line in RELEASES.strip().splitlines():
        name, version, *special = line.split()
        tag = "py3-none-win_amd64" if "windows" in special else "py3-none-any"
        _add(index, name, version, REQUIREMENTS.get(f"{name} {version}", ()), tag=tag, yanked="yanked" in special)


def _requirements(package: LockedPackage, locked: tuple[LockedPackage, ...]) -> list[str]:
    alias = "tensorflow" if package.name == "tensorflow-cpu" else package.name
    stated = list(REQUIREMENTS.get(f"{alias} {package.version}", ()))
    if alias == "tensorflow" or package.name == "jupyterlab":
        named = " ".join(stated)
        stated += [other.name for other in locked if other.name not in (package.name, *named.split())]
    return stated


def _add(
    index: PackageIndex, name: str, version: str, requires: Any, *, tag: str = "py3-none-any", yanked: bool = False,
    sha256: str | None = None, day: str = "2026-11-20",
) -> None:  # fmt: skip
    filename = f"{name.replace('-', '_')}-{version}-{tag}.whl"
    if any(file.sha256 == sha256 for file in index.files.get(name, ()) if sha256):
        return
    lines = [one if one.startswith("Requires-Python") else f"Requires-Dist: {one}" for one in requires]
    metadata = "\n".join([f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *lines, ""])
    # Wheels for several Pythons have the same version and other hashes.
    number = len(index.files.get(name, ()))
    build = f"-{number}" if any(f"-{version}-" in file.name for file in index.files.get(name, ())) else ""
    filename = f"{name.replace('-', '_')}-{version}{build}-{tag}.whl"
    digest = sha256 or hashlib.sha256(filename.encode()).hexdigest()
    file = File(filename, uploaded=f"{day}T12:00:00Z", metadata=metadata, sha256=digest, yanked=yanked)
    index.files.setdefault(name, []).append(file)

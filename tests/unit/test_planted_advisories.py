"""Fifty planted advisories: each is fixed or explained by `audit` and `lock --fix`. With the real uv, on loopback."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from support.accepted_risks import replace_risks
from support.advisories import advisory, affected, below, osv_server
from support.cli import CliResult, CliRunner
from support.extra_packages import RealUv
from support.inventories import INVENTORY
from support.memory_engine import FakeEngine, stored_image
from support.package_index import File, PackageIndex, package_index
from support.paths import ROOT
from tfimg.core.paths import Workspace
from tfimg.engine.interface import Exit, Line
from tfimg.index.client import Index
from tfimg.project.project import Project
from tfimg.recipe.lock import LockedPackage, find_fixes, read_packages, resolve_lock

pytestmark = pytest.mark.full

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
werkzeug 3.1.10, werkzeug 3.2.0, grpcio 1.62.2, grpcio 1.63.2, urllib3 2.8.1, urllib3 2.8.2, idna 3.21,
certifi 2026.11.1, markdown 3.11.4, requests 2.35.0, requests 3.0.0, google-auth 2.30.0, cachetools 5.5.0,
cachetools 6.0.0, google-pasta 0.3.0, keras 2.16.0, keras 3.16.0, keras 3.17.0, numpy 2.0.2, numpy 2.4.4,
ml-dtypes 0.4.0, ml-dtypes 0.5.5, wrapt 1.15.0, wrapt 2.1.3, protobuf 4.25.9, protobuf 5.29.5, protobuf 6.33.7,
protobuf 8.0.0, h5py 3.14.1, h5py 3.15.0, setuptools 82.0.1, six 1.17.0, tensorboard 2.15.3, namex 0.2.0, rich 14.3.4,
optree 0.19.1, pillow 13.0.1, pygments 2.21.0, rsa 4.9.2, pyasn1 0.7.0, pyasn1-modules 0.5.0, oauthlib 3.3.0,
astunparse 1.6.4, new-parser 1.0, gast 0.5.5, gast 0.5.6, gast 0.7.1, gast 0.7.2, new-affected 1.0, markupsafe 3.0.5,
markupsafe 3.1.0, tornado 6.9.1, packaging 26.1, pip 26.3.1, flatbuffers 25.13.0, absl-py 2.4.1rc1,
termcolor 3.4.0 yanked, libclang 18.2.0 windows, tensorflow 2.16.1, tensorflow-cpu 2.16.1, nvidia-cudnn-cu12 8.9.7.29,
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
        "two branches", "protobuf", {"introduced": "0"}, {"fixed": "4.25.9"}, {"introduced": "5"}, {"fixed": "6.33.7"}
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
    simple("the fix needs a vulnerable package", "gast", *below("0.5.5"))
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
    for line in re.split(r",\s+", RELEASES.strip()):
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


TABLE = ROOT / "tests/data/planted-advisories.md"
TODAY = datetime(2026, 11, 22, tzinfo=UTC)


class PlantedServices(RealUv):
    def index(self) -> Index:
        return self.open_index(self.environ["UV_DEFAULT_INDEX"])


@dataclass
class Run:
    """What the commands said, and the workspace before and after."""

    before: dict[str, dict[str, str]]
    after: dict[str, dict[str, str]]
    preview: Any
    notebook: Any
    partial: CliResult
    fixed: Any
    again: Any
    audited: Any
    image: Any
    relocked: Any


def read_locks(workspace: Workspace) -> dict[str, dict[str, str]]:
    return {identifier: workspace.read_lock(identifier) for identifier in IMAGES}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, workspace: Workspace) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("planted")
    copy = copy_workspace(workspace, home / "workspace")
    engine = FakeEngine(
        run_output=[Line(stream="stdout", text=json.dumps(INVENTORY)), Exit(status=0, out_of_memory=False)]
    )
    engine.names["mine:1"] = stored_image(labels={"tfimg.identifier": GPU})
    with package_index() as index, osv_server(*(plant.document for plant in PLANTS)) as osv:
        fill_index(index, copy)
        index.cached = True
        environ = {"UV_DEFAULT_INDEX": f"{index.url}/simple", "UV_CACHE_DIR": str(home / "uv")}
        environ["TFIMG_WORKSPACE"] = str(copy.root)
        tfimg = CliRunner(home=home, services=PlantedServices(docker=engine, time=TODAY), environ=environ)
        options = ("--osv", osv.url, "--json")
        before = read_locks(copy)
        audited = tfimg("matrix", "audit", OLD, GPU, NEW, *options).documents[0]
        image = tfimg("matrix", "audit", "--built", "mine:1", *options).documents[0]
        preview = tfimg("matrix", "lock", "--fix", "--dry-run", OLD, GPU, NEW, *options).documents[0]
        notebook = tfimg("matrix", "lock", "--fix", "--dry-run", NOTEBOOK, *options).documents[0]
        assert read_locks(copy) == before
        fixed = tfimg("matrix", "lock", "--fix", OLD, GPU, NEW, *options)
        assert fixed.code == 1, fixed.stderr
        after = read_locks(copy)
        again = tfimg("matrix", "lock", "--fix", OLD, GPU, NEW, *options).documents[0]
        assert read_locks(copy) == after
        project = Project(services=tfimg.services)
        newer, env = project.matrix.newer, project.services.environ
        relocked = {
            spec.identifier: resolve_lock(
                spec, newer, uv=find_uv_bin(), env=env, fixes=find_fixes(after[spec.identifier])
            )
            for spec in project.select([OLD, NEW])
        }
        for spec, found in project.locks.resolve_variants(project.select([NOTEBOOK])):
            assert isinstance(found, dict), found
            relocked[spec.identifier] = found
        some = [plant.document for plant in PLANTS if plant.identifier == "TFIMG-TEST-33"]
        some.append(advisory("TFIMG-TEST-90", affected("opt-einsum", {"introduced": "0"}, {"fixed": "3.4.0"})))
        with osv_server(*some) as two:
            partial = tfimg("matrix", "lock", "--fix", OLD, "--osv", two.url)
        yield Run(before, after, preview, notebook, partial, fixed.documents[0], again, audited, image, relocked)


def outcomes(run: Run, identifier: str) -> list[str]:
    """Return what became of an advisory, with the images."""
    found = []
    for row in run.fixed["packages"]:
        if identifier in row["advisories"]:
            moves = [f"{move['name']} {move['before'] or '(new)'} → {move['after']}" for move in row["moves"]]
            what = f"fixed: {', '.join(moves)}" if moves else f"blocked: {row['blocked']}"
            found.append(f"{what} ({', '.join(map(short, row['images']))})")
    for one in (*run.audited["findings"], *run.image["findings"]):
        if identifier == one["advisory"] and one["accepted"]:
            found.append(f"accepted until {one['accepted']['review_by']}: {one['accepted']['reason']}")
        elif identifier == one["advisory"] and one["ecosystem"] != "PyPI":
            found.append(f"fixed in {', '.join(one['fixed'])}: comes with a newer base ({one['installed']})")
        elif identifier in one["aliases"]:
            found.append(f"the same finding as {one['advisory']}")
    return list(dict.fromkeys(found)) or ["no finding"]


def short(image: str) -> str:
    return {OLD: "2.15 CPU", GPU: "2.15 GPU", NEW: "2.21", NOTEBOOK: "2.21 jupyter"}[image]


def test_each_advisory_is_fixed_or_explained_as_the_page_says(run: Run) -> None:
    rows = [
        f"| {plant.identifier} | {plant.kind} | {plant.package} | {'<br>'.join(outcomes(run, plant.identifier))} |"
        for plant in PLANTS
    ]
    written = [line for line in TABLE.read_text().splitlines() if line.startswith("| TFIMG-TEST")]
    assert written == rows, "\n".join(["", *rows])


def test_a_variant_is_fixed_without_the_image_below_it(run: Run) -> None:
    assert [
        move["after"] for row in run.notebook["packages"] for move in row["moves"] if move["name"] == "tornado"
    ] == ["6.9.1"]


def test_the_text_says_what_was_fixed_what_was_not_and_what_comes_next(run: Run) -> None:
    ended = run.partial
    assert ended.lines[1:] == [
        f"opt-einsum 3.3.0 TFIMG-TEST-90 opt-einsum 3.3.0 → 3.4.0 {OLD}",
        f"opt-einsum 3.3.0 TFIMG-TEST-33 blocked: its advisory names no fixed version {OLD}",
        "1 files changed; 1 fixes, 1 blocked",
    ]
    assert f"Run `tfimg matrix render`, and prove the fixes: `tfimg build {OLD} --record`." in ended.stderr
    assert "1 vulnerable package has no fix that all bounds allow: opt-einsum 3.3.0." in ended.stderr
    assert ended.code == 1


def lines(run: dict[str, dict[str, str]], image: str) -> dict[str, str]:
    text = "".join(run[image].values())
    return {line.partition("==")[0]: line for line in text.splitlines() if "==" in line}


def test_only_lines_of_packages_that_move_differ_and_say_why(run: Run) -> None:
    for image in IMAGES:
        moved = {move["name"] for row in run.fixed["packages"] if image in row["images"] for move in row["moves"]}
        before, after = lines(run.before, image), lines(run.after, image)
        assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == moved
        assert all(re.search(r"  # 2026-11-20, (fixes TFIMG-TEST-|goes with )", after[name]) for name in moved)
        kept = [part for part in run.before[image] if part not in ("packages", "variant")]
        assert all(run.after[image][part] == run.before[image][part] for part in kept)
        assert len(read_packages(run.after[image])) == len(after)


def test_a_preview_says_the_same_and_a_second_run_has_nothing_to_fix(run: Run) -> None:
    assert run.preview == {**run.fixed, "dry_run": True}
    assert run.again["changed"] == []
    assert [row["moves"] for row in run.again["packages"]] == [[]] * len(run.again["packages"])


def test_locking_again_keeps_the_fixes(run: Run) -> None:
    for image in (OLD, NEW, NOTEBOOK):
        assert lines(run.relocked, image) == lines(run.after, image)

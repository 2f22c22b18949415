"""Source distributions: what their archives say of their build, and what an index hands out."""

import io
import os
import subprocess
import tarfile
import zipfile
from datetime import date
from pathlib import Path

import pytest

from support.environment import TestEnvironment
from support.extra_packages import IMAGE, extra_packages_engine
from support.memory_engine import FakeEngine
from support.package_index import File, package_index
from support.wheels import sha256, write_wheel
from tfimg.build import source_wheels
from tfimg.build.builder import Builder
from tfimg.build.source_wheels import (
    LEGACY,
    SourceDistribution,
    WheelMaker,
    _open_source,
    _read_build_system,
    fetch_source,
)
from tfimg.core.errors import FileError, HashMismatchError, InvalidSource, LockError, NetworkError
from tfimg.index.client import Index
from tfimg.project.project import Project
from tfimg.recipe.project_files import make_source as parse_source

FLIT = '[build-system]\nrequires = ["flit_core<4"]\nbuild-backend = "flit_core.buildapi"\nbackend-path = ["."]\n'


def make_source(folder: Path, form: str, pyproject: str | None) -> SourceDistribution:
    """Write a source distribution of `thing` as an archive or a folder."""
    content = {"setup.py": b"", **({} if pyproject is None else {"pyproject.toml": pyproject.encode()})}
    place = folder / f"thing-1.0{'' if form == 'folder' else f'.{form}'}"
    if form == "folder":
        place.mkdir()
        for name, data in content.items():
            (place / name).write_bytes(data)
    elif form == "zip":
        with zipfile.ZipFile(place, "w") as archive:
            for name, data in content.items():
                archive.writestr(f"thing-1.0/{name}", data)
    else:
        with tarfile.open(place, "w:gz") as tar:
            for name, data in content.items():
                member = tarfile.TarInfo(f"thing-1.0/{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return SourceDistribution(name="thing", origin=place.name, place=place)


@pytest.mark.parametrize("form", ["tar.gz", "zip", "folder"])
def test_the_build_is_what_pyproject_says_or_setuptools(form: str, tmp_path: Path) -> None:
    stated = _read_build_system(make_source(tmp_path, form, FLIT))
    assert (stated.requires, stated.backend, stated.path) == (("flit_core<4",), "flit_core.buildapi", (".",))
    (tmp_path / "plain").mkdir()
    plain = _read_build_system(make_source(tmp_path / "plain", form, None))
    assert (plain.requires, plain.backend) == (("setuptools", "wheel"), LEGACY)


@pytest.mark.parametrize(
    ("pyproject", "why"),
    [
        ("[build-system", "Expected"),
        ('[build-system]\nrequires = ["a @ https://h/a.whl"]\n', "which names an address"),
        ('[build-system]\nrequires = ["a b"]\n', "a b"),
        ('[build-system]\nrequires = []\nbuild-backend = "os; rm"\n', "build-backend"),
    ],
)
def test_a_build_that_cannot_be_followed_is_refused(pyproject: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSource, match=r"thing-1\.0\.tar\.gz cannot become a wheel") as refused:
        _read_build_system(make_source(tmp_path, "tar.gz", pyproject))
    assert why in refused.value.what


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thing-1.0.tar.gz").write_bytes(b"<html>sign in</html>")
    with pytest.raises(InvalidSource):
        _read_build_system(SourceDistribution(name="thing", origin="x", place=tmp_path / "thing-1.0.tar.gz"))


def test_an_archive_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encrypted file, whose reader raises RuntimeError; and an archive whose files would fill a disk."""
    encrypted = make_source(tmp_path, "zip", FLIT)
    content = encrypted.place.read_bytes()
    encrypted.place.write_bytes(content.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"))
    assert encrypted.place.read_bytes() != content
    large = make_source(tmp_path, "tar.gz", FLIT)
    monkeypatch.setattr(source_wheels, "MAX_UNPACKED", 10)
    for source in (encrypted, large):
        with pytest.raises(InvalidSource):
            _read_build_system(source)


def test_an_archive_has_the_hash_that_the_index_states(tmp_path: Path) -> None:
    archive = make_source(tmp_path, "tar.gz", None).place
    listed = File("thing-1.0.tar.gz", archive.read_bytes(), sha256=sha256(archive))
    with package_index() as server:
        server.files["thing"] = [listed]
        indexes = [Index(f"{server.url}/simple")]
        fetched = fetch_source("thing", "1.0", indexes, tmp_path)
        assert fetched.place.read_bytes() == listed.content
        with pytest.raises(LockError, match=r"no source of thing 2\.0"):
            fetch_source("thing", "2.0", indexes, tmp_path)
        listed.content += b"x"
        with pytest.raises(HashMismatchError):
            fetch_source("thing", "1.0", indexes, tmp_path)


# Repositories, addresses and folders


@pytest.fixture
def engine() -> FakeEngine:
    return extra_packages_engine()


@pytest.fixture
def maker(engine: FakeEngine, tmp_path: Path) -> WheelMaker:
    environ = {"PATH": os.environ["PATH"], "TFIMG_STATE": str(tmp_path / "state")}
    project = Project(services=TestEnvironment(docker=engine, environ=environ))
    kept = project.locks.kept_wheels(project.spec(IMAGE), ["libsndfile1"], date(2024, 3, 8))
    return WheelMaker(Builder(project, engine), kept)


def make_repository(folder: Path) -> str:
    """Make a repository with two commits, of which the first has the version 1; return that commit."""
    commands = ("init -q", "add .", "commit -q -m one", "rev-parse HEAD", "add .", "commit -q -m two")
    folder.mkdir()
    (folder / "setup.py").write_text("VERSION = 1\n")
    printed = []
    for command in commands:
        identity = ["-c", "user.name=ann", "-c", "user.email=ann@example"]
        line = ["git", "-C", str(folder), *identity, *command.split()]
        printed.append(subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip())
        if command == "rev-parse HEAD":
            (folder / "setup.py").write_text("VERSION = 2\n")
    return printed[3]


def test_a_repository_is_read_at_its_commit(maker: WheelMaker, tmp_path: Path) -> None:
    commit = make_repository(tmp_path / "repository")
    address = f"git+file://{tmp_path}/repository@"
    source = parse_source(f"{address}{commit}#subdirectory=part", line="r.txt, line 1")
    found = _open_source(source, maker, tmp_path / "clone")
    assert ((found.place / "setup.py").read_text(), found.subdirectory) == ("VERSION = 1\n", "part")
    with pytest.raises(NetworkError, match=f"could not fetch {'0' * 40}"):
        _open_source(parse_source(f"{address}{'0' * 40}", line=""), maker, tmp_path / "other")
    assert not parse_source(f"{address}main", line="").is_certain


def test_a_file_has_the_hash_that_its_address_states(maker: WheelMaker, tmp_path: Path) -> None:
    (tmp_path / "a thing").mkdir()
    archive = make_source(tmp_path / "a thing", "tar.gz", None).place
    right = parse_source(f"{archive.as_uri()}#sha256={sha256(archive)}", line="r.txt, line 1")
    assert _open_source(right, maker, tmp_path).place == archive
    assert parse_source(archive.as_uri(), line="").is_certain
    wrong = parse_source(f"{archive}#sha256={'0' * 64}", line="r.txt, line 1")
    with pytest.raises(HashMismatchError, match=r"r\.txt, line 1 states 0000"):
        maker.kept.find(wrong)
    with pytest.raises(FileError, match="does not exist"):
        maker.kept.find(parse_source("./missing", line="r.txt, line 2"))
    assert not parse_source("https://h/a-1.tar.gz", line="").is_certain


def test_a_file_that_is_named_like_a_wheel_and_is_none_is_refused(maker: WheelMaker, tmp_path: Path) -> None:
    (tmp_path / "ours.whl").write_bytes(b"")
    with pytest.raises(InvalidSource, match=r"ours\.whl cannot become a wheel"):
        maker.make([parse_source(str(tmp_path / "ours.whl"), line="r.txt, line 1")])


def test_a_wheel_is_taken_as_it_is(maker: WheelMaker, engine: FakeEngine, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "ours", {"ours.py": b""})
    source = parse_source(str(wheel), line="r.txt, line 1")
    (made,) = maker.make([source]).values()
    assert (made.name, made.read_bytes()) == (wheel.name, wheel.read_bytes())
    assert engine.built == []


def test_a_source_that_makes_another_wheel_is_refused(maker: WheelMaker, engine: FakeEngine, tmp_path: Path) -> None:
    folder = make_source(tmp_path, "folder", None).place
    for wheels in ([], [write_wheel(tmp_path, "other", {"other.py": b""})]):
        engine.wheels = wheels
        with pytest.raises(InvalidSource):
            maker.make([parse_source(str(folder), line="r.txt, line 1", name="thing")])


@pytest.mark.parametrize(("form", "archive"), [("folder", ""), ("tar.gz", "thing-1.0.tar.gz")])
def test_a_folder_of_one_file_is_no_archive(
    form: str, archive: str, maker: WheelMaker, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.wheels = [write_wheel(tmp_path, "thing", {})]
    maker.make([parse_source(str(make_source(tmp_path, form, None).place), line="r.txt, line 1")])
    assert engine.built[-1].build_args["ARCHIVE"] == archive


# Kept wheels


def test_a_wheel_is_kept_for_its_source_image_and_day(maker: WheelMaker, engine: FakeEngine, tmp_path: Path) -> None:
    folder = make_source(tmp_path, "folder", None).place
    engine.wheels = [write_wheel(tmp_path, "thing", {"thing.py": b""})]
    source = parse_source(str(folder), line="r.txt, line 1")
    assert maker.kept.find(source) is None
    (made,) = maker.make([source]).values()
    assert maker.kept.find(source) == made
    locks, project = maker.builder.project.locks, maker.builder.project
    others = [
        locks.kept_wheels(project.spec(IMAGE), ["libsndfile1"], date(2024, 3, 9)),
        locks.kept_wheels(project.spec(IMAGE), [], date(2024, 3, 8)),
        locks.kept_wheels(project.spec("2.15.1-cpu-py3.10"), ["libsndfile1"], date(2024, 3, 8)),
    ]
    assert [one.find(source) for one in others] == [None, None, None]
    for image in (f"{IMAGE}-slim", f"{IMAGE}-own"):
        kept = locks.kept_wheels(project.spec(image), ["libsndfile1"], date(2024, 3, 8))
        assert (kept.find(source), kept.spec.variants) == (made, ())
    (folder / "setup.py").write_bytes(b"changed")
    assert maker.kept.find(source) is None
    (folder / "setup.py").write_bytes(b"")
    made.write_bytes(b"damaged")
    assert maker.kept.find(source) is None

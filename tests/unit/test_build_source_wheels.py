"""Source distributions: what their archives say of their build, and what an index hands out."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from support.package_index import File, package_index
from support.wheels import sha256
from tfimg.build.source_wheels import LEGACY, SourceDistribution, _read_build_system, fetch_source
from tfimg.core.errors import HashMismatchError, InvalidSource, LockError
from tfimg.index.client import Index

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


def test_an_archive_has_the_hash_that_the_index_states(tmp_path: Path) -> None:
    archive = make_source(tmp_path, "tar.gz", None).place
    listed = File("thing-1.0.tar.gz", archive.read_bytes(), sha256=sha256(archive))
    with package_index() as server:
        server.files["thing"] = [listed]
        indexes = [Index(f"{server.url}/simple")]
        fetched = fetch_source("thing", "1.0", indexes, tmp_path)
        assert (fetched.sha256, fetched.place.read_bytes()) == (listed.sha256, listed.content)
        with pytest.raises(LockError, match=r"no source of thing 2\.0"):
            fetch_source("thing", "2.0", indexes, tmp_path)
        listed.content += b"x"
        with pytest.raises(HashMismatchError):
            fetch_source("thing", "1.0", indexes, tmp_path)

"""Wheels are fetched once, shared between builds, and only used when their hash is the locked one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.wheels import index_of, lock_line, sha256, write_wheel
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import HashMismatchError, Interrupted, LockError
from tfimg.index.client import Index, IndexedWheel
from tfimg.layers.layers import WheelSource, fetch_wheel, remove_downloads
from tfimg.recipe.lock import LockedPackage, read_packages


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_wheel(tmp_path, "thing", {"thing/__init__.py": b"x = 1\n"})


def locked_package(wheel: Path) -> LockedPackage:
    (package,) = read_packages({"packages": lock_line(wheel)})
    return package


def fetch_to(
    package: LockedPackage,
    folder: Path,
    *,
    build: str = "build",
    urls: Sequence[str] = (),
    supplied: Sequence[Path] = (),
) -> Path:
    indexes = [Index(url, attempts=1) for url in urls]
    source = WheelSource(indexes=indexes, supplied=supplied)
    return fetch_wheel(package, folder / build, downloads=folder, source=source)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("hashes", [True, False], ids=["index with hashes", "index without hashes"])
def test_a_wheel_is_downloaded_under_its_file_name(wheel: Path, tmp_path: Path, hashes: bool) -> None:
    with index_of([wheel], hashes=hashes) as url:
        found = fetch_to(locked_package(wheel), tmp_path / "wheels", urls=[url])
    assert (found.name, found.read_bytes()) == (wheel.name, wheel.read_bytes())


@pytest.mark.parametrize("hashes", [True, False], ids=["index with hashes", "index without hashes"])
def test_a_download_with_another_sha256_is_refused_and_not_kept(wheel: Path, tmp_path: Path, hashes: bool) -> None:
    """The index lists the locked hash, or none, and sends other bytes."""
    altered = wheel.read_bytes()[:-1] + b"!"
    with (
        index_of([wheel], hashes=hashes, served={wheel.name: altered}) as url,
        pytest.raises(HashMismatchError, match=rf"{wheel.name} has sha256 \w+, but the lock has thing with"),
    ):
        fetch_to(locked_package(wheel), tmp_path / "wheels", urls=[url])
    assert files(tmp_path / "wheels") == []


def test_an_index_that_lists_another_hash_is_not_downloaded_from(wheel: Path, tmp_path: Path) -> None:
    package = locked_package(write_wheel(tmp_path, "thing", {"thing/__init__.py": b"x = 2\n"}))
    other = write_wheel(tmp_path, "thing", {"thing/__init__.py": b"x = 1\n"})
    with (
        index_of([other]) as url,
        pytest.raises(HashMismatchError, match=rf"{wheel.name} has another hash, but the lock has thing"),
    ):
        fetch_to(package, tmp_path / "wheels", urls=[url])


def test_the_next_index_is_asked_when_the_first_sends_other_bytes(wheel: Path, tmp_path: Path) -> None:
    with index_of([wheel], served={wheel.name: b"no wheel"}) as first, index_of([wheel]) as second:
        found = fetch_to(locked_package(wheel), tmp_path / "wheels", urls=[first, second])
    assert sha256(found) == sha256(wheel)


@pytest.mark.parametrize("version", ["1.0.1", "0.9"])
def test_other_versions_in_the_index_are_not_the_locked_wheel(wheel: Path, tmp_path: Path, version: str) -> None:
    package = LockedPackage(name="thing", version=version, sha256="0" * 64, appeared=None)
    with index_of([wheel]) as url, pytest.raises(LockError, match=rf"no thing {version} with sha256 0000"):
        fetch_to(package, tmp_path / "wheels", urls=[url])


def test_a_supplied_wheel_is_taken_by_its_hash_not_by_its_name(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = write_wheel(tmp_path / "other", "thing", {"thing/__init__.py": b"x = 2\n"})
    found = fetch_to(locked_package(wheel), tmp_path / "wheels", supplied=[other, wheel])
    assert (found.name, found.read_bytes()) == (wheel.name, wheel.read_bytes())
    assert not found.samefile(wheel)  # the user's file is not packed and removed


def test_a_second_build_links_what_the_first_downloaded(wheel: Path, tmp_path: Path) -> None:
    first = fetch_to(locked_package(wheel), tmp_path / "wheels", build="a", supplied=[wheel])
    second = fetch_to(locked_package(wheel), tmp_path / "wheels", build="b")
    assert second.samefile(first)
    assert second.name == wheel.name


def test_a_build_keeps_its_wheel_when_another_removes_the_shared_one(wheel: Path, tmp_path: Path) -> None:
    package, folder = locked_package(wheel), tmp_path / "wheels"
    found = fetch_to(package, folder, supplied=[wheel])
    remove_downloads([package], folder)
    assert files(folder) == [f"build/{wheel.name}"]
    assert sha256(found) == sha256(wheel)


def test_using_a_shared_wheel_renews_its_time(wheel: Path, tmp_path: Path) -> None:
    """Otherwise another build removes the link that this build is about to read."""
    first = fetch_to(locked_package(wheel), tmp_path / "wheels", build="a", supplied=[wheel])
    os.utime(first, (0, 0))
    assert fetch_to(locked_package(wheel), tmp_path / "wheels", build="b").stat().st_mtime > 0


def test_a_cancelled_download_stops_at_the_next_piece(tmp_path: Path) -> None:
    large = write_wheel(tmp_path, "large", {"large": os.urandom(3 << 20)})
    cancellation, pieces = Cancellation(), list[bytes]()

    class Counting(Index):
        def download(self, wheel: IndexedWheel) -> Iterator[bytes]:
            for content in super().download(wheel):
                pieces.append(content)
                if len(pieces) == 2:
                    cancellation.cancel()
                yield content

    with index_of([large]) as url, cancellation.activate(), pytest.raises(Interrupted):
        fetch_wheel(
            locked_package(large),
            tmp_path / "wheels/a",
            downloads=tmp_path / "wheels",
            source=WheelSource(indexes=[Counting(url)]),
        )
    assert (len(pieces), files(tmp_path / "wheels")) == (2, [])

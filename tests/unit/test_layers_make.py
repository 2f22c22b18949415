"""Builds that make the same layers at once: in threads, in processes, and beside one that was killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard

from support.wheels import lock_line, sha256, write_wheel
from tfimg.core.errors import InvalidWheel, LockError
from tfimg.layers.layers import STALE_SECONDS, LayerStore, WheelSource, make_layers
from tfimg.recipe.layout import Compression

SPAWN = multiprocessing.get_context("spawn")
SECONDS = 60.0

Digests = list[str]


def build(
    folder: Path,
    wheel: Path,
    *,
    on_event: Callable[..., None] = lambda *_: None,
    compression: Compression = "fast",
    fresh: bool = False,
) -> Digests:
    """Make the one layer of a lock that pins this wheel."""
    made = make_layers(
        {"packages": lock_line(wheel)}, LayerStore(folder=folder), compression=compression, fresh=fresh,
        source=WheelSource(indexes=[], supplied=[wheel] if wheel.exists() else []), on_event=on_event,
    )  # fmt: skip
    return [one.blob.digest for one in made]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.01)


def build_and_wait_before_packing(folder: Path, wheel: Path, signals: Path) -> Digests:
    """Fetch the wheel, and pack it when the other process is about to link it."""

    def on_event(_layer: str, state: str, _seconds: float) -> None:
        if state == "started":
            (signals / "fetched").touch()
            wait_for(signals / "linking")

    try:
        return build(folder, wheel, on_event=on_event)
    finally:
        (signals / "packed").touch()


def build_and_wait_before_linking(folder: Path, wheel: Path, signals: Path) -> Digests:
    """Build while the other process has the wheel, and link it when that process has packed it."""

    def audit(event: str, _arguments: object) -> None:
        if event == "os.link" and not (signals / "linking").exists():
            (signals / "linking").touch()
            wait_for(signals / "packed")

    wait_for(signals / "fetched")
    sys.addaudithook(audit)
    return build(folder, wheel, compression="small")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_wheel(tmp_path, "thing", {"thing/__init__.py": b"x = 1\n" * 1000})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def left(folder: Path) -> list[str]:
    """Wheels and partial layers in the store."""
    wheels = (folder / "wheels").rglob("*")
    return sorted(path.name for path in (*wheels, *folder.glob("layer-*")) if path.is_file())


def test_a_process_can_remove_a_shared_wheel_that_another_is_about_to_link(
    wheel: Path, folder: Path, tmp_path: Path
) -> None:
    signals = tmp_path / "signals"
    signals.mkdir()
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        first = pool.submit(build_and_wait_before_packing, folder, wheel, signals)
        second = pool.submit(build_and_wait_before_linking, folder, wheel, signals)
        other = folder.with_name("other")
        assert first.result(SECONDS) == build(other, wheel)
        assert second.result(SECONDS) == build(other, wheel, compression="small")
    assert (signals / "linking").exists()
    assert left(folder) == []


def build_again_and_again(folder: Path, wheel: Path) -> Digests:
    return [digest for _ in range(15) for digest in build(folder, wheel, fresh=True)]


def test_processes_that_make_one_layer_again_and_again_agree(wheel: Path, folder: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        jobs = [pool.submit(build_again_and_again, folder, wheel) for _ in range(2)]
        digests = [digest for job in jobs for digest in job.result(SECONDS)]
    assert (len(digests), len(set(digests))) == (30, 1)
    assert left(folder) == []


def build_and_be_killed(folder: Path, wheel: Path, event: str) -> None:
    """Die as by `kill -9` where the wheel is linked, or where the layer is packed."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def audit(name: str, _arguments: object) -> None:
        if name == event:
            die()

    sys.addaudithook(audit)
    build(folder, wheel, on_event=die if event == "started" else lambda *_: None)


@pytest.mark.parametrize("event", ["os.link", "started"])
def test_a_killed_build_stops_no_other_and_its_files_are_removed_when_they_are_stale(
    wheel: Path, folder: Path, event: str
) -> None:
    killed = SPAWN.Process(target=build_and_be_killed, args=(folder, wheel, event))
    killed.start()
    killed.join(SECONDS)
    assert killed.exitcode == -signal.SIGKILL
    assert wheel.name in left(folder)
    build(folder, wheel)
    remaining = left(folder)
    assert remaining == [wheel.name]  # only what the killed build owned
    store = LayerStore(folder=folder)
    store.prune()
    assert left(folder) == remaining
    for path in (folder / "wheels").rglob("*"):
        old = time.time() - STALE_SECONDS - 60
        os.utime(path, (old, old))
    store.prune()
    assert left(folder) == []


def test_a_failed_build_leaves_its_downloads_to_the_next(wheel: Path, folder: Path, tmp_path: Path) -> None:
    other = write_wheel(tmp_path, "other", {"other/__init__.py": b""})
    lock = {"packages": lock_line(wheel) + lock_line(other)}
    store = LayerStore(folder=folder)

    def attempt(*supplied: Path) -> None:
        source = WheelSource(indexes=[], supplied=supplied)
        make_layers(lock, store, source=source, compression="fast", on_event=lambda *_: None)

    with pytest.raises(LockError, match=r"no other 1\.0"):
        attempt(wheel)
    attempt(other)
    assert left(folder) == []


def spoil_empty(content: bytes) -> bytes:
    """As after a power failure: the name is there, and the content is not."""
    return b""


def spoil_bit(content: bytes) -> bytes:
    return content[:60] + bytes([content[60] ^ 1]) + content[61:]


@pytest.mark.parametrize("spoil", [spoil_empty, spoil_bit])
def test_a_damaged_shared_wheel_is_fetched_again_and_reported(
    wheel: Path, folder: Path, spoil: Callable[[bytes], bytes]
) -> None:
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels" / f"{sha256(wheel)}-{wheel.name}").write_bytes(spoil(wheel.read_bytes()))
    events = list[tuple[str, str]]()
    digests = build(folder, wheel, on_event=lambda layer, state, _: events.append((layer, state)))
    assert digests == build(folder.with_name("other"), wheel)
    assert events == [("packages", "damaged"), ("packages", "started"), ("packages", "done")]
    assert left(folder) == []


@pytest.mark.parametrize("spoil", [spoil_empty, spoil_bit])
def test_a_damaged_layer_is_made_again_and_reported(wheel: Path, folder: Path, spoil: Callable[[bytes], bytes]) -> None:
    (digest,) = build(folder, wheel)
    file = LayerStore(folder=folder).blobs / digest.removeprefix("sha256:")
    content = file.read_bytes()
    file.write_bytes(spoil(content))
    events = list[tuple[str, str]]()
    assert build(folder, wheel, on_event=lambda layer, state, _: events.append((layer, state))) == [digest]
    assert file.read_bytes() == content
    assert events == [("packages", "damaged"), ("packages", "started"), ("packages", "done")]


def test_a_damaged_layer_of_another_python_is_not_taken(folder: Path, tmp_path: Path) -> None:
    """The layer is found by the hashes of its files, under a key of its own."""
    made = []
    for tag in ("cp39", "cp311"):
        library = {"tensorflow/libtensorflow_cc.so.2": b"library" * 1000, "tensorflow/own.py": tag.encode()}
        wheel = write_wheel(tmp_path, "tensorflow", library, tag=tag)
        events = list[tuple[str, str]]()
        made.append(
            make_layers(
                {"tensorflow": lock_line(wheel)}, LayerStore(folder=folder), compression="fast",
                source=WheelSource(indexes=[], supplied=[wheel]),
                on_event=lambda layer, state, _, events=events: events.append((layer, state)),
            )[0].blob
        )  # fmt: skip
        file = LayerStore(folder=folder).blobs / made[-1].digest.removeprefix("sha256:")
        content, whole = file.read_bytes(), spoil_bit(file.read_bytes())
        assert content != whole
        file.write_bytes(whole)
    assert made[0] == made[1]
    assert ("tensorflow", "damaged") in events


def test_a_wheel_that_lies_in_its_record_poisons_no_layer_of_another_python(folder: Path, tmp_path: Path) -> None:
    """The library's layer is shared by the hash that RECORD states: the first wheel states that of the second."""
    path = "tensorflow/libtensorflow_cc.so.2"
    genuine, evil = b"genuine" * 100, b"evil!!!" * 100
    wheels = {}
    for tag, content in (("cp39", evil), ("cp311", genuine)):
        wheels[tag] = write_wheel(tmp_path, "tensorflow", {path: content}, tag=tag, recorded={path: genuine})

    def attempt(tag: str) -> LayerStore:
        store = LayerStore(folder=folder)
        make_layers(
            {"tensorflow": lock_line(wheels[tag])}, store, compression="fast", on_event=lambda *_: None,
            source=WheelSource(indexes=[], supplied=[wheels[tag]]),
        )  # fmt: skip
        return store

    with pytest.raises(InvalidWheel, match="does not have the hash that RECORD states"):
        attempt("cp39")
    assert list((folder / "blobs" / "sha256").iterdir()) == []
    layers = [file.read_bytes() for file in attempt("cp311").blobs.iterdir()]
    assert len(layers) == 2
    unpacked = [zstandard.ZstdDecompressor().decompressobj().decompress(layer) for layer in layers]
    assert [content in layer for content in (evil, genuine) for layer in unpacked].count(True) == 1
    assert any(genuine in layer for layer in unpacked)


def test_layers_that_another_build_makes_meanwhile_are_taken_from_the_store(wheel: Path, folder: Path) -> None:
    class Waiting(LayerStore):
        """A store whose lock another build holds first, to make the same layers."""

        @contextmanager
        def lock(self, name: str) -> Iterator[None]:
            build(folder, wheel)
            with super().lock(name):
                yield

    events = list[tuple[str, str]]()
    (made,) = make_layers(
        {"packages": lock_line(wheel)}, Waiting(folder=folder), source=WheelSource(indexes=[]), compression="fast",
        on_event=lambda layer, state, _: events.append((layer, state)),
    )  # fmt: skip
    assert (made.seconds, events) == (None, [("packages", "cached")])
    assert left(folder) == []

"""Layers are fetched, made, shared and kept: once each, by builds in threads and processes, and beside a killed one."""

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import zstandard

from support.wheels import index_of, lock_line, open_layer, read_files, sha256, write_wheel
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import BuildError, HashMismatchError, Interrupted, InvalidWheel, LockError
from tfimg.core.events import Event, OnEvent, StepEvent
from tfimg.core.tar import make_archive
from tfimg.index.client import Index, IndexedWheel
from tfimg.layers.layers import (
    STALE_SECONDS,
    LayerResult,
    LayerStore,
    Turns,
    WheelSource,
    compute_key,
    fetch_wheel,
    make_layers,
    remove_downloads,
)
from tfimg.layers.wheel import Blob
from tfimg.recipe.layout import SITE_PACKAGES, Compression, WheelGroup, split_lock
from tfimg.recipe.lock import LockedPackage, read_packages

LIBRARY = "tensorflow/libtensorflow_cc.so.2"
SPAWN = multiprocessing.get_context("spawn")
SECONDS = 60.0

Digests = list[str]


def build(
    folder: Path, wheel: Path, *, on_event: Callable[..., None] = lambda *_: None, compression: Compression = "fast",
    fresh: bool = False,
) -> Digests:  # fmt: skip
    """Make the one layer of a lock that pins this wheel."""
    made = make_layers(
        {"packages": lock_line(wheel)}, LayerStore(folder=folder), compression=compression, fresh=fresh,
        source=WheelSource(indexes=[], local_wheels=[wheel] if wheel.exists() else []), on_event=on_event,
    )  # fmt: skip
    return [one.blob.digest for one in made]


def record(events: list[tuple[str, str]]) -> OnEvent:
    def on_event(event: Event) -> None:
        assert isinstance(event, StepEvent)
        events.append((event.step, event.state))

    return on_event


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.01)


def build_and_wait_before_packing(folder: Path, wheel: Path, signals: Path) -> Digests:
    """Fetch the wheel, and pack it when the other process is about to link it."""

    def on_event(event: Event) -> None:
        if isinstance(event, StepEvent) and event.state == "started":
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


def test_the_lowest_layer_that_waits_gets_the_next_processor() -> None:
    turns, begun = Turns(1), list[int]()

    def take(number: int) -> None:
        with turns.take(number):
            begun.append(number)

    with ThreadPoolExecutor(3) as pool, turns.take(9):
        jobs = [pool.submit(take, number) for number in (2, 0, 1)]
        while len(turns.waiting) < len(jobs):
            time.sleep(0.001)
    assert begun == [0, 1, 2]


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

    def attempt(*local_wheels: Path) -> None:
        source = WheelSource(indexes=[], local_wheels=local_wheels)
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
def test_a_damaged_shared_wheel_or_layer_is_made_again_and_reported(
    wheel: Path, folder: Path, spoil: Callable[[bytes], bytes]
) -> None:
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels" / f"{sha256(wheel)}-{wheel.name}").write_bytes(spoil(wheel.read_bytes()))
    events = list[tuple[str, str]]()
    (digest,) = build(folder, wheel, on_event=record(events))
    assert [digest] == build(folder.with_name("other"), wheel)
    assert events == [("layer packages", "damaged"), ("layer packages", "started"), ("layer packages", "done")]
    assert left(folder) == []
    file = LayerStore(folder=folder).blobs / digest.removeprefix("sha256:")
    content = file.read_bytes()
    file.write_bytes(spoil(content))
    events.clear()
    assert build(folder, wheel, on_event=record(events)) == [digest]
    assert file.read_bytes() == content
    assert events == [("layer packages", "damaged"), ("layer packages", "started"), ("layer packages", "done")]


def test_a_damaged_layer_of_another_python_is_not_taken(folder: Path, tmp_path: Path) -> None:
    """The layer is found by the hashes of its files, under a key of its own."""
    made = []
    for tag in ("cp39", "cp311"):
        library = {LIBRARY: b"library" * 1000, "tensorflow/own.py": tag.encode()}
        wheel = write_wheel(tmp_path, "tensorflow", library, tag=tag)
        events = list[tuple[str, str]]()
        made.append(
            make_layers(
                {"tensorflow": lock_line(wheel)}, LayerStore(folder=folder), compression="fast",
                source=WheelSource(indexes=[], local_wheels=[wheel]),
                on_event=record(events),
            )[0].blob
        )  # fmt: skip
        file = file_of(LayerStore(folder=folder), made[-1])
        content, whole = file.read_bytes(), spoil_bit(file.read_bytes())
        assert content != whole
        file.write_bytes(whole)
    assert made[0] == made[1]
    assert ("layer tensorflow", "damaged") in events


def test_a_wheel_that_lies_in_its_record_poisons_no_layer_of_another_python(folder: Path, tmp_path: Path) -> None:
    """The library's layer is shared by the hash that RECORD states: the first wheel states that of the second."""
    genuine, evil = b"genuine" * 100, b"evil!!!" * 100
    wheels = {}
    for tag, content in (("cp39", evil), ("cp311", genuine)):
        wheels[tag] = write_wheel(tmp_path, "tensorflow", {LIBRARY: content}, tag=tag, recorded={LIBRARY: genuine})

    def attempt(tag: str) -> LayerStore:
        store = LayerStore(folder=folder)
        make_layers(
            {"tensorflow": lock_line(wheels[tag])}, store, compression="fast", on_event=lambda *_: None,
            source=WheelSource(indexes=[], local_wheels=[wheels[tag]]),
        )  # fmt: skip
        return store

    with pytest.raises(InvalidWheel, match="does not have the hash that RECORD states"):
        attempt("cp39")
    assert list((folder / "blobs" / "sha256").iterdir()) == []
    layers = [file.read_bytes() for file in attempt("cp311").blobs.iterdir()]
    assert len(layers) == 2
    unpacked = b"".join(zstandard.ZstdDecompressor().decompressobj().decompress(layer) for layer in layers)
    assert (genuine in unpacked, evil in unpacked) == (True, False)


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
        on_event=record(events),
    )  # fmt: skip
    assert (made.seconds, events) == (None, [("layer packages", "cached")])
    assert left(folder) == []


def locked_package(wheel: Path) -> LockedPackage:
    (package,) = read_packages({"packages": lock_line(wheel)})
    return package


def fetch_to(
    package: LockedPackage,
    folder: Path,
    *,
    build: str = "build",
    urls: Sequence[str] = (),
    local_wheels: Sequence[Path] = (),
) -> Path:
    indexes = [Index(url, attempts=1) for url in urls]
    source = WheelSource(indexes=indexes, local_wheels=local_wheels)
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


def test_the_next_index_is_tried_when_the_first_sends_other_bytes(wheel: Path, tmp_path: Path) -> None:
    with index_of([wheel], served={wheel.name: b"no wheel"}) as first, index_of([wheel]) as second:
        found = fetch_to(locked_package(wheel), tmp_path / "wheels", urls=[first, second])
    assert sha256(found) == sha256(wheel)


@pytest.mark.parametrize("version", ["1.0.1", "0.9"])
def test_other_versions_in_the_index_are_not_the_locked_wheel(wheel: Path, tmp_path: Path, version: str) -> None:
    package = LockedPackage(name="thing", version=version, sha256="0" * 64, appeared=None)
    with index_of([wheel]) as url, pytest.raises(LockError) as caught:
        fetch_to(package, tmp_path / "wheels", urls=[url])
    assert str(caught.value) == (
        f"The package index has no thing {version} with sha256 {'0' * 64}. If the index is a mirror, check that it has "
        "everything; else update the lock with `tfimg matrix lock`."
    )


def test_a_custom_wheel_is_taken_by_its_hash_not_by_its_name(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = write_wheel(tmp_path / "other", "thing", {"thing/__init__.py": b"x = 2\n"})
    found = fetch_to(locked_package(wheel), tmp_path / "wheels", local_wheels=[other, wheel])
    assert (found.name, found.read_bytes()) == (wheel.name, wheel.read_bytes())
    assert not found.samefile(wheel)  # the user's file is not packed and removed


def test_a_build_keeps_its_wheel_when_another_removes_the_shared_one(wheel: Path, tmp_path: Path) -> None:
    package, folder = locked_package(wheel), tmp_path / "wheels"
    found = fetch_to(package, folder, local_wheels=[wheel])
    remove_downloads([package], folder)
    assert files(folder) == [f"build/{wheel.name}"]
    assert sha256(found) == sha256(wheel)


def test_a_second_build_links_what_the_first_downloaded_and_renews_its_time(wheel: Path, tmp_path: Path) -> None:
    """Otherwise another build removes the link that this build is about to read."""
    first = fetch_to(locked_package(wheel), tmp_path / "wheels", build="a", local_wheels=[wheel])
    os.utime(first, (0, 0))
    second = fetch_to(locked_package(wheel), tmp_path / "wheels", build="b")
    assert second.samefile(first)
    assert (second.name, second.stat().st_mtime > 0) == (wheel.name, True)


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

    folder = tmp_path / "wheels"
    with index_of([large]) as url, cancellation.activate(), pytest.raises(Interrupted):
        fetch_wheel(locked_package(large), folder / "a", downloads=folder, source=WheelSource(indexes=[Counting(url)]))
    assert (len(pieces), files(folder)) == (2, [])


COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
HASHES = "0" * 64, "1" * 64


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    made = LayerStore(folder=tmp_path / "store")
    made.prepare()
    return made


def put(store: LayerStore, name: str, *, size: int = 1000, hours: float = 0) -> Blob:
    """Keep a layer under a key, last used so many hours ago."""
    content = name.encode() * (size // len(name))
    digest = hashlib.sha256(content).hexdigest()
    partial = store.folder / f"layer-{name}"
    partial.write_bytes(content)
    blob = Blob(
        media_type="application/vnd.oci.image.layer.v1.tar+zstd", digest=f"sha256:{digest}",
        diff_id=f"sha256:{'0' * 64}", size=len(content), unpacked=1, files=1,
    )  # fmt: skip
    store.add(blob, partial)
    store.set_key(name, blob)
    used = time.time() - hours * 3600
    os.utime(store.blobs / digest, (used, used))
    return blob


def names(store: LayerStore) -> set[str]:
    """The keys whose layers are there, found without using them."""
    kept = {key.name: json.loads(key.read_text())["layer"]["digest"] for key in (store.folder / "keys").iterdir()}
    return {name for name, digest in kept.items() if (store.blobs / digest[7:]).exists()}


def group(name: str, hashes: tuple[str, ...] = HASHES[:1]) -> WheelGroup:
    lock = "".join(f"thing{number}==1.0 --hash=sha256:{one}\n" for number, one in enumerate(hashes))
    (found,) = split_lock({name: lock})
    return found


def test_the_layers_that_were_used_last_are_kept_up_to_the_limit(store: LayerStore) -> None:
    for name, hours in (("aa", 3), ("bb", 1), ("cc", 2)):
        put(store, name, hours=hours)
    store.prune(limit=2000)
    assert names(store) == {"bb", "cc"}
    store.prune(limit=1999)
    assert names(store) == {"bb"}
    assert [store.find(name) is None for name in ("aa", "bb", "cc")] == [True, False, True]


def test_finding_a_layer_is_a_use(store: LayerStore) -> None:
    blob = put(store, "aa", hours=3)
    put(store, "bb", hours=1)
    assert store.find("aa") == blob
    store.prune(limit=1000)
    assert names(store) == {"aa"}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"digest": "sha256:0"}', "\ud800", '{"layer": 1e999}', "[" * 100_000, "NaN",
     '{"layer": {"digest": "../../etc"}}'],
)  # fmt: skip
def test_a_key_that_cannot_be_read_is_not_found(store: LayerStore, text: str) -> None:
    put(store, "aa")
    (store.folder / "keys" / "aa").write_bytes(text.encode(errors="surrogatepass"))
    assert store.find("aa") is None


def test_a_key_with_a_flipped_bit_is_not_found(store: LayerStore) -> None:
    """`"files": 8` is one bit away from `"files": 0`, a layer that is left out."""
    blob = put(store, "aa")
    file = store.folder / "keys" / "aa"
    content = file.read_bytes()
    files = content.index(b'"files": ') + len(b'"files": ')
    for position in range(len(content)):
        for bit in range(8) if position == files else [position % 8]:
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            file.write_bytes(flipped)
            assert store.find("aa") in (None, blob)


def test_a_key_that_was_made_for_another_layer_is_not_found(store: LayerStore) -> None:
    put(store, "aa")
    (store.folder / "keys" / "bb").write_bytes((store.folder / "keys" / "aa").read_bytes())
    assert store.find("bb") is None


def spoil_end(content: bytes) -> bytes:
    return content + b"!"


@pytest.mark.parametrize("spoil", [spoil_empty, spoil_bit, spoil_end])
def test_a_damaged_layer_is_noticed_in_the_next_run_and_removed(
    store: LayerStore, spoil: Callable[[bytes], bytes]
) -> None:
    blob = put(store, "aa")
    file = file_of(store, blob)
    following = LayerStore(folder=store.folder)
    assert following.verify(blob)
    file.write_bytes(spoil(file.read_bytes()))
    assert following.verify(blob), "a run reads a layer once"
    for _ in range(2):  # damaged, then evicted
        assert not LayerStore(folder=store.folder).verify(blob)
        assert not file.exists()


def test_pruning_without_a_limit_keeps_twenty_gigabytes(store: LayerStore) -> None:
    """The files are sparse: they have the size and take no space."""
    for hours, (name, size) in enumerate({"aa": 15 * 10**9, "bb": 5 * 10**9, "cc": 1}.items()):
        file = file_of(store, put(store, name))
        os.truncate(file, size)
        os.utime(file, (time.time() - hours * 3600,) * 2)
    store.prune()
    assert names(store) == {"aa", "bb"}


@pytest.mark.parametrize(("age", "kept"), [(STALE_SECONDS - 60, True), (STALE_SECONDS + 60, False)])
def test_files_of_a_killed_build_are_removed_after_a_day(store: LayerStore, age: float, kept: bool) -> None:
    wheels = store.folder / "wheels"
    (wheels / "build").mkdir(parents=True)
    left = [
        store.folder / "layer-0", wheels / "0-thing.whl", wheels / "build" / "partial-0", wheels / "build",
    ]  # fmt: skip
    for path in left:
        if not path.is_dir():
            path.touch()
        os.utime(path, (time.time() - age, time.time() - age))
    fresh = wheels / "other" / "thing.whl"
    fresh.parent.mkdir()
    fresh.touch()
    os.utime(fresh.parent, (0, 0))
    used = put(store, "aa", hours=100)
    store.prune()
    assert fresh.exists(), "its folder is old, and the wheel is not"
    os.utime(wheels / "build", (time.time() - age, time.time() - age))
    store.prune()
    assert [path.exists() for path in left] == [kept] * 4
    assert store.find("aa") == used


def test_pruning_at_the_same_time_as_other_builds_raises_nothing(store: LayerStore) -> None:
    """Files disappear between the listing and the look at each, as when another build finishes writing one."""
    names = [f"layer-{number}" for number in range(50)]
    files = [folder / name for folder in (store.blobs, store.folder) for name in names]
    folders = [store.folder / "wheels" / name for name in names]
    errors: list[Exception] = []
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for path in files:
                path.touch()
            for path in folders:
                path.mkdir(parents=True)
            for path in files:
                path.unlink(missing_ok=True)
            for path in folders:
                path.rmdir()

    def prune() -> None:
        try:
            for _ in range(200):
                store.prune()
        except OSError as error:
            errors.append(error)

    other, pruner = threading.Thread(target=churn), threading.Thread(target=prune)
    other.start()
    pruner.start()
    pruner.join()
    stop.set()
    other.join()
    assert errors == []


def test_the_key_of_a_layer_depends_on_all_that_its_bytes_depend_on() -> None:
    shared, own = group("tensorflow").layers
    keys = {
        **{("compression", one): compute_key(own, one) for one in COMPRESSIONS},
        ("shared",): compute_key(shared, "fast"),
        ("another wheel",): compute_key(group("tensorflow", HASHES[1:]).layers[1], "fast"),
        ("two wheels",): compute_key(group("tensorflow", HASHES).layers[1], "fast"),
        ("all of it is shared",): compute_key(group("cudnn").layers[0], "fast"),
        ("none of it is shared",): compute_key(group("packages").layers[0], "fast"),
    }
    assert len(set(keys.values())) == len(keys)
    assert compute_key(own, "fast") == compute_key(group("tensorflow").layers[1], "fast")


PYTHONS = ("cp39", "cp311")


Images = dict[str, dict[str, Any]]


def file_of(store: LayerStore, blob: Blob) -> Path:
    return store.blobs / blob.digest.removeprefix("sha256:")


def read_members(store: LayerStore, blob: Blob) -> dict[str, bytes]:
    return read_files(open_layer(file_of(store, blob).read_bytes()))


def make_lock(files: Mapping[str, Path]) -> dict[str, str]:
    return {part: lock_line(file) for part, file in files.items()}


@pytest.fixture
def images(tmp_path: Path) -> Images:
    """Locks and wheels of one release for two Pythons."""
    wheel = partial(write_wheel, tmp_path)
    cudnn = wheel("cudnn", {"nvidia/cudnn/lib/libcudnn.so.9": b"cudnn" * 1000, "nvidia/__init__.py": b""})
    found = {}
    for tag in PYTHONS:
        own = {LIBRARY: b"library" * 1000, "tensorflow/__init__.py": b"", f"tensorflow/own.{tag}.so": tag.encode()}
        wheels = {
            "cudnn": cudnn,
            "tensorflow": wheel("tensorflow", own, tag=tag),
            "packages": wheel("numpy", {"numpy/__init__.py": tag.encode()}, tag=tag),
        }
        found[tag] = {"lock": make_lock(wheels), "wheels": tuple(wheels.values())}
    return found


def make_all(
    image: dict[str, Any], store: LayerStore, events: list[Event] | None = None, *, compression: Compression = "fast",
    fresh: bool = False,
) -> tuple[LayerResult, ...]:  # fmt: skip
    return make_layers(
        image["lock"], store, source=WheelSource(indexes=[], local_wheels=image["wheels"]), compression=compression,
        fresh=fresh, on_event=([] if events is None else events).append,
    )  # fmt: skip


def test_layers_for_another_python_are_the_same_bytes_where_they_can_be(images: Images, tmp_path: Path) -> None:
    first, second = (make_all(images[tag], LayerStore(folder=tmp_path / tag)) for tag in PYTHONS)
    names = ["cudnn", "tensorflow", "tensorflow-python", "numpy"]
    assert [one.layer.name for one in first] == [one.layer.name for one in second] == names
    same = [one.blob == other.blob for one, other in zip(first, second, strict=True)]
    assert same == [True, True, False, False]


def test_what_the_store_has_is_not_made_again_and_what_a_killed_build_left_is_removed(
    images: Images, store: LayerStore
) -> None:
    events = list[Any]()
    (store.folder / "layer-0").touch()
    os.utime(store.folder / "layer-0", (0, 0))
    make_all(images["cp39"], store)
    assert not (store.folder / "layer-0").exists()
    again = make_all({**images["cp39"], "wheels": ()}, store, events)
    assert {event.state for event in events} == {"cached"}
    assert [one.seconds for one in again] == [None] * 4
    assert not list((store.folder / "wheels").iterdir())


def test_a_layer_of_another_python_s_wheel_is_reused(images: Images, store: LayerStore) -> None:
    library = make_all(images["cp39"], store)[1].blob
    # Written again it would be another file in the same place.
    before = file_of(store, library).stat().st_ino
    shared = {one.layer.name: one.blob for one in make_all(images["cp311"], store)}
    assert (shared["tensorflow"], file_of(store, library).stat().st_ino) == (library, before)
    assert read_members(store, shared["tensorflow"]) == {f"{SITE_PACKAGES}/{LIBRARY}": b"library" * 1000}
    assert read_members(store, shared["tensorflow-python"])[f"{SITE_PACKAGES}/tensorflow/own.cp311.so"] == b"cp311"
    make_all(images["cp311"], store, fresh=True)
    assert file_of(store, library).stat().st_ino != before
    kinds = {one.blob.media_type.rpartition("+")[2] for one in make_all(images["cp311"], store, compression="gzip")}
    assert kinds == {"gzip"}, "only layers of the same compression are reused"


def test_a_library_with_other_content_is_not_taken_from_another_python_s_wheel(
    tmp_path: Path, store: LayerStore
) -> None:
    digests = set()
    for tag, library in (("cp39", b"one"), ("cp311", b"two")):
        file = write_wheel(tmp_path, "tensorflow", {LIBRARY: library, "tensorflow/__init__.py": b""}, tag=tag)
        image = {"lock": make_lock({"tensorflow": file}), "wheels": (file,)}
        shared = make_all(image, store)[0].blob
        assert read_members(store, shared) == {f"{SITE_PACKAGES}/{LIBRARY}": library}
        digests.add(shared.digest)
    assert len(digests) == 2


def test_one_of_two_layers_is_made_again_when_only_the_other_is_left(images: Images, store: LayerStore) -> None:
    first = make_all(images["cp39"], store)
    for lost in first[1:3]:
        file_of(store, lost.blob).unlink()
        again = make_all(images["cp39"], store)
        assert [one.blob for one in again] == [one.blob for one in first]
        assert file_of(store, lost.blob).exists()


def test_a_layer_is_reported_done_with_the_seconds_that_it_took(images: Images, store: LayerStore) -> None:
    events = list[Any]()
    layers = make_all(images["cp39"], store, events)
    for state in ("started", "done"):
        found = [event.step for event in events if event.state == state]
        assert sorted(found) == sorted(f"layer {one.layer.name}" for one in layers)
        assert [name for name in found if "tensorflow" in name] == ["layer tensorflow", "layer tensorflow-python"]
    assert {event.seconds for event in events if event.state == "started"} == {0.0}
    took = {event.step: event.seconds for event in events if event.state == "done"}
    assert took == {f"layer {one.layer.name}": round(one.seconds or 0, 3) for one in layers}
    assert all(one.seconds for one in layers)


def test_two_images_can_use_one_downloaded_wheel_at_once(tmp_path: Path, store: LayerStore) -> None:
    """One image has all its wheels and is about to pack them when the other, which has one of them too, is done."""
    both, *own = (
        write_wheel(tmp_path, name, {f"{name}/__init__.py": b""}, tag="cp39") for name in ("both", "one", "other")
    )
    images = [{"lock": {"packages": lock_line(both) + lock_line(file)}, "wheels": (both, file)} for file in own]
    done = list[Any]()

    def meanwhile(event: Event) -> None:
        if isinstance(event, StepEvent) and event.state == "started":
            done.extend(make_all(images[1], store))

    source = WheelSource(indexes=[], local_wheels=images[0]["wheels"])
    first = make_layers(images[0]["lock"], store, source=source, compression="fast", on_event=meanwhile)
    assert len(first) == len(done) == 1
    assert first[0].blob.files == done[0].blob.files > 2
    assert not list((store.folder / "wheels").iterdir())


def test_a_cancelled_build_leaves_no_partial_layer(images: Images, store: LayerStore) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        make_all(images["cp39"], store)
    assert not list(store.folder.glob("layer-*"))


@dataclass
class Compiler:
    """Byte code whose content names its module; `extra` are other files that the base's Python writes."""

    key: str = "Python 3.9"
    extra: tuple[str, ...] = ()
    compiled: list[set[str]] = field(default_factory=list)

    def compile(self, modules: Path, target: Path) -> None:
        with tarfile.open(modules) as tar:
            names = tar.getnames()
        if "tensorflow/__init__.py" in names:
            time.sleep(0.2)  # others that did not wait would be first
        self.compiled.append({*names})
        code = [str(Path(name).parent / "__pycache__" / f"{Path(name).stem}.cpython-39.pyc") for name in names]
        target.write_bytes(make_archive({f"./{path}": (path.encode(), 0o644) for path in [*code[::-1], *self.extra]}))


def test_code_has_its_byte_code_beside_it_and_libraries_have_none(images: Images, store: LayerStore) -> None:
    compiler = Compiler()
    image = images["cp39"]
    source = WheelSource(indexes=[], local_wheels=image["wheels"])
    make = partial(make_layers, image["lock"], store, source=source, compression="fast", on_event=lambda _: None)
    plain, ready = make(), list[str]()
    made = make(byte_code=compiler, on_layer=lambda layer, _: ready.append(layer.name))
    assert sorted(ready) == sorted(one.layer.name for one in made)
    for one, without in zip(made, plain, strict=True):
        members = read_members(store, one.blob)
        code = {path: content for path, content in members.items() if path.endswith(".pyc")}
        modules = {path for path in members if path.endswith(".py")}
        assert (
            {*code} == set()
            if one.layer.is_shared
            else {f"{Path(path).parent}/__pycache__/{Path(path).stem}.cpython-39.pyc" for path in modules}
        )
        assert (one.blob == without.blob) == one.layer.is_shared
        assert [*code] == sorted(code), "the order does not depend on that of the compiler"
    assert compiler.compiled == [{"tensorflow/__init__.py"}, {"numpy/__init__.py"}], "the largest group first"
    assert make(byte_code=compiler) == tuple(replace(one, seconds=None) for one in made)
    assert len(compiler.compiled) == 2, "the store has them"
    make(byte_code=Compiler(key="Python 3.9 of another base"))
    assert len(compiler.compiled) == 2


@pytest.mark.parametrize(
    "path", ["thing.py", "../__pycache__/a.cpython-39.pyc", "__pycache__/a.so", "a/__pycache__/b.cpython-39.pyc/c"]
)
def test_the_base_may_write_nothing_but_byte_code(images: Images, store: LayerStore, path: str) -> None:
    image = images["cp39"]
    with pytest.raises(BuildError, match="no byte code"):
        make_layers(
            image["lock"], store, source=WheelSource(indexes=[], local_wheels=image["wheels"]), compression="fast",
            on_event=lambda _: None, byte_code=Compiler(extra=(path,)),
        )  # fmt: skip
    assert not list(store.folder.glob("layer-*"))

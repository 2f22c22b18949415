"""The store keeps what was used last, finds a layer by all that its bytes depend on, and tolerates other builds."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from tfimg.layers.layers import STALE_SECONDS, LayerStore, compute_key
from tfimg.layers.wheel import Blob
from tfimg.recipe.layout import Compression, WheelGroup, split_lock

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


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"digest": "sha256:0"}', "\ud800"])
def test_a_key_that_cannot_be_read_is_not_found(store: LayerStore, text: str) -> None:
    put(store, "aa")
    (store.folder / "keys" / "aa").write_bytes(text.encode(errors="surrogatepass"))
    assert store.find("aa") is None


@pytest.mark.parametrize("text", ['{"layer": 1e999}', "[" * 100_000, '{"layer": {"digest": "../../etc"}}', "NaN"])
def test_a_hostile_key_is_not_found(store: LayerStore, text: str) -> None:
    put(store, "aa")
    (store.folder / "keys" / "aa").write_text(text)
    assert store.find("aa") is None


def test_a_key_with_any_flipped_bit_is_not_found(store: LayerStore) -> None:
    """`"files": 8` is one bit away from `"files": 0`, a layer that is left out."""
    blob = put(store, "aa")
    file = store.folder / "keys" / "aa"
    content = file.read_bytes()
    for position in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            file.write_bytes(flipped)
            assert store.find("aa") in (None, blob)


def test_a_key_that_was_made_for_another_layer_is_not_found(store: LayerStore) -> None:
    put(store, "aa")
    (store.folder / "keys" / "bb").write_bytes((store.folder / "keys" / "aa").read_bytes())
    assert store.find("bb") is None


def spoil_empty(content: bytes) -> bytes:
    return b""


def spoil_bit(content: bytes) -> bytes:
    return content[:500] + bytes([content[500] ^ 1]) + content[501:]


def spoil_end(content: bytes) -> bytes:
    return content + b"!"


@pytest.mark.parametrize("spoil", [spoil_empty, spoil_bit, spoil_end])
def test_a_damaged_layer_is_noticed_in_the_next_run_and_removed(
    store: LayerStore, spoil: Callable[[bytes], bytes]
) -> None:
    blob = put(store, "aa")
    file = store.blobs / blob.digest[7:]
    following = LayerStore(folder=store.folder)
    assert following.verify(blob)
    file.write_bytes(spoil(file.read_bytes()))
    assert following.verify(blob), "a run reads a layer once"
    assert not LayerStore(folder=store.folder).verify(blob)
    assert not file.exists()


def test_an_evicted_layer_fails_verification(store: LayerStore) -> None:
    blob = put(store, "aa")
    (store.blobs / blob.digest[7:]).unlink()
    assert not LayerStore(folder=store.folder).verify(blob)


def test_pruning_without_a_limit_keeps_twenty_gigabytes(store: LayerStore) -> None:
    """The files are sparse: they have the size and take no space."""
    for hours, (name, size) in enumerate({"aa": 15 * 10**9, "bb": 5 * 10**9, "cc": 1}.items()):
        file = store.blobs / put(store, name).digest.removeprefix("sha256:")
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
    used = put(store, "aa", hours=100)
    store.prune()
    os.utime(wheels / "build", (time.time() - age, time.time() - age))
    store.prune()
    assert [path.exists() for path in left] == [kept] * 4
    assert store.find("aa") == used


def test_a_folder_with_a_fresh_wheel_is_kept(store: LayerStore) -> None:
    folder = store.folder / "wheels" / "build"
    folder.mkdir(parents=True)
    (folder / "thing.whl").touch()
    os.utime(folder, (0, 0))
    store.prune()
    assert (folder / "thing.whl").exists()


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

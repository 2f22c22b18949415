"""Layers at their edges: wheels with large, stored or stray files, and what the store keeps, reuses and removes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from support.messages import exactly
from support.wheels import record_hash, write_wheel
from tfimg.core.errors import InvalidWheel, LockError
from tfimg.layers.layers import LayerResult, LayerStore, WheelSource, make_layers, write_stages
from tfimg.layers.wheel import Blob, BlobWriter, unpack_wheel
from tfimg.recipe.layout import SITE_PACKAGES

LIBRARY = "tensorflow/libtensorflow_cc.so.2"


def files_of(layer: Path) -> dict[str, bytes]:
    content = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(layer.read_bytes())).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            f"/{member.name}": archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
            if member.isfile()
        }


def unpacked(wheel: Path, folder: Path, *shared: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    with (folder / "into").open("wb") as first, (folder / "rest").open("wb") as second:
        into, rest = BlobWriter(first, "fast"), BlobWriter(second, "fast")
        unpack_wheel(wheel, shared=shared, into=into, rest=rest)
        into.close(), rest.close()
    return files_of(folder / "into"), files_of(folder / "rest")


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_script_of_several_megabytes_is_whole(kind: int, tmp_path: Path) -> None:
    body = random.Random(1).randbytes(3 << 20)  # noqa: S311  (no secret)
    script = b"#!/bin/sh\n" + body
    wheel = write_wheel(tmp_path, "thing", {"thing-1.0.data/scripts/tool": script}, kind=kind)
    _, rest = unpacked(wheel, tmp_path)
    assert rest["/opt/tensorflow/bin/tool"] == script


def test_a_script_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.layers.wheel.MAX_SCRIPT", 10)
    for size in (10, 11):
        name = "thing-1.0.data/scripts/tool"
        wheel = write_wheel(tmp_path, "thing", {name: bytes(size)})
        if size == 10:
            assert unpacked(wheel, tmp_path)[1]["/opt/tensorflow/bin/tool"] == bytes(10)
            continue
        message = (
            f"{wheel.name} is not a valid wheel: '{name}' has more than 10 bytes. Do not build with it. If the lock "
            "names this file, report it to the package's publisher and lock another version; else the disk may be "
            "failing."
        )
        with pytest.raises(InvalidWheel, match=exactly(message)):
            unpacked(wheel, tmp_path)


def test_a_part_that_is_the_same_for_every_python_is_one_layer_with_its_scripts_and_metadata(
    tmp_path: Path,
) -> None:
    files = {
        "thing/a.so": b"a",
        "thing-1.0.data/scripts/tool": b"#!python\n",
        "thing-1.0.data/data/share/x": b"x",
    }
    into, rest = unpacked(write_wheel(tmp_path, "thing", files), tmp_path, ".")
    assert rest == {}
    assert {"/opt/tensorflow/bin/tool", "/opt/tensorflow/share/x", f"{SITE_PACKAGES}/thing/a.so"} < into.keys()
    assert f"{SITE_PACKAGES}/thing-1.0.dist-info/RECORD" in into


def test_an_installed_record_has_the_hash_and_size_of_what_was_written(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "thing", {"thing-1.0.data/scripts/tool": b"#!python\nx\n"})
    _, rest = unpacked(wheel, tmp_path)
    written = rest["/opt/tensorflow/bin/tool"]
    record = rest[f"{SITE_PACKAGES}/thing-1.0.dist-info/RECORD"].decode().splitlines()
    assert f"../../../bin/tool,sha256={record_hash(written)},{len(written)}" in record
    assert f"thing-1.0.dist-info/INSTALLER,sha256={record_hash(b'tfimg' + bytes([10]))},6" in record


@pytest.mark.parametrize(("size", "blocks"), [(0, 0), (1, 1), (512, 1), (513, 2)])
def test_a_layer_is_whole_blocks_and_ends_with_two_empty_ones(size: int, blocks: int) -> None:
    writer = BlobWriter(io.BytesIO(), "fast")
    writer.add("a", size, [bytes(size)])
    assert writer.close().unpacked == (1 + blocks + 2) * tarfile.BLOCKSIZE


def make_lock(wheels: Mapping[str, Path]) -> dict[str, str]:
    return {
        part: f"{part}==1.0 --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        for part, file in wheels.items()
    }


def release(folder: Path, tag: str) -> dict[str, Path]:
    """The wheel of a release for one Python: a library for every Python, and a module for this one."""
    files = {LIBRARY: b"library" * 1000, f"tensorflow/own.{tag}.so": tag.encode()}
    return {"tensorflow": write_wheel(folder, "tensorflow", files, tag=tag)}


def make_results(
    wheels: Mapping[str, Path], store: LayerStore, events: list[Any] | None = None, *, fresh: bool = False
) -> dict[str, LayerResult]:
    layers = make_layers(
        make_lock(wheels), store, source=WheelSource(indexes=[], supplied=tuple(wheels.values())), compression="fast",
        on_event=lambda *event: events.append(event) if events is not None else None, fresh=fresh,
    )  # fmt: skip
    return {one.layer.name: one for one in layers}


def file_of(blob: Blob, store: LayerStore) -> Path:
    return store.blobs / blob.digest.removeprefix("sha256:")


def test_what_every_python_shares_is_written_once(tmp_path: Path) -> None:
    store = LayerStore(folder=tmp_path / "store")
    first = make_results(release(tmp_path, "cp39"), store)["tensorflow"].blob
    # Written anew it would be another file in the same place.
    before = file_of(first, store).stat().st_ino
    assert make_results(release(tmp_path, "cp311"), store)["tensorflow"].blob == first
    assert file_of(first, store).stat().st_ino == before
    make_results(release(tmp_path, "cp311"), store, fresh=True)
    assert file_of(first, store).stat().st_ino != before


def test_a_layer_is_reported_done_with_the_seconds_that_it_took(tmp_path: Path) -> None:
    store, events = LayerStore(folder=tmp_path / "store"), list[tuple[str, str, float]]()
    layers = make_results(release(tmp_path, "cp39"), store, events)
    assert [(name, state) for name, state, _ in events] == [
        ("tensorflow", "started"), ("tensorflow-python", "started"),
        ("tensorflow", "done"), ("tensorflow-python", "done"),
    ]  # fmt: skip
    assert all(seconds == 0.0 for _, state, seconds in events if state == "started")
    took = {name: seconds for name, state, seconds in events if state == "done"}
    assert took == {name: one.seconds for name, one in layers.items()}
    assert all(seconds > 0 for seconds in took.values())


def test_the_store_is_an_oci_layout_whose_descriptors_fit_their_files(tmp_path: Path) -> None:
    store = LayerStore(folder=tmp_path / "store")
    layers = make_results(release(tmp_path, "cp39"), store)
    assert json.loads((store.folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    assert json.loads((store.folder / "index.json").read_text()) == {"schemaVersion": 2, "manifests": []}
    for stage in write_stages(list(layers.values()), store).values():
        digest = stage.partition("@sha256:")[2]
        manifest = json.loads((store.blobs / digest).read_text())
        assert (manifest["schemaVersion"], manifest["mediaType"]) == (
            2, "application/vnd.oci.image.manifest.v1+json",
        )  # fmt: skip
        for descriptor in (manifest["config"], *manifest["layers"]):
            file = store.blobs / descriptor["digest"].removeprefix("sha256:")
            assert descriptor["size"] == file.stat().st_size
            assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name
        assert {one["mediaType"] for one in manifest["layers"]} == {"application/vnd.oci.image.layer.v1.tar+zstd"}
        config = json.loads((store.blobs / manifest["config"]["digest"][7:]).read_text())
        assert (config["architecture"], config["os"], config["rootfs"]["type"]) == (
            "amd64",
            "linux",
            "layers",
        )


def store_blobs(store: LayerStore, sizes: Sequence[int]) -> list[Path]:
    """Blobs of these sizes, each used an hour after the one before it."""
    store.prepare()
    files = []
    for number, size in enumerate(sizes):
        files.append(store.blobs / f"{9 - number}{'0' * 63}")
        files[-1].write_bytes(bytes(size))
        os.utime(files[-1], (0, 1_000_000_000 + 3600 * number))
    return files


def test_the_store_may_hold_exactly_its_limit(tmp_path: Path) -> None:
    store = LayerStore(folder=tmp_path / "store")
    oldest, older, newest = store_blobs(store, [300, 100, 200])
    store.prune(limit=600)
    assert oldest.exists()
    store.prune(limit=599)
    assert [file.exists() for file in (oldest, older, newest)] == [False, True, True]


def test_a_wheel_that_no_source_has_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    wheels = release(tmp_path, "cp39")
    lock = make_lock(wheels)
    with pytest.raises(LockError) as caught:
        make_layers(
            lock, LayerStore(folder=tmp_path / "store"), source=WheelSource(indexes=[]), compression="fast",
            on_event=lambda *_: None,
        )  # fmt: skip
    digest = hashlib.sha256(wheels["tensorflow"].read_bytes()).hexdigest()
    assert str(caught.value) == (
        f"The package index has no tensorflow 1.0 with sha256 {digest}. If the index is a mirror, check that it has "
        "everything; else update the lock with `tfimg matrix lock`."
    )

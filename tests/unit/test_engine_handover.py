"""Layers that are handed over once more: the same files under another digest, or all of them in one archive."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tfimg.core.documents import blob_path, make_image
from tfimg.core.files import digest_of
from tfimg.engine.handover import (
    SALTS,
    SCHEME,
    ImageLayer,
    insert_layers,
    list_salts,
    make_plain_config,
    salt_contexts,
    stream_image,
)
from tfimg.layers.layers import LayerStore
from tfimg.layers.wheel import Blob, BlobWriter
from tfimg.recipe.layout import Compression

FILES = {"opt/a": b"a" * 3_000_000, "opt/b": b"b"}


def make_stage(store: LayerStore, compression: Compression, names: tuple[str, ...] = ("opt/a", "opt/b")) -> str:
    """Write an image with a layer for each file into the store, which is an OCI layout."""
    store.prepare()
    blobs = [make_layer(store, compression, name) for name in names]
    layers = [{"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size} for blob in blobs]
    manifest, config = make_image(layers, [blob.diff_id for blob in blobs])
    for content in (config, manifest):
        (store.folder / blob_path(digest_of(content))).write_bytes(content)
    return f"{SCHEME}{store.folder}@{digest_of(manifest)}"


def make_layer(store: LayerStore, compression: Compression, name: str) -> Blob:
    partial = store.folder / "partial"
    with partial.open("wb") as sink:
        writer = BlobWriter(sink, compression)
        writer.add(name, len(FILES[name]), [FILES[name]])
        blob = writer.close()
    store.add(blob, partial)
    return blob


def read_manifest(address: str) -> tuple[Path, Any]:
    folder, _, digest = address.removeprefix(SCHEME).rpartition("@")
    return Path(folder), json.loads(read_blob(Path(folder), digest))


def read_blob(folder: Path, digest: str) -> bytes:
    content = (folder / "blobs" / digest.replace(":", "/")).read_bytes()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content


def unpack(content: bytes, media_type: str) -> bytes:
    if media_type.endswith("gzip"):
        return gzip.decompress(content)
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content), read_across_frames=True).read()


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(folder=tmp_path / "layers")


@pytest.mark.parametrize("compression", ["fast", "gzip"])
def test_a_salted_layer_has_the_same_files_and_another_digest(store: LayerStore, compression: Compression) -> None:
    salts, others = list(list_salts()), list(list_salts())
    assert salts[:-1] == others[:-1] == [*SALTS]
    assert salts[-1] != others[-1], "the last salt has never been used"
    plain = make_stage(store, compression)
    first, second = (salt_contexts({"wheels": plain}, salt)["wheels"] for salt in SALTS[:2])
    assert salt_contexts({"wheels": plain}, SALTS[0]) == {"wheels": first}, "images that share layers share these too"
    folder, before = read_manifest(plain)
    config = json.loads(read_blob(folder, before["config"]["digest"]))
    seen = {layer["digest"] for layer in before["layers"]}
    for address in (first, second):
        _, manifest = read_manifest(address)
        assert manifest["config"] == before["config"]
        for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            content = read_blob(folder, layer["digest"])
            assert len(content) == layer["size"]
            assert f"sha256:{hashlib.sha256(unpack(content, layer['mediaType'])).hexdigest()}" == diff_id
            assert layer["digest"] not in seen
            seen.add(layer["digest"])


def test_a_layer_that_is_not_compressed_is_compressed(store: LayerStore) -> None:
    """So `docker save` writes a base that the classic store has: its digest is that of its files."""
    address = make_stage(store, "gzip", ("opt/a",))
    folder, manifest = read_manifest(address)
    (packed,) = manifest["layers"]
    tar = gzip.decompress(read_blob(folder, packed["digest"]))
    digest = f"sha256:{hashlib.sha256(tar).hexdigest()}"
    (folder / "blobs/sha256" / digest[7:]).write_bytes(tar)
    layers = [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": len(tar)}]
    text = json.dumps({**manifest, "layers": layers})
    plain = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    (folder / "blobs/sha256" / plain[7:]).write_text(text)
    _, salted = read_manifest(salt_contexts({"b": f"{SCHEME}{folder}@{plain}"}, 1)["b"])
    (layer,) = salted["layers"]
    assert layer["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert gzip.decompress(read_blob(folder, layer["digest"])) == tar


def to_load(store: LayerStore, *names: str) -> list[ImageLayer]:
    """Return layers with a file each."""
    store.prepare()
    blobs = [make_layer(store, "fast", name) for name in names]
    return [
        ImageLayer(
            media_type=blob.media_type, digest=blob.digest, size=blob.size, diff_id=blob.diff_id,
            file=store.path(blob.digest), made_by=name,
        )
        for name, blob in zip(names, blobs, strict=True)
    ]  # fmt: skip


def read_archive(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "whole"),
    [("tfimg/candidate:x", "docker.io/tfimg/candidate:x"), ("candidate:x", "docker.io/library/candidate:x"),
     ("registry.example:5000/a/b:x", "registry.example:5000/a/b:x"), ("localhost/a:x", "localhost/a:x")],
)  # fmt: skip
def test_an_archive_has_each_layer_once_under_the_name_that_the_engine_keeps(
    store: LayerStore, name: str, whole: str
) -> None:
    layers = to_load(store, "opt/a", "opt/b", "opt/b")
    config = make_plain_config(layers, "linux/arm64")
    files = read_archive(b"".join(stream_image(name, layers, config)))
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"] == {"io.containerd.image.name": whole}
    manifest = json.loads(files[blob_path(entry["digest"])])
    assert json.loads(files[blob_path(manifest["config"]["digest"])]) == config
    assert (config["os"], config["architecture"]) == ("linux", "arm64")
    assert config["rootfs"]["diff_ids"] == [layer.diff_id for layer in layers]
    assert [layer["digest"] for layer in manifest["layers"]] == [layer.digest for layer in layers]
    assert {path for path in files if path.startswith("blobs/")} == {
        blob_path(entry["digest"]), blob_path(manifest["config"]["digest"]), *(blob_path(one.digest) for one in layers)
    }  # fmt: skip
    for layer in layers:
        assert files[blob_path(layer.digest)] == read_blob(store.folder, layer.digest)
    rest = read_archive(b"".join(stream_image(name, layers, config, loaded=1)))
    assert rest == {path: content for path, content in files.items() if path != blob_path(layers[0].digest)}


def test_layers_lie_below_the_system_and_above_it_each_with_its_line_of_the_history(store: LayerStore) -> None:
    lower, system, upper, suite = (to_load(store, "opt/a", "opt/b")[number % 2] for number in range(4))
    config = {
        "created": "2026-01-01T00:00:00Z",
        "config": {"User": "1000:1000"},
        "history": [
            {"created_by": "ARG", "empty_layer": True}, {"created_by": "COPY system"}, {"created_by": "COPY suite"},
            {"created_by": "USER", "empty_layer": True},
        ],
        "rootfs": {"type": "layers", "diff_ids": [system.diff_id, suite.diff_id]},
    }  # fmt: skip
    made, layers = insert_layers(config, [system, suite], below=[lower], above=[upper])
    assert layers == [lower, system, upper, suite]
    assert made["rootfs"]["diff_ids"] == [layer.diff_id for layer in layers]
    assert [step["created_by"] for step in made["history"]] == [
        "ARG", "opt/a", "COPY system", "opt/a", "COPY suite", "USER",
    ]  # fmt: skip
    assert made["config"] == {"User": "1000:1000"}

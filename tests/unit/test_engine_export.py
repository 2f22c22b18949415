"""What is read of an engine's store without asking the engine."""

import hashlib
import json
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.mutated_documents import mutated_bytes, mutations
from support.oci_images import archive
from tfimg.core.errors import BaseImageError, EngineError
from tfimg.engine.export import classic_layers, containerd_layers, exported_layers, extract_layout
from tfimg.engine.interface import StoredLayer

LOW, HIGH = (f"sha256:{name * 64}" for name in "12")


def descriptor(digest: str) -> dict[str, object]:
    return {"mediaType": "application/x", "digest": digest, "size": 2}


def write_layer_note(store: Path, chain: str, size: int) -> None:
    folder = store / "sha256" / chain
    folder.mkdir(parents=True)
    (folder / "size").write_text(str(size))


def test_sizes_of_a_classic_store_identify_the_layers(tmp_path: Path) -> None:
    write_layer_note(tmp_path, "1" * 64, 7)
    write_layer_note(tmp_path, hashlib.sha256(f"{LOW} {HIGH}".encode()).hexdigest(), 9)
    assert classic_layers([LOW, HIGH], tmp_path) == (
        StoredLayer(digest=LOW, media_type="tar", size=7),
        StoredLayer(digest=HIGH, media_type="tar", size=9),
    )


def test_a_layer_that_the_store_lacks_is_not_listed(tmp_path: Path) -> None:
    write_layer_note(tmp_path, "1" * 64, 7)
    write_layer_note(tmp_path, "2" * 64, 9)
    assert classic_layers([LOW, HIGH], tmp_path) is None
    assert classic_layers([LOW], tmp_path / "nowhere") is None


def test_an_export_is_laid_out_file_by_file(tmp_path: Path) -> None:
    index = json.dumps({"manifests": [descriptor(LOW)]}).encode()
    files = {"index.json": index, "blobs/sha256/abc": b"{}"}
    assert extract_layout(iter([archive(files)]), tmp_path) == LOW
    assert (tmp_path / "blobs/sha256/abc").read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["../outside", "blobs/../../outside"])
def test_a_file_outside_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BaseImageError, match="outside of the image"):
        extract_layout(iter([archive({name: b"x"})]), tmp_path / "layout")
    assert not (tmp_path / "outside").exists()


def blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def export(*, nested: bool = True) -> dict[str, bytes]:
    """An export of an image with one layer, below an index of platforms or not."""
    manifest = json.dumps({"config": descriptor(LOW), "layers": [descriptor(HIGH)]}).encode()
    listed = json.dumps({"manifests": [descriptor(LOW)]}).encode()
    inner = {blob(f"sha256:{'3' * 64}"): listed, blob(LOW): manifest} if nested else {blob(LOW): manifest}
    top = json.dumps({"manifests": [descriptor(f"sha256:{'3' * 64}" if nested else LOW)]}).encode()
    return {"index.json": top, **inner, blob(HIGH): b"layer"}


@pytest.mark.parametrize("nested", [True, False])
def test_the_layers_of_an_export_are_read(nested: bool) -> None:
    layer = StoredLayer(digest=HIGH, media_type="application/x", size=5)
    assert exported_layers(iter([archive(export(nested=nested))])) == (layer,)
    saved = {"manifest.json": b'[{"Layers": ["a"]}]', "a": b"12"}
    assert exported_layers(iter([archive(saved)])) == (StoredLayer(digest="a", media_type="tar", size=2),)


def test_files_of_a_store_identify_the_layers(tmp_path: Path) -> None:
    for name, content in export().items():
        file = tmp_path / "io.containerd.content.v1.content" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    layer = StoredLayer(digest=HIGH, media_type="application/x", size=5)
    assert containerd_layers(LOW, (tmp_path / "none", tmp_path)) == (layer,)
    (tmp_path / "io.containerd.content.v1.content" / blob(LOW)).write_bytes(b'{"layers": [{"digest": "../../x"}]}')
    assert containerd_layers(LOW, (tmp_path,)) is None


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_changed_export_is_read_or_refused(data: st.DataObject) -> None:
    files = export() if data.draw(st.booleans()) else {"manifest.json": b'[{"Layers": ["a"]}]', "a": b""}
    name = data.draw(st.sampled_from(sorted(files)))
    files[name] = data.draw(mutations(files[name]))
    content = archive(files)
    if data.draw(st.booleans()):
        content = data.draw(mutated_bytes(content))
    with suppress(EngineError):
        exported_layers(iter([content]))
    with tempfile.TemporaryDirectory() as folder, suppress(BaseImageError):
        assert extract_layout(iter([content]), Path(folder)).startswith("sha256:")

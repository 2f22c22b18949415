"""What is read of an engine's store without asking the engine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from support.oci_images import archive
from tfimg.engine.export import lay_out, unpacked_layers
from tfimg.engine.protocol import StoredLayer
from tfimg.errors import BaseError

LOW, HIGH = (f"sha256:{name * 64}" for name in "12")


def noted(store: Path, chain: str, size: int) -> None:
    folder = store / "sha256" / chain
    folder.mkdir(parents=True)
    (folder / "size").write_text(str(size))


def test_a_classic_store_s_notes_tell_the_layers_of_an_image(tmp_path: Path) -> None:
    noted(tmp_path, "1" * 64, 7)
    noted(tmp_path, hashlib.sha256(f"{LOW} {HIGH}".encode()).hexdigest(), 9)
    assert unpacked_layers([LOW, HIGH], tmp_path) == (
        StoredLayer(digest=LOW, media_type="tar", size=7),
        StoredLayer(digest=HIGH, media_type="tar", size=9),
    )


def test_a_layer_that_the_store_does_not_have_above_this_one_is_not_told(tmp_path: Path) -> None:
    noted(tmp_path, "1" * 64, 7)
    noted(tmp_path, "2" * 64, 9)
    assert unpacked_layers([LOW, HIGH], tmp_path) is None
    assert unpacked_layers([LOW], tmp_path / "nowhere") is None


def test_an_export_is_laid_out_file_by_file(tmp_path: Path) -> None:
    index = b'{"manifests": [{"digest": "sha256:abc"}]}'
    assert (
        lay_out(iter([archive({"index.json": index, "blobs/sha256/abc": b"{}"})]), tmp_path) == "sha256:abc"
    )
    assert (tmp_path / "blobs/sha256/abc").read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["../outside", "blobs/../../outside"])
def test_a_file_outside_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BaseError, match="outside of the image"):
        lay_out(iter([archive({name: b"x"})]), tmp_path / "layout")
    assert not (tmp_path / "outside").exists()

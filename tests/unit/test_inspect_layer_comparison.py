"""Two exports side by side: what differs is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import zstandard

from support.oci_images import archive
from tfimg.core.errors import EngineError
from tfimg.inspect.layer_comparison import compare_layers

Export = Callable[..., Path]


def layer(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """A tar of files with their contents and times."""
    contents = {name: content for name, (content, _) in files.items()}
    return archive(contents, {name: mtime for name, (_, mtime) in files.items()})


@pytest.fixture
def export(tmp_path: Path) -> Export:
    def write(name: str, *layers: tuple[str, bytes]) -> Path:
        files = {f"blobs/sha256/{digest}": content for digest, content in layers}
        manifest = json.dumps([{"Layers": list(files)}]).encode()
        (tmp_path / name).write_bytes(archive({**files, "manifest.json": manifest}))
        return tmp_path / name

    return write


def test_equal_layers_are_not_even_opened(export: Export) -> None:
    first, second = (export(name, ("aa", b"no archive")) for name in ("1", "2"))
    (pair,) = compare_layers(first, second)
    assert pair.same
    assert pair.files == ()


@pytest.mark.parametrize("pack", [bytes, zstandard.ZstdCompressor().compress])
def test_each_file_that_differs_is_named_with_why(export: Export, pack: Callable[[bytes], bytes]) -> None:
    one = layer({"same": (b"x", 1), "clock": (b"x", 1), "content": (b"x", 1), "gone": (b"", 1)})
    other = layer({"same": (b"x", 1), "clock": (b"x", 2), "content": (b"yy", 1), "new": (b"", 1)})
    (pair,) = compare_layers(export("1", ("aa", pack(one))), export("2", ("bb", pack(other))))
    assert pair.digests == ("sha256:aa", "sha256:bb")
    assert pair.differing == 4
    clock, content, gone, new = pair.files
    assert clock == "clock: mtime 1 and 2"
    assert content.startswith("content: size 1 and 2, content ")
    assert (gone, new) == ("gone: only in the first", "new: only in the second")


def test_a_layer_that_one_lacks_differs_whole(export: Export) -> None:
    same, more = ("aa", b"-"), ("bb", layer({"a": (b"", 1)}))
    first, second = compare_layers(export("1", same), export("2", same, more))
    assert first.same
    assert (second.digests, second.files) == ((None, "sha256:bb"), ("a: only in the second",))


def test_an_invalid_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"\0" * 2048)
    with pytest.raises(EngineError, match="not an exported image"):
        list(compare_layers(tmp_path / "1", tmp_path / "1"))


@pytest.mark.parametrize(
    "manifest",
    [b"", b"{}", b"[]", b"[1]", b'[{"Layers": 1}]', b'[{"Layers": ["gone"]}]', b"[" * 100_000, b"9" * 5000],
)
def test_a_malformed_export_is_refused(tmp_path: Path, manifest: bytes) -> None:
    (tmp_path / "1").write_bytes(archive({"manifest.json": manifest}))
    (tmp_path / "2").write_bytes(archive({"manifest.json": b'[{"Layers": []}]'}))
    with pytest.raises(EngineError, match="not an exported image"):
        list(compare_layers(tmp_path / "1", tmp_path / "2"))

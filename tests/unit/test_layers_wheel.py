"""Wheels become layers: the right files at the right places, and the same bytes each time."""

import hashlib
import io
import os
import random
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import zstandard

from support.cases import cases
from support.hostile_wheels import write_hostile_wheel
from support.messages import exactly
from support.wheels import open_layer, read_files, record_hash, write_wheel
from tfimg.cli.commands.build import Build
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import Interrupted, InvalidWheel
from tfimg.layers.wheel import PIECE, Blob, BlobWriter, OpenWheel
from tfimg.recipe.layout import SITE_PACKAGES, Compression, list_wheel_layers, split_lock

ROOT = Path(__file__).parents[2]
Wheel = Callable[..., Path]
LIBRARY = "tensorflow/libtensorflow_cc.so.2"


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    """Writes a wheel of files, with its RECORD."""
    return partial(write_wheel, tmp_path)


def pack_both(wheel: Path, *shared: str) -> tuple[tarfile.TarFile, tarfile.TarFile]:
    """The layers of what is shared between Pythons, and of the rest."""
    sinks = io.BytesIO(), io.BytesIO()
    into, rest = (BlobWriter(sink, "fast") for sink in sinks)
    with OpenWheel(wheel) as opened:
        opened.unpack(shared=shared, into=into, rest=rest)
    into.close(), rest.close()
    return open_layer(sinks[0].getvalue()), open_layer(sinks[1].getvalue())


def test_removed_files_are_in_record_alone_and_the_script_removes_the_same(wheel: Wheel, tmp_path: Path) -> None:
    files = {
        "a/__init__.py": b"", "a/include/b/c.h": b"h", "a/include/d.inc": b"i", "a/lib.a": b"a", "a/libs": b"s",
        "a/tests/test_a.py": b"t", "a/testing/b.py": b"b",
    }  # fmt: skip
    patterns = ("a/include/*", "*.a", "*/tests/*", "nvidia/*/include/*", "a/testing")
    made = wheel("thing", files)
    sink = io.BytesIO()
    layer = BlobWriter(sink, "fast")
    with OpenWheel(made) as opened:
        opened.unpack(shared=(), removed=patterns, into=None, rest=layer)
    layer.close()
    archive = open_layer(sink.getvalue())
    found = {name.removeprefix(f"{SITE_PACKAGES}/"): data for name, data in read_files(archive).items()}
    assert sorted(name for name in found if name.startswith("a/")) == ["a/__init__.py", "a/libs", "a/testing/b.py"]
    record = found["thing-1.0.dist-info/RECORD"].decode()
    assert all(f"{name},sha256=" in record for name in files)
    with zipfile.ZipFile(made) as whole:
        whole.extractall(tmp_path / "site")  # noqa: S202  (of our own making)
    run = ["sh", str(ROOT / "images/build/remove"), str(tmp_path / "site")]
    subprocess.run(run, check=True, env={"PATH": os.environ["PATH"], "REMOVED": " ".join(patterns)})
    left = {str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site").rglob("*")}
    folders = {member.name for member in archive if member.isdir()}
    below = {name.removeprefix(f"{SITE_PACKAGES[1:]}/") for name in folders if name.startswith(f"{SITE_PACKAGES[1:]}/")}
    assert left == found.keys() - {"thing-1.0.dist-info/INSTALLER"} | below


def pack_files(
    *files: tuple[str, list[bytes]], compression: Compression = "fast", of_libraries: bool = False
) -> tuple[Blob, bytes]:
    """Return a layer of files, each in pieces."""
    writer = BlobWriter(sink := io.BytesIO(), compression, of_libraries=of_libraries)
    for path, pieces in files:
        writer.add(path, sum(map(len, pieces)), pieces)
    return writer.close(), sink.getvalue()


def test_a_layer_is_a_tar_of_its_files_with_one_owner_and_one_mtime() -> None:
    writer = BlobWriter(sink := io.BytesIO(), "fast")
    writer.add("a/b/c.py", 5, [b"he", b"llo"])
    writer.add("a/run", 0, [], executable=True)
    blob, layer = writer.close(), sink.getvalue()
    assert [(one.name, one.mode, one.mtime, one.uid, one.isdir()) for one in open_layer(layer)] == [
        ("a", 0o755, 946684800, 0, True),
        ("a/b", 0o755, 946684800, 0, True),
        ("a/b/c.py", 0o644, 946684800, 0, False),
        ("a/run", 0o755, 946684800, 0, False),
    ]
    inside = zstandard.ZstdDecompressor().stream_reader(layer).read()
    assert blob == Blob(
        media_type="application/vnd.oci.image.layer.v1.tar+zstd",
        digest=f"sha256:{hashlib.sha256(layer).hexdigest()}",
        diff_id=f"sha256:{hashlib.sha256(inside).hexdigest()}",
        size=len(layer), unpacked=len(inside), files=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("compression", "of_libraries"),
    [("fast", False), ("fast", True), ("small", False), pytest.param("smallest", False, marks=pytest.mark.full)],
)
def test_a_layer_has_the_same_bytes_for_any_pieces_and_threads(
    compression: Compression, of_libraries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than zstd gives one thread at a time: 32 MiB, four times the window."""
    some = random.Random(1)  # noqa: S311  (no secret)
    data = b"".join(some.randbytes(50_000) + bytes(30_000) for _ in range(500))
    packed = []
    for threads, piece in ((1, len(data)), (2, 1 << 20), (4, 777_777)):
        monkeypatch.setattr("tfimg.layers.wheel.THREADS", threads)
        pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
        blob, layer = pack_files(("a", pieces), compression=compression, of_libraries=of_libraries)
        packed.append((blob, hashlib.sha256(layer).hexdigest()))
    assert len({blob for blob, _ in packed}) == 1
    assert {f"sha256:{found}" for _, found in packed} == {packed[0][0].digest}


def test_a_path_of_up_to_255_bytes_takes_one_block_and_any_other_is_whole() -> None:
    short, long, longer, accent = "a" * 90, f"{'b' * 120}/{'c' * 90}", f"{'d' * 200}/{'e' * 200}", "é"
    for path, headers in ((short, 1), (long, 2), (longer, 6), (accent, 3)):  # of its folder too
        blob, layer = pack_files((path, [b""]))
        assert blob.unpacked == (headers + 2) * 512
        assert set(read_files(open_layer(layer))) == {f"/{path}"}


def test_gzip_is_packed_the_same_each_time() -> None:
    (blob, layer), again = (pack_files(("a", [b"hello"]), compression="gzip") for _ in range(2))
    assert (blob, layer) == again
    assert blob.media_type.endswith("+gzip")
    with tarfile.open(fileobj=io.BytesIO(layer), mode="r:gz") as archive:
        assert read_files(archive) == {"/a": b"hello"}


def test_a_file_that_ends_early_is_no_layer() -> None:
    with pytest.raises(ValueError, match="has 2 bytes, not 3"):
        BlobWriter(io.BytesIO(), "fast").add("a", 3, [b"he"])


def test_of_two_files_at_one_path_the_first_stays_and_a_long_name_and_a_large_file_survive() -> None:
    blob, layer = pack_files(("a/b", [b"first"]), ("a/b", [b"second"]))
    assert [member.name for member in open_layer(layer)] == ["a", "a/b"]
    assert (read_files(open_layer(layer)), blob.files) == ({"/a/b": b"first"}, 1)
    name, data = "x/" * 150 + "name", bytes(range(256)) * 40_000
    _, layer = pack_files((name, [data[:1000], data[1000:]]))
    assert read_files(open_layer(layer)) == {f"/{name}": data}


def test_a_cancelled_layer_is_not_written_further() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        BlobWriter(io.BytesIO(), "fast").add("a", 3, [b"abc"])


def test_a_wheel_s_files_lie_where_an_installer_puts_them(wheel: Wheel) -> None:
    files = {
        "thing/__init__.py": b"x = 1\n",
        "thing/__pycache__/old.cpython-39.pyc": b"no",
        "thing/without_source.pyc": b"yes",
        "thing-1.0.data/scripts/tool": b"#!python\nprint(1)\n",
        "thing-1.0.data/data/share/man": b"read me",
    }
    made = wheel("thing", files, scripts="[console_scripts]\nmain = thing:main\n")
    _, rest = pack_both(made)
    found = read_files(rest)
    assert found[f"{SITE_PACKAGES}/thing/__init__.py"] == b"x = 1\n"
    assert found["/opt/tensorflow/bin/tool"] == b"#!/opt/tensorflow/bin/python\nprint(1)\n"
    assert found["/opt/tensorflow/share/man"] == b"read me"
    assert found["/opt/tensorflow/bin/main"].startswith(b"#!/opt/tensorflow/bin/python\n")
    assert rest.getmember("opt/tensorflow/bin/main").mode == 0o755
    assert not [path for path in found if "__pycache__" in path]
    assert found[f"{SITE_PACKAGES}/thing/without_source.pyc"] == b"yes"
    installed = {
        "../../../bin/main": "/opt/tensorflow/bin/main",
        "../../../bin/tool": "/opt/tensorflow/bin/tool",
        "thing/__init__.py": f"{SITE_PACKAGES}/thing/__init__.py",
        "thing-1.0.dist-info/INSTALLER": f"{SITE_PACKAGES}/thing-1.0.dist-info/INSTALLER",
    }
    record = found[f"{SITE_PACKAGES}/thing-1.0.dist-info/RECORD"].decode().splitlines()
    for name, path in installed.items():
        assert f"{name},sha256={record_hash(found[path])},{len(found[path])}" in record
    assert found[installed["thing-1.0.dist-info/INSTALLER"]] == b"tfimg\n"


def test_what_is_the_same_for_every_python_is_a_layer_of_its_own(wheel: Wheel) -> None:
    made = wheel("tensorflow", {LIBRARY: b"library", "tensorflow/__init__.py": b""}, tag="cp311")
    into, rest = pack_both(made, "tensorflow/libtensorflow_cc.so.*")
    assert read_files(into) == {f"{SITE_PACKAGES}/{LIBRARY}": b"library"}
    assert LIBRARY in read_files(rest)[f"{SITE_PACKAGES}/tensorflow-1.0.dist-info/RECORD"].decode()
    assert f"{SITE_PACKAGES}/{LIBRARY}" not in read_files(rest)


def test_only_paths_in_site_packages_match_what_is_shared(wheel: Wheel) -> None:
    files = {"lib/a": b"1", "lib2/a": b"2", "single": b"3", "thing-1.0.data/data/lib/a": b"4"}
    into, rest = pack_both(wheel("thing", {**files, "other/lib/a": b"5"}), "lib", "sing*")
    assert read_files(into) == {f"{SITE_PACKAGES}/lib/a": b"1", f"{SITE_PACKAGES}/single": b"3"}
    assert {data for path, data in read_files(rest).items() if ".dist-info" not in path} == {b"2", b"4", b"5"}


@cases("layers_wheel", "a_file_that_any_user_may_execute_is_executable")
def test_a_file_that_any_user_may_execute_is_executable(tmp_path: Path, mode: int, executable: bool) -> None:
    item = zipfile.ZipInfo("thing/run")
    item.external_attr = mode << 16
    _, rest = pack_both(write_hostile_wheel(tmp_path, [(item, b"#!/bin/sh\n")]))
    assert rest.getmember(f"{SITE_PACKAGES}/thing/run".lstrip("/")).mode == (0o755 if executable else 0o644)


def test_long_extra_fields_folders_and_files_without_a_type_are_read(tmp_path: Path) -> None:
    """auditwheel writes entries for folders, and pip's own wheel has modes without a file type."""
    item = zipfile.ZipInfo("thing/data")
    item.external_attr = 0o664 << 16
    item.extra = b"\xfe\xca" + (600).to_bytes(2, "little") + bytes(600)
    _, rest = pack_both(write_hostile_wheel(tmp_path, [("thing/", b""), ("thing-1.0.data/", b""), (item, b"read me")]))
    assert read_files(rest)[f"{SITE_PACKAGES}/thing/data"] == b"read me"


def test_a_file_of_a_wheel_is_inflated_in_bounded_pieces(wheel: Wheel, tmp_path: Path) -> None:
    sizes = []

    class Measuring(BlobWriter):
        def add(self, path: str, size: int, pieces: Iterable[bytes], *, executable: bool = False) -> None:
            def measured() -> Iterator[bytes]:
                for piece in pieces:
                    sizes.append(len(piece))
                    yield piece

            super().add(path, size, measured(), executable=executable)

    made = wheel("thing", {"thing/zeros": bytes(40 * 2**20)})
    with OpenWheel(made) as opened:
        opened.unpack(shared=(), into=None, rest=Measuring(io.BytesIO(), "fast"))
    assert sum(sizes) > 40 * 2**20
    assert max(sizes) <= 4 * PIECE


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_script_of_several_megabytes_is_whole(kind: int, wheel: Wheel) -> None:
    script = b"#!/bin/sh\n" + random.Random(1).randbytes(3 << 20)  # noqa: S311  (no secret)
    _, rest = pack_both(wheel("thing", {"thing-1.0.data/scripts/tool": script}, kind=kind))
    assert read_files(rest)["/opt/tensorflow/bin/tool"] == script


def test_a_script_has_a_largest_size(wheel: Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.layers.wheel.MAX_SCRIPT", 10)
    name = "thing-1.0.data/scripts/tool"
    _, rest = pack_both(wheel("thing", {name: bytes(10)}))
    assert read_files(rest)["/opt/tensorflow/bin/tool"] == bytes(10)
    large = wheel("thing", {name: bytes(11)})
    message = (
        f"{large.name} is not a valid wheel: '{name}' has more than 10 bytes. Do not build with it. If the lock "
        "names this file, report it to the package's publisher and lock another version; else the disk may be "
        "failing."
    )
    with pytest.raises(InvalidWheel, match=exactly(message)):
        pack_both(large)


def test_a_part_that_is_the_same_for_every_python_is_one_layer_with_its_scripts_and_metadata(wheel: Wheel) -> None:
    files = {"thing/a.so": b"a", "thing-1.0.data/scripts/tool": b"#!python\n", "thing-1.0.data/data/share/x": b"x"}
    into, rest = map(read_files, pack_both(wheel("thing", files), "."))
    assert rest == {}
    assert {"/opt/tensorflow/bin/tool", "/opt/tensorflow/share/x", f"{SITE_PACKAGES}/thing/a.so"} < into.keys()
    assert f"{SITE_PACKAGES}/thing-1.0.dist-info/RECORD" in into


def test_a_layer_is_whole_blocks_and_ends_with_two_empty_ones() -> None:
    blob, _ = pack_files(("a", [bytes(513)]))
    assert blob.unpacked == (1 + 2 + 2) * tarfile.BLOCKSIZE


def test_groups_of_wheels_lie_in_the_order_in_which_they_are_shared() -> None:
    lock = dict.fromkeys(("packages", "tensorflow", "cudnn", "cuda"), "")
    assert [group.name for group in split_lock(lock)] == ["cuda", "cudnn", "tensorflow", "packages"]
    assert [layer.name for layer in list_wheel_layers(lock)] == [
        "cuda", "cudnn", "tensorflow", "tensorflow-python", "packages",
    ]  # fmt: skip


def test_the_command_line_offers_every_way_to_pack() -> None:
    option, without = get_args(get_type_hints(Build)["compression"])
    assert (get_args(option), without) == (get_args(Compression), type(None))

"""Wheels become layers: the right files at the right places, and the same bytes each time."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import zstandard

from support.cases import cases
from support.hostile_wheels import ATTACKS, write_hostile_wheel
from support.wheels import lock_line, record_hash, write_wheel
from tfimg.build.builder import count_kept_layers
from tfimg.cli.commands.build import Build
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import Interrupted, InvalidWheel
from tfimg.engine.interface import StoredImage, StoredLayer
from tfimg.layers.layers import LayerResult, LayerStore, WheelSource, make_layers, write_stages
from tfimg.layers.wheel import PIECE, Blob, BlobWriter, unpack_wheel
from tfimg.recipe.layout import SITE_PACKAGES, Compression, list_wheel_layers, split_lock

ROOT = Path(__file__).parents[2]
Wheel = Callable[..., Path]
PYTHONS = ("cp39", "cp311")
Images = dict[str, dict[str, Any]]
LIBRARY = "tensorflow/libtensorflow_cc.so.2"


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    """Writes a wheel of files, with its RECORD."""
    return partial(write_wheel, tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(folder=tmp_path / "store")


def open_layer(layer: bytes) -> tarfile.TarFile:
    with zstandard.ZstdDecompressor().stream_reader(layer) as content:
        return tarfile.open(fileobj=io.BytesIO(content.read()))


def content(archive: tarfile.TarFile) -> dict[str, bytes]:
    return {
        f"/{member.name}": archive.extractfile(member).read()  # type: ignore[union-attr]
        for member in archive
        if member.isfile()
    }


def read_members(store: LayerStore, blob: Blob) -> dict[str, bytes]:
    return content(open_layer((store.blobs / blob.digest[7:]).read_bytes()))


def pack_both(wheel: Path, *shared: str) -> tuple[tarfile.TarFile, tarfile.TarFile]:
    """The layers of what is shared between Pythons, and of the rest."""
    sinks = io.BytesIO(), io.BytesIO()
    into, rest = (BlobWriter(sink, "fast") for sink in sinks)
    unpack_wheel(wheel, shared=shared, into=into, rest=rest)
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
    unpack_wheel(made, shared=(), removed=patterns, into=None, rest=layer)
    layer.close()
    archive = open_layer(sink.getvalue())
    found = {name.removeprefix(f"{SITE_PACKAGES}/"): data for name, data in content(archive).items()}
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


def format_report(*files: tuple[str, list[bytes]], compression: Compression = "fast") -> tuple[Blob, bytes]:
    """A layer of files, each in pieces."""
    writer = BlobWriter(sink := io.BytesIO(), compression)
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
    # Four headers, one block of content, and the two that end an archive (POSIX pax, ustar interchange format).
    assert len(inside) == 7 * 512
    assert blob == Blob(
        media_type="application/vnd.oci.image.layer.v1.tar+zstd",
        digest=f"sha256:{hashlib.sha256(layer).hexdigest()}",
        diff_id=f"sha256:{hashlib.sha256(inside).hexdigest()}",
        size=len(layer), unpacked=len(inside), files=2,
    )  # fmt: skip


@pytest.mark.parametrize("compression", ["fast", "small", pytest.param("smallest", marks=pytest.mark.full)])
def test_a_layer_has_the_same_bytes_for_any_pieces_and_threads(
    compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than zstd gives one thread at a time: 32 MiB, four times the window."""
    some = random.Random(1)  # noqa: S311  (no secret)
    data = b"".join(some.randbytes(50_000) + bytes(30_000) for _ in range(500))
    packed = []
    for threads, piece in ((1, len(data)), (2, 1 << 20), (4, 777_777)):
        monkeypatch.setattr("tfimg.layers.wheel.THREADS", threads)
        pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
        blob, layer = format_report(("a", pieces), compression=compression)
        packed.append((blob, hashlib.sha256(layer).hexdigest()))
    assert len({blob for blob, _ in packed}) == 1
    assert {f"sha256:{found}" for _, found in packed} == {packed[0][0].digest}


def test_gzip_is_packed_the_same_each_time() -> None:
    (blob, layer), again = (format_report(("a", [b"hello"]), compression="gzip") for _ in range(2))
    assert (blob, layer) == again
    assert blob.media_type.endswith("+gzip")
    with tarfile.open(fileobj=io.BytesIO(layer), mode="r:gz") as archive:
        assert content(archive) == {"/a": b"hello"}


def test_a_file_that_ends_early_is_no_layer() -> None:
    with pytest.raises(ValueError, match="has 2 bytes, not 3"):
        BlobWriter(io.BytesIO(), "fast").add("a", 3, [b"he"])


def test_of_two_files_at_one_path_the_first_stays() -> None:
    blob, layer = format_report(("a/b", [b"first"]), ("a/b", [b"second"]))
    assert [member.name for member in open_layer(layer)] == ["a", "a/b"]
    assert (content(open_layer(layer)), blob.files) == ({"/a/b": b"first"}, 1)


def test_a_cancelled_layer_is_not_written_further() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        BlobWriter(io.BytesIO(), "fast").add("a", 3, [b"abc"])


def test_a_long_name_and_a_large_file_survive() -> None:
    name, data = "x/" * 150 + "name", bytes(range(256)) * 40_000
    _, layer = format_report((name, [data[:1000], data[1000:]]))
    assert content(open_layer(layer)) == {f"/{name}": data}


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
    found = content(rest)
    assert found[f"{SITE_PACKAGES}/thing/__init__.py"] == b"x = 1\n"
    assert found["/opt/tensorflow/bin/tool"] == b"#!/opt/tensorflow/bin/python\nprint(1)\n"
    assert found["/opt/tensorflow/share/man"] == b"read me"
    assert found["/opt/tensorflow/bin/main"].startswith(b"#!/opt/tensorflow/bin/python\n")
    assert rest.getmember("opt/tensorflow/bin/main").mode == 0o755
    assert not [path for path in found if "__pycache__" in path]
    assert found[f"{SITE_PACKAGES}/thing/without_source.pyc"] == b"yes"
    record = found[f"{SITE_PACKAGES}/thing-1.0.dist-info/RECORD"].decode().splitlines()
    assert f"thing/__init__.py,sha256={record_hash(b'x = 1' + bytes([10]))},6" in record
    assert [line for line in record if line.startswith("../../../bin/main,sha256=")]
    assert found[f"{SITE_PACKAGES}/thing-1.0.dist-info/INSTALLER"] == b"tfimg\n"


def test_pip_agrees_with_what_was_laid_out(wheel: Wheel, tmp_path: Path) -> None:
    made = wheel("thing", {"thing/__init__.py": b"x = 1\n"}, scripts="[console_scripts]\nmain = thing:main\n")
    _, rest = pack_both(made)
    rest.extractall(tmp_path / "root")  # noqa: S202  (we made it; filters came with Python 3.11.4)
    site = f"{tmp_path}/root{SITE_PACKAGES}"
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "show", "--files", "thing"],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": site, "PATH": ""},
    ).stdout  # fmt: skip
    assert "  ../../../bin/main" in shown.splitlines()
    assert "Version: 1.0" in shown


def test_what_is_the_same_for_every_python_is_a_layer_of_its_own(wheel: Wheel) -> None:
    made = wheel("tensorflow", {LIBRARY: b"library", "tensorflow/__init__.py": b""}, tag="cp311")
    into, rest = pack_both(made, "tensorflow/libtensorflow_cc.so.*")
    assert content(into) == {f"{SITE_PACKAGES}/{LIBRARY}": b"library"}
    assert LIBRARY in content(rest)[f"{SITE_PACKAGES}/tensorflow-1.0.dist-info/RECORD"].decode()
    assert f"{SITE_PACKAGES}/{LIBRARY}" not in content(rest)


def test_only_paths_in_site_packages_match_what_is_shared(wheel: Wheel) -> None:
    files = {"lib/a": b"1", "lib2/a": b"2", "single": b"3", "thing-1.0.data/data/lib/a": b"4"}
    into, rest = pack_both(wheel("thing", {**files, "other/lib/a": b"5"}), "lib", "sing*")
    assert content(into) == {f"{SITE_PACKAGES}/lib/a": b"1", f"{SITE_PACKAGES}/single": b"3"}
    assert {data for path, data in content(rest).items() if ".dist-info" not in path} == {b"2", b"4", b"5"}


@cases("layers_wheel", "a_file_that_anybody_may_execute_is_executable")
def test_a_file_that_anybody_may_execute_is_executable(tmp_path: Path, mode: int, executable: bool) -> None:
    item = zipfile.ZipInfo("thing/run")
    item.external_attr = mode << 16
    _, rest = pack_both(write_hostile_wheel(tmp_path, [(item, b"#!/bin/sh\n")]))
    assert rest.getmember(f"{SITE_PACKAGES}/thing/run".lstrip("/")).mode == (0o755 if executable else 0o644)


def test_a_wheel_s_local_headers_may_have_long_extra_fields(tmp_path: Path) -> None:
    item = zipfile.ZipInfo("thing/data")
    item.extra = b"\xfe\xca" + (600).to_bytes(2, "little") + bytes(600)
    _, rest = pack_both(write_hostile_wheel(tmp_path, [(item, b"read me")]))
    assert content(rest)[f"{SITE_PACKAGES}/thing/data"] == b"read me"


def test_folders_and_files_without_a_type_are_as_wheels_have_them(tmp_path: Path) -> None:
    """auditwheel writes entries for folders, and pip's own wheel has modes without a file type."""
    item = zipfile.ZipInfo("thing/data")
    item.external_attr = 0o664 << 16
    _, rest = pack_both(write_hostile_wheel(tmp_path, [("thing/", b""), ("thing-1.0.data/", b""), (item, b"read me")]))
    assert content(rest)[f"{SITE_PACKAGES}/thing/data"] == b"read me"


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
    unpack_wheel(made, shared=(), into=None, rest=Measuring(io.BytesIO(), "fast"))
    assert sum(sizes) > 40 * 2**20
    assert max(sizes) <= 4 * PIECE


@pytest.mark.parametrize("spoil", [lambda data: data[:-200], lambda data: data.replace(b"library", b"librarY")])
def test_a_damaged_wheel_is_refused(wheel: Wheel, spoil: Callable[[bytes], bytes]) -> None:
    made = wheel("tensorflow", {LIBRARY: b"library" * 100}, kind=zipfile.ZIP_STORED)
    made.write_bytes(spoil(made.read_bytes()))
    with pytest.raises(InvalidWheel, match=f"^{made.name} is not a valid wheel: "):
        pack_both(made)


def test_a_file_whose_hash_is_not_that_of_record_is_refused(tmp_path: Path) -> None:
    """Size and checksum of the archive agree: RECORD alone knows."""
    with pytest.raises(InvalidWheel, match=r"'thing/__init__.py' does not have the hash that RECORD states"):
        pack_both(ATTACKS["other hash"](tmp_path))


# The whole way, with wheels that were supplied: no index is asked.


def make_lock(files: Mapping[str, Path]) -> dict[str, str]:
    return {part: lock_line(file) for part, file in files.items()}


@pytest.fixture
def images(wheel: Wheel, tmp_path: Path) -> Images:
    """Locks and wheels of one release for two Pythons."""
    cudnn = wheel("cudnn", {"nvidia/cudnn/lib/libcudnn.so.9": b"cudnn" * 1000, "nvidia/__init__.py": b""})
    found = {}
    for tag in PYTHONS:
        own = {
            LIBRARY: b"library" * 1000,
            "tensorflow/__init__.py": b"",
            f"tensorflow/own.{tag}.so": tag.encode(),
        }
        wheels = {
            "cudnn": cudnn,
            "tensorflow": wheel("tensorflow", own, tag=tag),
            "packages": wheel("numpy", {"numpy/__init__.py": tag.encode()}, tag=tag),
        }
        found[tag] = {"lock": make_lock(wheels), "wheels": tuple(wheels.values())}
    return found


def make_all(
    image: dict[str, Any],
    store: LayerStore,
    events: list[Any] | None = None,
    *,
    compression: Compression = "fast",
    fresh: bool = False,
) -> tuple[LayerResult, ...]:
    return make_layers(
        image["lock"], store, source=WheelSource(indexes=[], supplied=image["wheels"]), compression=compression,
        fresh=fresh,
        on_event=lambda *event: events.append(event[:2]) if events is not None else None,
    )  # fmt: skip


def test_layers_for_another_python_are_the_same_bytes_where_they_can_be(images: Images, tmp_path: Path) -> None:
    first, second = (make_all(images[tag], LayerStore(folder=tmp_path / tag)) for tag in PYTHONS)
    names = ["cudnn", "tensorflow", "tensorflow-python", "numpy"]
    assert [one.layer.name for one in first] == [one.layer.name for one in second] == names
    same = [one.blob == other.blob for one, other in zip(first, second, strict=True)]
    assert same == [True, True, False, False]


def test_what_the_store_has_is_not_made_again(images: Images, store: LayerStore) -> None:
    events = list[Any]()
    make_all(images["cp39"], store)
    again = make_all({**images["cp39"], "wheels": ()}, store, events)
    assert {event for _, event in events} == {"cached"}
    assert [one.seconds for one in again] == [None] * 4
    assert not list((store.folder / "wheels").iterdir())


def test_a_layer_of_another_python_s_wheel_is_reused(images: Images, store: LayerStore) -> None:
    make_all(images["cp39"], store)
    shared = {one.layer.name: one.blob for one in make_all(images["cp311"], store)}
    assert read_members(store, shared["tensorflow"]) == {f"{SITE_PACKAGES}/{LIBRARY}": b"library" * 1000}
    assert read_members(store, shared["tensorflow-python"])[f"{SITE_PACKAGES}/tensorflow/own.cp311.so"] == b"cp311"


def test_a_layer_of_another_python_s_wheel_is_reused_in_the_same_compression_only(
    images: Images, store: LayerStore
) -> None:
    make_all(images["cp39"], store)
    kinds = {one.blob.media_type.rpartition("+")[2] for one in make_all(images["cp311"], store, compression="gzip")}
    assert kinds == {"gzip"}


def test_a_library_with_other_content_is_not_taken_from_another_python_s_wheel(wheel: Wheel, store: LayerStore) -> None:
    digests = set()
    for tag, library in (("cp39", b"one"), ("cp311", b"two")):
        file = wheel("tensorflow", {LIBRARY: library, "tensorflow/__init__.py": b""}, tag=tag)
        image = {"lock": make_lock({"tensorflow": file}), "wheels": (file,)}
        shared = make_all(image, store)[0].blob
        assert read_members(store, shared) == {f"{SITE_PACKAGES}/{LIBRARY}": library}
        digests.add(shared.digest)
    assert len(digests) == 2


def test_a_fresh_build_takes_no_layer_from_the_store(images: Images, store: LayerStore) -> None:
    first = make_all(images["cp39"], store)
    for one in first:
        (store.blobs / one.blob.digest[7:]).write_bytes(b"spoiled")
    for tag in ("cp311", "cp39"):
        for one in make_all(images[tag], store, fresh=True):
            assert one.seconds is not None
            assert (store.blobs / one.blob.digest[7:]).stat().st_size == one.blob.size


def test_one_of_two_layers_is_made_again_when_only_the_other_is_left(images: Images, store: LayerStore) -> None:
    first = make_all(images["cp39"], store)
    for lost in first[1:3]:
        (store.blobs / lost.blob.digest[7:]).unlink()
        again = make_all(images["cp39"], store)
        assert [one.blob for one in again] == [one.blob for one in first]
        assert (store.blobs / lost.blob.digest[7:]).exists()


def test_making_layers_removes_what_a_killed_build_left(images: Images, store: LayerStore) -> None:
    store.prepare()
    (store.folder / "layer-0").touch()
    os.utime(store.folder / "layer-0", (0, 0))
    make_all(images["cp39"], store)
    assert not (store.folder / "layer-0").exists()


def test_a_layer_without_files_is_in_no_stage(wheel: Wheel, store: LayerStore) -> None:
    file = wheel("tensorflow", {"tensorflow/__init__.py": b""}, tag="cp39")
    empty, code = make_all({"lock": make_lock({"tensorflow": file}), "wheels": (file,)}, store)
    assert (empty.blob.files, code.blob.files > 0) == (0, True)
    for stage in write_stages((empty, code), store).values():
        manifest = json.loads((store.blobs / stage.partition("@sha256:")[2]).read_text())
        assert [one["digest"] for one in manifest["layers"]] == [code.blob.digest]


def test_layers_that_the_engine_has_in_another_compression_are_counted(images: Images, store: LayerStore) -> None:
    layers = make_all(images["cp39"], store)
    stages = write_stages(layers, store)

    def stored(*digests: str, media_type: str = "application/vnd.oci.image.layer.v1.tar+zstd") -> StoredImage:
        found = tuple(StoredLayer(digest=digest, media_type=media_type, size=1) for digest in digests)
        return StoredImage(digest="sha256:1", layers=found, unpacked_bytes=1, labels={})

    ours = [layer.blob.digest for layer in layers]
    assert count_kept_layers(stages, stored("sha256:base", *ours, "sha256:selftest")) == 0
    assert count_kept_layers(stages, stored("sha256:base", "sha256:other", *ours[1:])) == 1
    # A classic store has no blobs, and an engine that cannot take layers makes them itself.
    assert count_kept_layers(stages, stored("sha256:base", media_type="application/vnd.oci.image.layer.v1.tar")) == 0
    assert count_kept_layers({}, stored("sha256:base")) == 0


def test_the_stages_are_images_of_an_oci_layout(images: Images, store: LayerStore) -> None:
    layers = make_all(images["cp39"], store)
    found = write_stages(layers, store)
    expected_layers = {"wheels": layers, "code-tensorflow": layers[2:3], "code-numpy": layers[3:]}
    assert set(found) == set(expected_layers)
    for stage, expected in expected_layers.items():
        place, _, digest = found[stage].partition("@sha256:")
        assert place == f"oci-layout://{store.folder}"
        manifest = json.loads((store.blobs / digest).read_text())
        assert [one["digest"] for one in manifest["layers"]] == [one.blob.digest for one in expected]
        config = json.loads((store.blobs / manifest["config"]["digest"][7:]).read_text())
        assert (config["architecture"], config["os"]) == ("amd64", "linux")
        assert config["rootfs"]["diff_ids"] == [one.blob.diff_id for one in expected]


def test_two_at_once_make_each_layer_once(images: Images, store: LayerStore) -> None:
    events = list[Any]()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: make_all(images["cp39"], store, events), range(2))
    assert [one.blob for one in first] == [one.blob for one in second]
    assert sorted(name for name, state in events if state == "done") == sorted(one.layer.name for one in first)


def test_two_images_can_use_one_downloaded_wheel_at_once(wheel: Wheel, store: LayerStore) -> None:
    """One image has all its wheels and is about to pack them when the other, which has one of them too, is done."""
    both, *own = (wheel(name, {f"{name}/__init__.py": b""}, tag="cp39") for name in ("both", "one", "other"))
    images = [{"lock": {"packages": lock_line(both) + lock_line(file)}, "wheels": (both, file)} for file in own]
    done = list[Any]()

    def meanwhile(_layer: str, state: str, _seconds: float) -> None:
        if state == "started":
            done.extend(make_all(images[1], store))

    source = WheelSource(indexes=[], supplied=images[0]["wheels"])
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


def test_groups_of_wheels_lie_in_the_order_in_which_they_are_shared() -> None:
    lock = dict.fromkeys(("packages", "tensorflow", "cuda", "cudnn"), "")
    assert [group.name for group in split_lock(lock)] == ["cudnn", "cuda", "tensorflow", "packages"]
    assert [layer.name for layer in list_wheel_layers(lock)] == [
        "cudnn", "cuda", "tensorflow", "tensorflow-python", "packages",
    ]  # fmt: skip


def test_the_command_line_offers_every_way_to_pack() -> None:
    option, without = get_args(get_type_hints(Build)["compression"])
    assert (get_args(option), without) == (get_args(Compression), type(None))

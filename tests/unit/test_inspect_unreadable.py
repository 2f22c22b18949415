"""The leak scan fails closed: what it cannot read completely is a finding, and what it can read hides nothing."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import json
import lzma
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from support.memory_registry import MemoryRegistry
from support.oci_images import archive, compress, put_image
from tfimg.core.errors import SecretFound
from tfimg.inspect.limits import Budget, Limits
from tfimg.inspect.secrets.findings import SecretFinding, require_clean
from tfimg.inspect.secrets.layer_scan import search_layer
from tfimg.inspect.secrets.rules import RULES, Rule
from tfimg.inspect.secrets.scan import scan_export, scan_image
from tfimg.inspect.secrets.search import Search
from tfimg.registry.protocol import OCI_INDEX, OCI_MANIFEST, Manifest

HOST = "index.corp.test"
OWN = Rule(kind="index", what="the host of UV_INDEX", pattern=rb"index\.corp\.test", whole=True, caseless=True)
PATH = Rule(kind="index", what="the path of UV_INDEX", pattern=rb"team/7c1e", whole=True)
LAYER = "application/vnd.oci.image.layer.v1.tar"
NOISE = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(6000))
"""Incompressible bytes, so that what is cut off is in the middle of them."""

CLEAN = archive({"etc/hello": b"hello\n", "srv/noise": NOISE})
BLOCK = tarfile.BLOCKSIZE


def gz(content: bytes) -> bytes:
    """Compress to the same bytes at any time: names of tests are made of them."""
    return gzip.compress(content, mtime=0)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def put_layer(registry: MemoryRegistry, content: bytes, media_type: str = "application/x-layer") -> None:
    """Put an image whose only layer has these bytes."""
    blob = registry.put_blob(content)
    layers = [{"mediaType": media_type, "digest": blob.digest, "size": blob.size}]
    document = put_image(registry, "1").document | {"layers": layers}
    registry.put("1", Manifest(media_type=OCI_MANIFEST, content=json.dumps(document).encode()))


def scan_layer(
    registry: MemoryRegistry, content: bytes, media_type: str = "application/x-layer"
) -> Sequence[SecretFinding]:
    put_layer(registry, content, media_type)
    return scan_image(registry, "1", [OWN, PATH])


def kinds(findings: Sequence[SecretFinding]) -> list[str]:
    return [finding.kind for finding in findings]


def reasons(findings: Sequence[SecretFinding]) -> str:
    return "\n".join(finding.what for finding in findings if finding.kind == "unread")


def gzip_with(comment: bytes = b"", extra: bytes = b"", name: bytes = b"", content: bytes = CLEAN) -> bytes:
    """A gzip member with all optional header fields (RFC 1952, 2.3)."""
    flags = (4 if extra else 0) | (8 if name else 0) | (16 if comment else 0)
    deflated = zlib.compressobj(wbits=-15)
    return b"".join([
        b"\x1f\x8b\x08", bytes([flags]), bytes(5), b"\x03", struct.pack("<H", len(extra)) + extra if extra else b"",
        name + b"\0" if name else b"", comment + b"\0" if comment else b"",
        deflated.compress(content) + deflated.flush(), struct.pack("<II", zlib.crc32(content), len(content)),
    ])  # fmt: skip


def skippable(content: bytes, number: int = 0) -> bytes:
    """A skippable frame of zstd (RFC 8878, 3.1.2)."""
    return struct.pack("<II", 0x184D2A50 + number, len(content)) + content


SECRET = f"https://{HOST}/simple".encode()
HALF = len(CLEAN) // 2


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(gzip_with(comment=SECRET), id="gzip comment"),
        pytest.param(gzip_with(extra=SECRET), id="gzip extra field"),
        pytest.param(gzip_with(name=SECRET), id="gzip name"),
        pytest.param(gz(b"") + gzip_with(comment=SECRET), id="comment of the second member"),
        pytest.param(skippable(SECRET) + compress(CLEAN, "zstd"), id="skippable frame first"),
        pytest.param(compress(CLEAN, "zstd") + skippable(SECRET, 15), id="skippable frame last"),
        pytest.param(compress(CLEAN[:HALF], "zstd") + skippable(SECRET) + compress(CLEAN[HALF:], "zstd"),
                     id="skippable frame between"),
    ],
)  # fmt: skip
def test_what_decompression_leaves_out_is_searched(registry: MemoryRegistry, content: bytes) -> None:
    assert kinds(scan_layer(registry, content)) == ["index"]


LEAKING = archive({"etc/hello": b"hello\n", "srv/config": SECRET, "srv/noise": NOISE})
MIDDLE = 700
"""An offset in the middle of the second file's header."""


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lzma.compress(LEAKING), id="xz"),
        pytest.param(lzma.compress(LEAKING[:MIDDLE]) + lzma.compress(LEAKING[MIDDLE:]), id="two xz streams"),
        pytest.param(bz2.compress(LEAKING), id="bzip2"),
        pytest.param(gz(LEAKING[:MIDDLE]) + gz(LEAKING[MIDDLE:]), id="two gzip members"),
        pytest.param(compress(LEAKING[:MIDDLE], "zstd") + compress(LEAKING[MIDDLE:], "zstd"), id="two zstd frames"),
        pytest.param(gz(LEAKING) + bytes(700), id="gzip and padding"),
    ],
)
def test_every_compression_is_read(registry: MemoryRegistry, content: bytes) -> None:
    (finding,) = scan_layer(registry, content)
    assert (finding.path, finding.kind) == ("srv/config", "index")


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


PACKED: dict[str, bytes] = {
    "gzip": gz(CLEAN), "zstd": zstandard.ZstdCompressor(write_checksum=True).compress(CLEAN),
    "xz": lzma.compress(CLEAN), "bzip2": bz2.compress(CLEAN),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("kept", [20, 30_000, -1])
def test_truncated_compression_is_a_finding(registry: MemoryRegistry, name: str, kept: int) -> None:
    assert kinds(scan_layer(registry, PACKED[name][:kept])) == ["unread"]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("at", [90_000, -6])
def test_damaged_compression_is_a_finding(registry: MemoryRegistry, name: str, at: int) -> None:
    assert "unread" in kinds(scan_layer(registry, damaged(PACKED[name], at)))


def lz4() -> bytes:
    return b"\x04\x22\x4d\x18" + NOISE


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lz4(), id="lz4"),
        pytest.param(zlib.compress(CLEAN), id="zlib"),
        pytest.param(lzma.compress(CLEAN, format=lzma.FORMAT_ALONE), id="lzma"),
        pytest.param(b"hsqs" + NOISE, id="squashfs"),
        pytest.param(NOISE, id="encrypted"),
        pytest.param(b"no archive at all", id="text"),
        pytest.param(gz(gz(CLEAN)), id="compressed twice"),
        pytest.param(gz(CLEAN) + b"garbage", id="garbage after gzip"),
        pytest.param(gz(CLEAN) + compress(CLEAN, "zstd"), id="zstd after gzip"),
        pytest.param(compress(CLEAN, "zstd") + b"garbage", id="garbage after zstd"),
        pytest.param(compress(CLEAN + b"more", "zstd"), id="bytes after the archive"),
        pytest.param(CLEAN + CLEAN, id="an archive after the archive"),
    ],
)
def test_what_cannot_be_read_is_a_finding(registry: MemoryRegistry, content: bytes) -> None:
    assert kinds(scan_layer(registry, content)) == ["unread"]


def test_unread_bytes_are_searched_as_they_are(registry: MemoryRegistry) -> None:
    assert kinds(scan_layer(registry, lz4() + SECRET)) == ["unread", "index"]
    assert kinds(scan_layer(registry, CLEAN + SECRET)) == ["unread", "index"]


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        (f"{LAYER}+gzip", compress(CLEAN, "zstd")),
        (f"{LAYER}+zstd", compress(CLEAN, "gzip")),
        (LAYER, compress(CLEAN, "gzip")),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", CLEAN),
        (f"{LAYER}+encrypted", CLEAN),
    ],
)
def test_a_media_type_that_lies_is_a_finding(registry: MemoryRegistry, media_type: str, content: bytes) -> None:
    assert kinds(scan_layer(registry, content, media_type)) == ["unread"]
    assert media_type in reasons(scan_image(registry, "1", [OWN, PATH]))


@pytest.mark.parametrize(
    "media_type",
    ["application/vnd.oci.image.layer.nondistributable.v1.tar",
     "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"],
)  # fmt: skip
def test_a_layer_that_lies_elsewhere_is_a_finding(registry: MemoryRegistry, media_type: str) -> None:
    put_layer(registry, CLEAN, media_type)
    registry.blobs.clear()
    registry.blobs.update(config_of(registry))
    assert "unread" in kinds(scan_image(registry, "1", [OWN, PATH]))


def config_of(registry: MemoryRegistry) -> dict[str, bytes]:
    """The blobs of an image that has no layers."""
    other = MemoryRegistry()
    put_image(other, "1")
    return other.blobs


def header(name: bytes, size: int = 0, kind: bytes = b"0", **fields: bytes) -> bytes:
    """One header of a tar archive; `fields` replace what stands at offsets (`at_345=b"prefix"`)."""
    block = bytearray(BLOCK)
    block[: len(name)] = name
    block[100:108], block[108:116], block[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    block[124:136], block[136:148] = b"%011o\0" % size, b"00000000000\0"
    block[156:157], block[257:265] = kind, b"ustar\x0000"
    for at, value in fields.items():
        start = int(at.removeprefix("at_"))
        block[start : start + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


END = bytes(2 * BLOCK)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)


def pax(records: dict[str, bytes], kind: bytes = b"x") -> bytes:
    """An extended header (POSIX.1-2017, pax, "pax Extended Header")."""
    lines = b""
    for key, value in records.items():
        rest = f" {key}=".encode() + value + b"\n"
        length = len(rest) + 1
        while length != len(rest) + len(str(length)):
            length = len(rest) + len(str(length))
        lines += str(length).encode() + rest
    return header(b"PaxHeaders/x", len(lines), kind) + padded(lines)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(header(b"srv/index", at_345=b"prefix", kind=b"S") + END, id="old sparse file"),
        pytest.param(pax({"GNU.sparse.major": b"1", "GNU.sparse.minor": b"0"}) + header(b"a") + END, id="pax sparse"),
        pytest.param(header(b"a", kind=b"Z") + END, id="unknown type"),
        pytest.param(header(b"a", kind=b"M") + END, id="a volume's continuation"),
        pytest.param(header(b"a", BLOCK, kind=b"5") + NOISE[:BLOCK] + END, id="a folder with content"),
        pytest.param(header(b"a", at_124=b"\xff" * 12) + END, id="negative size"),
        pytest.param(header(b"a", at_124=b"\x80" + b"\xff" * 11) + END, id="size of 88 bits"),
        pytest.param(header(b"a", at_124=b"00000000zz\0\0") + END, id="size that is no number"),
        pytest.param(pax({"size": b"-512"}) + header(b"a") + END, id="negative size in pax"),
        pytest.param(pax({"size": b"1" * 5000}) + header(b"a") + END, id="size of 5,000 digits"),
        pytest.param(pax({"path": b"b"}, b"g") + header(b"a") + END, id="a global name"),
        pytest.param(header(b"x", 9, b"x") + padded(b"99 path=b\n") + header(b"a") + END, id="length of a record"),
        pytest.param(header(b"x", 9, b"x") + padded(b"no record") + header(b"a") + END, id="no record"),
        pytest.param(header(b"x", 1 << 33, b"x") + NOISE, id="extended header of 8 GiB"),
        pytest.param(header(b"x", 1 << 33, b"L") + NOISE, id="name of 8 GiB"),
        pytest.param((header(b"x", 2, b"L") + padded(b"a\0")) * 50 + header(b"a") + END, id="names without end"),
        pytest.param(pax({"a": b"b"}) + END, id="extended header of nothing"),
        pytest.param(header(b"a", 5000) + NOISE[:600], id="breaks off in a file"),
        pytest.param(header(b"a") + header(b"b")[:300], id="breaks off in a header"),
        pytest.param(header(b"a") + NOISE[:BLOCK] + END, id="damaged header"),
        pytest.param(header(b"a") + bytes(BLOCK) + header(b"root/.netrc") + END, id="one block of zeros"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pack", [bytes, gz], ids=["plain", "gzip"])
def test_an_archive_that_readers_understand_differently_is_a_finding(
    registry: MemoryRegistry, content: bytes, pack: Callable[[bytes], bytes]
) -> None:
    assert kinds(scan_layer(registry, pack(content))) == ["unread"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(header(b"7c1e/x", at_345=b"srv/team") + END, id="a name in two fields"),
        pytest.param(header(b"d" * 84 + b"/" + HOST.encode()) + END, id="a name that fills its field"),
        pytest.param(header(b"link", kind=b"2", at_157=b"d" * 84 + b"/" + HOST.encode()) + END, id="symlink"),
        pytest.param(header(b"link", kind=b"1", at_157=b"srv/" + HOST.encode()) + END, id="hard link"),
        pytest.param(header(b"a", at_265=b"u" * 16 + b"-" + HOST.encode(), at_297=b"group") + END, id="owner"),
        pytest.param(header(b"a", at_297=b"g" * 16 + b"-" + HOST.encode(), at_329=b"0000") + END, id="group"),
        pytest.param(pax({"path": b"srv/" + b"d" * 120 + b"/" + HOST.encode()}) + header(b"a") + END, id="long name"),
        pytest.param(pax({"linkpath": HOST.encode()}) + header(b"a", kind=b"2") + END, id="long link"),
        pytest.param(pax({"SCHILY.xattr.user.origin": SECRET}) + header(b"a") + END, id="extended attribute"),
        pytest.param(pax({"LIBARCHIVE.xattr.user.origin": base64.b64encode(SECRET)}) + header(b"a") + END,
                     id="extended attribute of libarchive"),
        pytest.param(pax({"comment": SECRET}, b"g") + header(b"a") + END, id="global comment"),
        pytest.param(header(b"L", 200, b"L") + padded(b"d" * 180 + b"/" + HOST.encode()[:19]) + header(b"a") + END,
                     id="GNU long name"),
    ],
)  # fmt: skip
def test_names_links_owners_and_attributes_are_searched(registry: MemoryRegistry, content: bytes) -> None:
    assert kinds(scan_layer(registry, gz(content))) == ["index"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(header(b"/root/.ssh/config", 1) + padded(b"x") + END, id="absolute"),
        pytest.param(header(b"././root//.ssh/./config", 1) + padded(b"x") + END, id="not normal"),
        pytest.param(header(b"srv/.ssh/../config/../../run/secrets/x", 1) + padded(b"x") + END, id="a folder above"),
        pytest.param(header(b"root/.netrc", kind=b"1", at_157=b"srv/x") + END, id="hard link"),
        pytest.param(header(b"root/.netrc", 1, kind=b"7") + padded(b"x") + END, id="contiguous"),
        pytest.param(pax({"path": b"root/.netrc", "size": b"1"}) + header(b"a") + padded(b"x") + END, id="pax"),
    ],
)  # fmt: skip
def test_a_file_named_like_a_secret_is_found_however_it_is_written(registry: MemoryRegistry, content: bytes) -> None:
    assert kinds(scan_layer(registry, content)) == ["credential file"]


def test_a_folder_is_named_without_a_slash_at_its_end(registry: MemoryRegistry) -> None:
    (finding,) = scan_layer(registry, gz(header(b"./srv/" + HOST.encode() + b"/", kind=b"5") + END))
    assert finding.path == f"srv/{HOST}"


def put_root(registry: MemoryRegistry, document: Any, media_type: str) -> None:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    registry.put("1", Manifest(media_type=media_type, content=content))


def leaking(registry: MemoryRegistry) -> Manifest:
    return put_image(registry, None, [{"srv/config": SECRET}])


def entry(manifest: Manifest) -> dict[str, Any]:
    return {"mediaType": manifest.media_type, "digest": manifest.digest, "size": len(manifest.content)}


@pytest.mark.parametrize("media_type", ["application/json", "", OCI_MANIFEST, "application/vnd.x.index+json"])
def test_an_index_with_an_unexpected_content_type_is_read(registry: MemoryRegistry, media_type: str) -> None:
    put_root(registry, {"schemaVersion": 2, "manifests": [entry(leaking(registry))]}, media_type)
    assert kinds(scan_image(registry, "1", [OWN, PATH])) == ["index"]


def test_a_manifest_that_is_an_index_too_is_read_as_both(registry: MemoryRegistry) -> None:
    image = put_image(registry, None).document
    put_root(registry, image | {"manifests": [entry(leaking(registry))]}, OCI_MANIFEST)
    assert kinds(scan_image(registry, "1", [OWN, PATH])) == ["index"]


def test_indexes_in_indexes_are_read(registry: MemoryRegistry) -> None:
    inner = leaking(registry)
    for _ in range(30):
        content = json.dumps({"schemaVersion": 2, "manifests": [entry(inner)]}).encode()
        inner = Manifest(media_type=OCI_INDEX, content=content)
        registry.put(inner.digest, inner)
    registry.put("1", inner)
    assert kinds(scan_image(registry, "1", [OWN, PATH])) == ["index"]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"no JSON", id="no JSON"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="deep"),
        pytest.param(b'{"layers": 1e999}', id="infinite"),
        pytest.param([], id="a list"),
        pytest.param({}, id="empty"),
        pytest.param({"schemaVersion": 1, "fsLayers": []}, id="schema 1"),
        pytest.param({"layers": "x"}, id="layers"),
        pytest.param({"layers": [{"digest": "../../x", "size": 1, "mediaType": "x"}]}, id="digest"),
        pytest.param({"layers": [{}]}, id="empty layer"),
        pytest.param({"manifests": [None]}, id="empty entry"),
        pytest.param({"manifests": {}}, id="no list"),
        pytest.param({"layers": [], "Layers": []}, id="a name that Go's parser takes for another"),
    ],
)  # fmt: skip
def test_a_manifest_that_cannot_be_understood_is_a_finding(registry: MemoryRegistry, document: Any) -> None:
    put_root(registry, document, OCI_MANIFEST)
    assert "unread" in kinds(scan_image(registry, "1", [OWN, PATH]))


@pytest.mark.parametrize("config", [b"no JSON", b"[" * 100_000, b'{"a": 1e999}', b"\xff\xfe"])
def test_a_configuration_that_cannot_be_understood_is_a_finding(registry: MemoryRegistry, config: bytes) -> None:
    image, blob = put_image(registry, None).document, registry.put_blob(config)
    put_root(
        registry,
        image | {"config": image["config"] | {"digest": blob.digest, "size": blob.size}},
        OCI_MANIFEST,
    )
    assert kinds(scan_image(registry, "1", [OWN, PATH])) == ["unread"]


def test_the_names_of_values_are_searched(registry: MemoryRegistry) -> None:
    put_image(registry, "1", config={"Volumes": {f"/srv/{HOST}": {}}, "Labels": {HOST: None}})
    assert kinds(scan_image(registry, "1", [OWN, PATH])) == ["index", "index"]


def test_data_in_a_descriptor_is_searched(registry: MemoryRegistry) -> None:
    image = put_image(registry, None).document
    data = base64.b64encode(SECRET).decode()
    put_root(registry, image | {"config": image["config"] | {"data": data}}, OCI_MANIFEST)
    assert kinds(scan_image(registry, "1", [OWN, PATH])) == ["index"]


def test_text_beside_a_documents_values_is_searched(registry: MemoryRegistry) -> None:
    """A name twice: parsers take the last one."""
    content = json.dumps(put_image(registry, None).document).encode()
    put_root(registry, b'{"annotations": {"a": "%s"}, "annotations": {},' % SECRET + content[1:], OCI_MANIFEST)
    assert kinds(scan_image(registry, "1", [OWN, PATH])) == ["index"]


def export(*files: tuple[str, bytes]) -> Iterator[bytes]:
    content = archive(dict(files))
    return (content[at : at + 999] for at in range(0, len(content), 999))


@pytest.mark.parametrize("content", [lz4(), PACKED["gzip"][:-1], PACKED["zstd"][:-1], b"x" * 9])
def test_what_an_engine_exports_unreadably_is_a_finding(content: bytes) -> None:
    assert kinds(scan_export(export(("blobs/sha256/" + "0" * 64, content)), [OWN, PATH])) == ["unread"]


def test_an_export_that_breaks_off_is_a_finding() -> None:
    whole = b"".join(export(("blobs/sha256/" + "0" * 64, CLEAN)))
    assert "unread" in kinds(scan_export(iter([whole[:9000]]), [OWN, PATH]))
    assert "unread" in kinds(scan_export(iter([b"no archive"]), [OWN, PATH]))


def test_an_export_of_an_older_engine_is_read() -> None:
    files = export(("0/VERSION", b"1.0"), ("0/json", b"{}"), ("0/layer.tar", LEAKING), ("repositories", b"{}"))
    assert kinds(scan_export(files, [OWN, PATH])) == ["index"]


SEARCH = Search([OWN])


def read(pieces: Iterator[bytes], **limits: float) -> list[str]:
    """Return the reasons why a layer cannot be read."""
    traces = search_layer(pieces, SEARCH, Budget(Limits(**limits)), lambda _: None)  # type: ignore[arg-type]
    return [trace.what for trace in traces if trace.kind == "unread"]


def split(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


SMALL = archive({"etc/hello": b"hello\n", "srv/x": b"x", "d" * 200: b"y"})


@settings(deadline=None, max_examples=2000)
@given(st.integers(0, len(SMALL) - 1), st.integers(1, 255), st.sampled_from([bytes, gz]))
def test_a_damaged_archive_is_read_or_a_finding(at: int, change: int, pack: Callable[[bytes], bytes]) -> None:
    content = SMALL[:at] + bytes([SMALL[at] ^ change]) + SMALL[at + 1 :]
    assert len(read(split(pack(content), 700))) <= 1


@settings(deadline=None, max_examples=2000)
@given(st.sampled_from(sorted(PACKED)), st.data())
def test_damaged_compression_is_read_or_a_finding(name: str, data: st.DataObject) -> None:
    """In any of the first and last bytes, where all that is not content lies."""
    content = bytearray(PACKED_SMALL[name])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    assert len(read(split(bytes(content), 100))) <= 1


PACKED_SMALL: dict[str, bytes] = {
    "gzip": gzip_with(b"comment", b"extra", b"name", SMALL), "xz": lzma.compress(SMALL), "bzip2": bz2.compress(SMALL),
    "zstd": skippable(b"x") + zstandard.ZstdCompressor(write_checksum=True).compress(SMALL) + skippable(b"y"),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED_SMALL)
def test_bytes_may_come_one_at_a_time(name: str) -> None:
    assert read(split(PACKED_SMALL[name], 1)) == []
    assert read(split(PACKED_SMALL[name][:-1], 1)) != []


@pytest.mark.parametrize("pack", [gz, zstandard.ZstdCompressor().compress, lzma.compress])
def test_a_decompression_bomb_ends_at_the_limit(pack: Callable[[bytes], bytes]) -> None:
    bomb = pack(header(b"a", 400 << 20) + bytes(300 << 20))
    tracemalloc.start()
    (reason,) = read(iter([bomb]), read_bytes=64 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reason == "it has more than 64 MiB"
    assert peak < 32 << 20


def test_the_files_of_an_image_are_counted() -> None:
    assert read(iter([header(b"a") * 11]), members=10) == ["it has more than 10 files"]
    assert read(iter([header(b"a") * 10]), members=10) == []
    assert "1 MiB" in read(iter([header(b"a" * 100) * 11_000]), names_bytes=1 << 20)[0]


def test_the_time_of_a_scan_is_limited() -> None:
    clock = iter(range(100))
    budget = Budget(Limits(seconds=3), clock=lambda: next(clock))
    (trace,) = search_layer(split(CLEAN, 20_000), SEARCH, budget, lambda _: None)
    assert trace.what == "reading it takes longer than 3 s"


@pytest.mark.parametrize(
    "frame",
    [gz(b""), skippable(b""), compress(b"", "zstd"), bz2.compress(b"")],
    ids=["gzip", "skip", "zstd", "bzip2"],
)
def test_many_empty_frames_are_read_in_time(frame: bytes) -> None:
    """100,000 of them: no time may go into copying what follows each."""
    assert read(iter([frame * 100_000])) == []


def test_a_match_too_many_is_a_finding() -> None:
    """What was found first may be what everybody has, and is left out."""
    key = b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n"
    content = archive({"usr/lib/x86_64-linux-gnu/libgnutls.so.30": key * 1001})
    (trace,) = search_layer(iter([content]), Search(RULES), Budget(Limits()), lambda _: None)
    assert (trace.kind, trace.what) == ("unread", "it has more than 1000 matches, and the rest is not listed")


def test_manifests_are_counted(registry: MemoryRegistry) -> None:
    entries = [{"mediaType": OCI_MANIFEST, "digest": f"sha256:{n:064}", "size": 1} for n in range(1000)]
    put_root(registry, {"manifests": entries}, OCI_INDEX)
    assert kinds(scan_image(registry, "1", [OWN])) == ["unread"]


def test_what_was_not_read_is_not_kept(registry: MemoryRegistry, tmp_path: Path) -> None:
    put_layer(registry, PACKED["gzip"][:-1])
    assert kinds(scan_image(registry, "1", [OWN], cache=tmp_path)) == ["unread"]
    assert list(tmp_path.glob("*.json")) == []


def test_findings_name_unread_parts(registry: MemoryRegistry) -> None:
    put_layer(registry, lz4())
    with pytest.raises(
        SecretFound, match="image contains 1 part that cannot be read completely:\n  layer sha256:"
    ) as caught:
        require_clean("image", scan_image(registry, "1", [OWN]))
    assert "it is not a tar archive" in str(caught.value)

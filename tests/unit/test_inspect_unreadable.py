"""The leak scan fails closed: what it cannot read completely is a finding, and what it can read hides nothing."""

import base64
import bz2
import gzip
import hashlib
import lzma
import struct
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from support.messages import exactly
from support.oci_images import archive, compress, export_layers
from tfimg.inspect.secrets import Budget, LimitReached, Limits, Search, Secret, SecretFinding, scan_export, search_layer

HOST = "index.corp.test"
OWN = Secret(kind="index", what="the host of UV_INDEX", value=HOST.encode(), word=True)
PATH = Secret(kind="index", what="the path of UV_INDEX", value=b"srv/team/7c1e", word=True)
NOISE = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(6000))
"""Incompressible bytes, so that what is cut off is in the middle of them."""

CLEAN = archive({"etc/hello": b"hello\n", "srv/noise": NOISE})
BLOCK = tarfile.BLOCKSIZE


def gz(content: bytes) -> bytes:
    """Compress to the same bytes at any time: names of tests are made of them."""
    return gzip.compress(content, mtime=0)


def scan_layer(content: bytes) -> Sequence[SecretFinding]:
    """Search an image whose only layer has these bytes."""
    return scan_export(export_layers(content), [OWN, PATH])


def kinds(findings: Sequence[SecretFinding]) -> list[str]:
    return [finding.kind for finding in findings]


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
def test_what_decompression_leaves_out_is_searched(content: bytes) -> None:
    assert kinds(scan_layer(content)) == ["index"]


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
def test_every_compression_is_read(content: bytes) -> None:
    (finding,) = scan_layer(content)
    assert (finding.path, finding.kind) == ("srv/config", "index")


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


PACKED: dict[str, bytes] = {
    "gzip": gz(CLEAN), "zstd": zstandard.ZstdCompressor(write_checksum=True).compress(CLEAN),
    "xz": lzma.compress(CLEAN), "bzip2": bz2.compress(CLEAN),
}  # fmt: skip


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("kept", [20, 30_000, -1])
def test_truncated_compression_is_a_finding(name: str, kept: int) -> None:
    (finding,) = scan_layer(PACKED[name][:kept])
    assert (finding.kind, finding.what) == ("unread", f"its {name} data is truncated")


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("at", [90_000, -6])
def test_damaged_compression_is_a_finding(name: str, at: int) -> None:
    reasons = [one.what for one in scan_layer(damaged(PACKED[name], at)) if one.kind == "unread"]
    assert [reason.partition(": ")[0] for reason in reasons] == [f"its {name} data is damaged"]
    assert not reasons[0].endswith(": None")


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
        pytest.param(compress(CLEAN + b"more", "zstd"), id="bytes after the archive"),
        pytest.param(CLEAN + CLEAN, id="an archive after the archive"),
    ],
)
def test_what_cannot_be_read_is_a_finding(content: bytes) -> None:
    (finding,) = scan_layer(content)
    assert (finding.kind, finding.what[:28]) == ("unread", "its archive cannot be read: ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("gzip", gz(CLEAN) + b"garbage", id="garbage after gzip"),
        pytest.param("gzip", gz(CLEAN) + compress(CLEAN, "zstd"), id="zstd after gzip"),
        pytest.param("gzip", gz(CLEAN) + bytes(9) + b"garbage", id="garbage after padding"),
        pytest.param("zstd", compress(CLEAN, "zstd") + b"garbage", id="garbage after zstd"),
    ],
)
def test_other_bytes_after_compression_are_a_finding(name: str, content: bytes) -> None:
    (finding,) = scan_layer(content)
    assert (finding.kind, finding.what) == ("unread", f"bytes that are not {name} follow its {name} data")


def test_unread_bytes_are_searched_as_they_are() -> None:
    assert kinds(scan_layer(lz4() + SECRET)) == ["unread", "index"]
    assert kinds(scan_layer(CLEAN + SECRET)) == ["unread", "index"]


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
        pytest.param(pax({"GNU.sparse.major": b"1", "GNU.sparse.minor": b"0"}) + header(b"a") + END, id="sparse file"),
        pytest.param(header(b"a", kind=b"Z") + END, id="unknown type"),
        pytest.param(pax({"LIBARCHIVE.xattr.user.x": b"a"}) + header(b"a") + END, id="malformed extended attribute"),
        pytest.param(header(b"a", BLOCK, kind=b"5") + NOISE[:BLOCK] + END, id="a folder with content"),
        pytest.param(pax({"path": b"b"}, b"g") + header(b"a") + END, id="a global name"),
        pytest.param(header(b"a", 5000) + NOISE[:600], id="breaks off in a file"),
        pytest.param(header(b"a") + bytes(BLOCK) + header(b"root/.netrc") + END, id="one block of zeros"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pack", [bytes, gz], ids=["plain", "gzip"])
def test_an_archive_that_readers_understand_differently_is_a_finding(
    content: bytes, pack: Callable[[bytes], bytes]
) -> None:
    assert kinds(scan_layer(pack(content))) == ["unread"]


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
        pytest.param(pax({"comment": b"caf\xe9 " + SECRET}) + header(b"a") + END, id="comment that is not UTF-8"),
        pytest.param(pax({"comment": SECRET}, b"g") + header(b"a") + END, id="global comment"),
        pytest.param(header(b"L", 200, b"L") + padded(b"d" * 180 + b"/" + HOST.encode()[:19]) + header(b"a") + END,
                     id="GNU long name"),
    ],
)  # fmt: skip
def test_names_links_owners_and_attributes_are_searched(content: bytes) -> None:
    assert kinds(scan_layer(gz(content))) == ["index"]


def test_a_folder_is_named_without_a_slash_at_its_end() -> None:
    (finding,) = scan_layer(gz(header(b"./srv/" + HOST.encode() + b"/", kind=b"5") + END))
    assert finding.path == "srv/…"


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
    bomb = pack(header(b"a", 400 << 20) + bytes(100 << 20))
    tracemalloc.start()
    (reason,) = read(iter([bomb]), read_bytes=32 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reason == "it has more than 32 MiB"
    assert peak < 32 << 20


def test_the_files_of_an_image_are_counted() -> None:
    assert read(iter([header(b"a") * 11]), members=10) == ["it has more than 10 files"]
    assert read(iter([header(b"a") * 10]), members=10) == []
    assert read(iter([header(b"a" * 64) * 32]), names_bytes=2048) == []
    assert read(iter([header(b"a" * 64) * 33]), names_bytes=2048) == ["names of its files take more than 0 MiB"]
    reasons = read(iter([header(b"a" * 100) * 11_000]), names_bytes=1 << 20)
    assert reasons == ["names of its files take more than 1 MiB"]


def test_a_budget_ends_beyond_its_limits() -> None:
    seconds = [100.0]
    budget = Budget(Limits(read_bytes=2 << 20, members=2, seconds=5), clock=lambda: seconds[0])
    seconds[0] += 5
    budget.add_bytes(1 << 20)
    budget.add_bytes(1 << 20)
    budget.add_member()
    budget.add_member()
    with pytest.raises(LimitReached, match=exactly("it has more than 2 MiB")):
        budget.add_bytes(1)
    with pytest.raises(LimitReached, match=exactly("it has more than 2 files")):
        budget.add_member()


def test_the_time_of_a_scan_is_limited() -> None:
    clock = iter(range(100))
    budget = Budget(Limits(seconds=3), clock=lambda: next(clock))
    (trace,) = search_layer(split(CLEAN, 20_000), SEARCH, budget, lambda _: None)
    assert trace.what == "reading it takes longer than 3 s"


@pytest.mark.parametrize(
    "frame", [gz(b""), skippable(b""), compress(b"", "zstd"), bz2.compress(b"")], ids=["gzip", "skip", "zstd", "bzip2"]
)
def test_many_empty_frames_are_read_in_time(frame: bytes) -> None:
    """100,000 of them: no time may go into copying what follows each."""
    assert read(iter([frame * 100_000])) == []

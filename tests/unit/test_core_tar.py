"""Test that tar archives are read as `tarfile` writes them, and that hostile ones are refused within bounds."""

import io
import itertools
import tarfile
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings

from support.mutated_documents import mutated_bytes
from tfimg.core import tar
from tfimg.core.files import open_chunks
from tfimg.core.tar import InvalidArchive, TarReader, make_archive


def header(name: str = "a", size: int = 0, kind: bytes = tarfile.REGTYPE, **fields: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def with_size(field: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A header whose size has these 12 bytes, with a right checksum."""
    block = bytearray(header(kind=kind))
    block[124:136] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def open_stream(content: bytes) -> TarReader:
    return TarReader(open_chunks(iter([content])))


END = bytes(1024)
NEGATIVE = b"\xff" * 10 + b"\xfe\x00"
"""-512: the next header is this one again."""


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_tarfile_writes_is_read(form: int) -> None:
    written = io.BytesIO()
    long = "x" * 60 + "/" + "y" * 90
    with tarfile.open(fileobj=written, mode="w", format=form) as archive:
        for name, content in (("a", b"hello"), (long, b"b" * 1000), ("empty", b"")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "a/" * 45
        archive.addfile(link)
        folder = tarfile.TarInfo("folder/")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    written.seek(0)
    with tarfile.open(fileobj=written) as archive:
        expected = [(one.name, one.linkname, one.size, one.offset, one.offset_data) for one in archive]
    reader, found, contents = open_stream(written.getvalue()), [], []
    for one in reader:
        found.append((one.name, one.linkname, one.size, one.offset, one.offset_data))
        contents.append(b"".join(reader.content()))
    assert found == expected
    assert contents == [b"hello", b"b" * 1000, b"", b"", b""]


def test_pax_records_are_kept_and_names_beyond_utf_8_are_read() -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("caf\udce9")
        info.pax_headers = {"SCHILY.xattr.user.note": "secret"}
        archive.addfile(info)
    (member,) = open_stream(written.getvalue())
    assert member.pax_headers["SCHILY.xattr.user.note"] == "secret"
    assert member.name == "caf\udce9"


HOSTILE: dict[str, tuple[bytes, str]] = {
    "negative size": (with_size(NEGATIVE) + END, "size of -"),
    "negative octal size": (with_size(b"-0000000512\0") + END, "size of -"),
    "negative size of an extended header": (with_size(NEGATIVE, tarfile.XHDTYPE) + header(), "size of -"),
    "negative size of a folder": (with_size(NEGATIVE, tarfile.DIRTYPE) + END, "size of -"),
    **{
        f"size {size!r}": (with_size(size) + END, "a header states a size of .*, as b'|header is wrong")
        for size in (
            b"          5\0", b"\0          5", b"0000 000005\0", b" " * 12, bytes(12), b"\x000000000005",
            b"0000000_005\0", b"0000000005\x001",
        )
    },
    "huge size": (with_size(b"\x80" + b"\xff" * 11) + END, "size of"),
    "size beyond the file": (header(size=10**9) + END, "breaks off"),
    "cut in a header": (header()[:100], "breaks off"),
    "cut in the content": (header(size=1000) + bytes(600), "breaks off"),
    "no archive": (b"x" * 2000, "header is wrong"),
    "wrong checksum": (header()[:-1] + b"x" + END, "header is wrong"),
    "huge PAX header": (header(size=10**10, kind=tarfile.XHDTYPE) + END, "extended header of more"),
    "huge long name": (header(size=10**10, kind=tarfile.GNUTYPE_LONGNAME) + END, "extended header of more"),
    "long names without end": (
        (header(size=3, kind=tarfile.GNUTYPE_LONGNAME) + padded(b"ab\0")) * 3000, "name a member twice",
    ),
    "extended header at the end": (header(size=0, kind=tarfile.XHDTYPE) + END, "ends after an extended header"),
    "sparse file": (header(kind=tarfile.GNUTYPE_SPARSE) + END, "is not supported"),
    "link with content": (header(size=512, kind=tarfile.LNKTYPE) + header() + END, "with content"),
    "unknown type": (header(kind=b"Z") + END, "is not supported"),
    "content behind the end": (header() + bytes(512) + header("hidden"), "follows its end"),
}  # fmt: skip


def pax(records: bytes) -> bytes:
    return header(size=len(records), kind=tarfile.XHDTYPE) + padded(records) + header() + END


for number, records in enumerate(
    (b"0 a=b\n", b"7 a=bc", b"99 a=b\n", b"6 a=b", b"-6 a=b\n", b"6 ab\n\n", b"9" * 30 + b" a=b\n", b"1" * 100_000)
):
    HOSTILE[f"PAX record {number}"] = (pax(records), "PAX record|states a size")
for value in (b"-512", b"9" * 30, b"1e3", b"\xd9\xa1", b""):
    record = b" size=" + value + b"\n"
    HOSTILE[f"PAX size {value!r}"] = (pax(b"%d" % (len(record) + 2) + record), "states a size|PAX record")
HOSTILE["sparse PAX records"] = (pax(b"22 GNU.sparse.map=0,1\n"), "sparse file")
HOSTILE["zero byte"] = (pax(b"13 path=a\0bc\n"), "zero byte")
HOSTILE["PAX path"] = (pax(b"5013 path=" + b"x" * 5002 + b"\n"), "name of more than")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused(kind: str) -> None:
    content, problem = HOSTILE[kind]
    with pytest.raises(InvalidArchive, match=problem):
        list(open_stream(content))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("limit", "number", "problem"),
    [("MAX_MEMBERS", 1000, "more than 1000 members"), ("MAX_NAMES", 1_000_000, "more than 1000000 bytes")],
)
def test_members_and_names_are_limited_in_number_and_memory(
    limit: str, number: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (tar.MAX_MEMBERS, tar.MAX_NAMES) == (1_000_000, 128 << 20)
    monkeypatch.setattr(tar, limit, number)
    named = header(size=4000, kind=tarfile.GNUTYPE_LONGNAME) + padded(b"x" * 4000) + header()
    tracemalloc.start()
    with pytest.raises(InvalidArchive, match=problem):
        for _ in TarReader(open_chunks(itertools.repeat(named * 10))):
            pass
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_a_large_content_is_not_read_at_once() -> None:
    reader = open_stream(header(size=5000) + padded(b"x" * 5000) + END)
    next(iter(reader))
    with pytest.raises(InvalidArchive, match="at most 100"):
        reader.read(100)


VALID = pax(b"30 SCHILY.xattr.user.note=ab\n" + b"11 path=ab\n") + header(size=3) + padded(b"abc")


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated_bytes(VALID))
def test_a_changed_archive_is_read_or_refused(content: bytes) -> None:
    with suppress(InvalidArchive):
        assert len(list(open_stream(content))) <= len(content) / 512


def test_a_made_archive_ends_with_two_empty_blocks() -> None:
    """Podman 4.3 reads no further, and fails when more was sent than a pipe's buffer."""
    made = make_archive({"/folder/file": (b"content", 0o444)})
    assert len(made) == 4 * tarfile.BLOCKSIZE
    assert made.endswith(bytes(2 * tarfile.BLOCKSIZE))
    assert [member.name for member in TarReader(io.BytesIO(made))] == ["folder/file"]

"""The file of a custom wheel: a path, or an address that is downloaded once, resumed and verified."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.http_server import AnyMethod, serving
from tfimg.core.errors import ExitCode, FileError, HashMismatchError, NetworkError, UsageError, to_tfimg_error
from tfimg.custom.source import WheelAddress, find_wheel, parse_address
from tfimg.index.client import MAX_WHEEL, Index

NAME = "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"
CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class FileServer:
    """A server of one file; `ends` are the bytes after which each response is cut, `ranges` whether it resumes."""

    content: bytes = CONTENT
    ends: list[int] = field(default_factory=list)
    ranges: bool = True
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


class Handler(AnyMethod):
    def answer(self) -> None:
        subject: FileServer = self.server.subject  # type: ignore[attr-defined]
        subject.asked.append(self.headers.get("Range", ""))
        start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if subject.ranges else 0
        if subject.status != 200 or start > len(subject.content):
            self.reply(416 if start > len(subject.content) else subject.status, subject.headers, b"")
            return
        rest = subject.content[start:]
        headers = {"Content-Length": str(len(rest))}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(subject.content) - 1}/{len(subject.content)}"
        end = subject.ends.pop(0) if subject.ends else len(rest)
        self.reply(206 if start else 200, {**headers, **subject.headers}, rest[:end])
        self.close_connection = True


@pytest.fixture
def server() -> FileServer:
    return FileServer()


@pytest.fixture
def url(server: FileServer) -> Iterator[str]:
    with serving(Handler, server) as address:
        yield f"http://{address}/wheels/{NAME}"


Download = Callable[[], Path]


@pytest.fixture
def download(url: str, tmp_path: Path) -> Download:
    """Download the wheel, or find it in the cache."""

    def run() -> Path:
        address = parse_address(f"{url}#sha256={SHA256}")
        return find_wheel(address, tmp_path / "cache", lambda url: Index(url, attempts=1), lambda _: None)

    return run


def test_an_address_is_downloaded_once(download: Download, server: FileServer) -> None:
    wheel = download()
    assert (wheel.name, wheel.read_bytes()) == (NAME, CONTENT)
    assert download() == wheel
    assert server.asked == [""]


def test_a_damaged_copy_in_the_cache_is_downloaded_again(download: Download, server: FileServer) -> None:
    download().write_bytes(b"other")
    assert download().read_bytes() == CONTENT
    assert len(server.asked) == 2


def test_a_download_continues_where_it_was_cut(download: Download, server: FileServer) -> None:
    server.ends = [300_000, 400_000]
    assert download().read_bytes() == CONTENT
    assert server.asked == ["", "bytes=300000-", "bytes=700000-"]


def test_a_server_without_ranges_begins_again(download: Download, server: FileServer) -> None:
    server.ends, server.ranges = [300_000], False
    assert download().read_bytes() == CONTENT


def test_a_later_run_continues_too(download: Download, server: FileServer, tmp_path: Path) -> None:
    partial = tmp_path / "cache" / SHA256 / "partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT[:1000])
    assert download().read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_part_that_is_longer_than_the_file_is_thrown_away(download: Download, tmp_path: Path) -> None:
    partial = tmp_path / "cache" / SHA256 / "partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT + b"more")
    assert download().read_bytes() == CONTENT


def test_another_file_is_refused_and_not_kept(download: Download, server: FileServer, tmp_path: Path) -> None:
    server.content = b"other"
    found = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(HashMismatchError) as raised:
        download()
    assert str(raised.value) == (
        f"{NAME} has sha256 {found}, and --wheel names {SHA256}. Compare both with what the wheel's publisher states; "
        "do not build until you know who changed it."
    )
    assert list((tmp_path / "cache" / SHA256).iterdir()) == []


def test_a_wheel_that_is_too_large_is_refused_also_without_its_size(
    download: Download, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.headers = {"Content-Length": ""}
    monkeypatch.setattr("tfimg.custom.source.MAX_WHEEL", 1000)
    with pytest.raises(
        NetworkError, match=f"Cannot read the wheel {NAME} from its server: it has more than 1000 bytes"
    ):
        download()


def test_a_size_that_is_too_large_is_refused_before_anything_is_written(
    download: Download, server: FileServer, tmp_path: Path
) -> None:
    server.headers = {"Content-Length": str(10 << 30)}
    with pytest.raises(NetworkError, match=f"it has {10 << 30} bytes, and at most {MAX_WHEEL} are allowed"):
        download()
    assert not (tmp_path / "cache" / SHA256 / "partial").exists()
    assert len(server.asked) == 1


def test_a_full_disk_is_not_a_failure_of_the_network(download: Download, server: FileServer, tmp_path: Path) -> None:
    partial = tmp_path / "cache" / SHA256 / "partial"
    partial.parent.mkdir(parents=True)
    partial.symlink_to("/dev/full")
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{partial}'")) as raised:
        download()
    assert to_tfimg_error(raised.value).exit_code == ExitCode.ENGINE
    assert len(server.asked) == 1


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://example.test/a.whl", "//[", "data:,x", "gopher://x"])
def test_a_redirect_elsewhere_is_refused(place: str, download: Download, server: FileServer, tmp_path: Path) -> None:
    server.status, server.headers = 302, {"Location": place}
    with pytest.raises(NetworkError, match=f"Cannot read the wheel {NAME} from its server"):
        download()
    assert not (tmp_path / "cache" / SHA256 / NAME).exists()


def test_an_endless_redirect_is_refused(download: Download, server: FileServer, url: str) -> None:
    server.status, server.headers = 302, {"Location": url}
    with pytest.raises(NetworkError, match="it redirects more than 5 times"):
        download()


@pytest.mark.parametrize(
    "text",
    ["https://ann:secret@example.test/a.whl", f"ftp://ann:secret@h/a.whl#sha256={SHA256}",
     "https://ann:secret@example.test/a.whl#md5=1", f"https://ann:secret@h/a.zip#sha256={SHA256}"],
)  # fmt: skip
def test_a_message_has_no_password(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_address(text)
    assert "secret" not in str(raised.value)


def test_a_missing_address_is_named(download: Download, server: FileServer) -> None:
    server.status = 404
    with pytest.raises(NetworkError, match=f"Cannot read the wheel {NAME} from its server: 404"):
        download()


def test_a_server_that_never_ends_is_given_up(
    download: Download, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfimg.custom.source.MAX_RESUMES", 3)
    server.ends = [10, 10, 10, 10]
    with pytest.raises(NetworkError, match=r"The connection was cut 3 times while .* was downloaded"):
        download()
    assert download().read_bytes() == CONTENT  # the next run continues


def test_a_file_needs_no_hash_but_must_have_the_one_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(CONTENT)

    def find(text: str) -> Path:
        return find_wheel(parse_address(text), tmp_path / "cache", Index, lambda _: None)

    assert find(str(file)) == find(f"{file}#sha256={SHA256}") == file
    with pytest.raises(HashMismatchError, match=f"has sha256 {SHA256}, and --wheel names {'0' * 64}"):
        find(f"{file}#sha256={'0' * 64}")
    with pytest.raises(
        FileError, match=r"--wheel /nothing/a\.whl is not a file\. Name the file of a wheel, or its address"
    ):
        find("/nothing/a.whl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("https://example.test/a.whl", "has no hash: anybody who changes the file would change the image. Append"),
        ("a.whl#sha256=abc", "what follows # is not sha256= and 64 hexadecimal digits. `sha256sum FILE` prints"),
        ("a.whl#md5=" + "0" * 32, "what follows # is not sha256="),
        (f"ftp://example.test/a.whl#sha256={SHA256}", "is not an address of https or http"),
        ("tensorflow.tar.gz", "is not a wheel: its name does not end in .whl"),
        (f"https://example.test/a%2f..whl/#sha256={SHA256}", "is not a wheel: its name does not end in .whl"),
    ],
)  # fmt: skip
def test_an_invalid_address_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_address(text)


def test_an_address_may_have_a_query_and_escapes() -> None:
    address = parse_address(
        f"https://example.test/tensorflow-2.19.0%2Bnv-cp311-cp311-linux_x86_64.whl?a=b#sha256={SHA256}"
    )
    assert address.name == "tensorflow-2.19.0+nv-cp311-cp311-linux_x86_64.whl"
    assert isinstance(address, WheelAddress)

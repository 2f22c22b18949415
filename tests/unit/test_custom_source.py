"""The file of a custom wheel: how it is found, downloaded and verified, and its facts, which are hostile."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.http_server import AnyMethod, serving
from support.tensorflow_wheels import (
    BUILD_INFO,
    CUDA_CONFIG,
    CUDNN_HEADER,
    INTERNAL,
    make_members,
    write_tiny_wheel,
)  # fmt: skip
from tfimg.core.errors import (
    ExitCode,
    FileError,
    HashMismatchError,
    InvalidWheel,
    NetworkError,
    UsageError,
)
from tfimg.core.failures import to_tfimg_error
from tfimg.custom.source import MAX_MODULES, WheelAddress, find_wheel, parse_address, read_facts
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
    requested_ranges: list[str] = field(default_factory=list)


class Handler(AnyMethod):
    def answer(self) -> None:
        subject: FileServer = self.server.subject  # type: ignore[attr-defined]
        subject.requested_ranges.append(self.headers.get("Range", ""))
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


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    """Where a download is kept until it is whole."""
    file = tmp_path / "cache" / SHA256 / "partial"
    file.parent.mkdir(parents=True)
    return file


def test_an_address_is_downloaded_once(download: Download, server: FileServer) -> None:
    wheel = download()
    assert (wheel.name, wheel.read_bytes()) == (NAME, CONTENT)
    assert download() == wheel
    assert server.requested_ranges == [""]


def test_a_damaged_copy_in_the_cache_is_downloaded_again(download: Download, server: FileServer) -> None:
    download().write_bytes(b"other")
    assert download().read_bytes() == CONTENT
    assert len(server.requested_ranges) == 2


def test_a_download_continues_where_it_was_cut(download: Download, server: FileServer) -> None:
    server.ends = [300_000, 400_000]
    assert download().read_bytes() == CONTENT
    assert server.requested_ranges == ["", "bytes=300000-", "bytes=700000-"]


def test_a_server_without_ranges_begins_again(download: Download, server: FileServer) -> None:
    server.ends, server.ranges = [300_000], False
    assert download().read_bytes() == CONTENT


def test_a_later_run_continues_too_unless_the_part_is_longer_than_the_file(
    download: Download, server: FileServer, partial: Path
) -> None:
    partial.write_bytes(CONTENT + b"more")
    assert download().read_bytes() == CONTENT
    server.requested_ranges.clear()
    download().unlink()
    partial.write_bytes(CONTENT[:1000])
    assert download().read_bytes() == CONTENT
    assert server.requested_ranges[-1] == "bytes=1000-"


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
    monkeypatch.setattr("tfimg.index.client.MAX_WHEEL", 1000)
    with pytest.raises(NetworkError, match=f"Cannot read the wheel {NAME} from its server: it has more than 1000"):
        download()


def test_a_size_that_is_too_large_is_refused_before_anything_is_written(
    download: Download, server: FileServer, partial: Path
) -> None:
    server.headers = {"Content-Length": str(10 << 30)}
    with pytest.raises(NetworkError, match=f"it has {10 << 30} bytes, and at most {MAX_WHEEL} are allowed"):
        download()
    assert (partial.exists(), len(server.requested_ranges)) == (False, 1)


def test_a_full_disk_is_not_a_failure_of_the_network(download: Download, server: FileServer, partial: Path) -> None:
    partial.symlink_to("/dev/full")
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{partial}'")) as raised:
        download()
    assert to_tfimg_error(raised.value).exit_code == ExitCode.ENGINE
    assert len(server.requested_ranges) == 1


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://example.test/a.whl", "//[", "data:,x", "gopher://x"])
def test_a_redirect_elsewhere_is_refused(place: str, download: Download, server: FileServer, tmp_path: Path) -> None:
    server.status, server.headers = 302, {"Location": place}
    with pytest.raises(NetworkError, match=f"Cannot read the wheel {NAME} from its server"):
        download()
    assert not (tmp_path / "cache" / SHA256 / NAME).exists()


def test_an_endless_redirect_and_a_missing_file_are_refused(download: Download, server: FileServer, url: str) -> None:
    server.status = 404
    with pytest.raises(NetworkError, match=f"Cannot read the wheel {NAME} from its server: .* 404 Not Found"):
        download()
    server.status, server.headers = 302, {"Location": url}
    with pytest.raises(NetworkError, match="it redirects more than 5 times"):
        download()


@pytest.mark.parametrize(
    "text",
    ["https://ann:x@secret@example.test/a.whl", f"ftp://ann:secret@h/a.whl#sha256={SHA256}",
     "https://ann:secret@example.test/a.whl#md5=1", f"https://ann:secret@h/a.zip#sha256={SHA256}"],
)  # fmt: skip
def test_a_message_has_no_password(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_address(text)
    assert "secret" not in str(raised.value)


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
    with pytest.raises(FileError, match=r"--wheel /nothing/a\.whl is not a file\. Name the file of a wheel, or its"):
        find("/nothing/a.whl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("https://example.test/a.whl", "has no hash: anybody who changes the file would change the image. Append"),
        ("a.whl#sha256=abc", "what follows # is not sha256= and 64 hexadecimal digits. `sha256sum FILE` prints"),
        ("a.whl#md5=" + "0" * 32, "what follows # is not sha256="),
        (f"https://[::1/a.whl#sha256={SHA256}", "is not an address of https or http"),
        (f"ftp://example.test/a.whl#sha256={SHA256}", "is not an address of https or http"),
        ("tensorflow.tar.gz", "is not a wheel: its name does not end in .whl"),
        (f"https://example.test/a%2f..whl/#sha256={SHA256}", "is not a wheel: its name does not end in .whl"),
    ],
)  # fmt: skip
def test_an_invalid_address_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_address(text)


def test_an_address_may_have_a_query_and_escapes() -> None:
    address = parse_address(f"https://example.test/tensorflow-2.19.0%2Bnv-cp311-none-any.whl?a=b#sha256={SHA256}")
    assert address.name == "tensorflow-2.19.0+nv-cp311-none-any.whl"
    assert isinstance(address, WheelAddress)


CPU = "tensorflow_cpu-2.18.1.dist-info"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({BUILD_INFO: b"build_info = open('/etc/passwd')"}, "is not a valid wheel"),
        ({BUILD_INFO: b"build_info = " + b"[" * 10_000}, "assigns no build_info"),
        ({BUILD_INFO: b"build_info = {}  #" + b"x" * 70_000}, "at most 65536 are allowed"),
        ({CUDA_CONFIG: b"#" * (5 << 20)}, "at most 4194304 are allowed"),
        ({f"{CPU}/WHEEL": b"Wheel-Version: 1.0\nTag: " + b"a" * 300 + b"-b-c\n"}, "more than 64 lines of tags"),
        ({f"{CPU}/WHEEL": b"Wheel-Version: 1.0\n" + b"Tag: a-b-c\n" * 65}, "more than 64 lines of tags"),
        ({f"{CPU}/METADATA": b"Name: tensorflow-cpu\nVersion: x\n"}, "Invalid version"),
        ({f"{CPU}/METADATA": b"Name: tensorflow-cpu\nVersion: 2.18.1\nRequires-Dist: !\n"}, "Expected package name"),
        (
            {f"{CPU}/METADATA": b"Name: tensorflow-cpu\nVersion: 2.18.1\n" + b"Requires-Dist: a\n" * 1001},
            "more than 1000 requirements",
        ),
        ({"other-1.0.dist-info/METADATA": b""}, "must have one folder tensorflow-cpu-2.18.1.dist-info"),
    ],
)
def test_a_malformed_wheel_is_refused(changes: dict[str, bytes | None], reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidWheel, match=reason):
        read_facts(write_tiny_wheel(tmp_path, changes=changes))


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        (b"evil @ git+https://example.test/evil", "names an address, and images take packages from an index"),
        (b"numpy @ file:///etc/passwd", "names an address"),
        (b"evil; 'a' in extras", "'extras'"),
        (b"evil; 'a' in dependency_groups", "'dependency_groups'"),
        (rb"evil; os_name == '\n'", "Invalid quoted string"),
        (b"evil===1", "set relations do not support ==="),
        (b"evil<" + b"9" * 450, "has more than 400 characters"),
        (b"evil" + b",".join([b"!=1"] * 30_000), "has more than 400 characters"),
        (b"\n".join([b"numpy" + b",".join(b"!=%d" % n for n in range(40))] * 26), "more than 1000 conditions"),
    ],
)
def test_a_requirement_that_cannot_be_used_is_refused_at_once(requirement: bytes, reason: str, tmp_path: Path) -> None:
    lines = b"".join(b"Requires-Dist: %s\n" % line for line in requirement.split(b"\n"))
    metadata = b"Name: tensorflow-cpu\nVersion: 2.18.1\n" + lines
    start = time.monotonic()
    with pytest.raises(InvalidWheel, match=re.escape(reason)):
        read_facts(write_tiny_wheel(tmp_path, changes={f"{CPU}/METADATA": metadata}))
    assert time.monotonic() - start < 10


def test_tags_that_multiply_are_refused(tmp_path: Path) -> None:
    letters = b".".join(bytes([letter]) for letter in b"abcdefghijklmnopqrstuvwxyz")
    tag = b"Tag: cp311." + b"-".join([letters] * 3)
    with pytest.raises(InvalidWheel, match="WHEEL has more than 256 tags"):
        read_facts(write_tiny_wheel(tmp_path, changes={f"{CPU}/WHEEL": b"Wheel-Version: 1.0\n" + tag + b"\n"}))
    several = ".".join("abcdefghijklmnopqrstuvwxyz")
    filename = f"tensorflow_cpu-2.18.1-{several}-{several}-{several}.whl"
    with pytest.raises(InvalidWheel, match="its name has more than 256 tags"):
        read_facts(write_tiny_wheel(tmp_path, filename=filename))


@pytest.mark.parametrize("number", ["\u0661\u0662.\u0665".encode(), b"12.5\\n; rm", b"a.b"])
def test_a_number_in_other_digits_states_nothing(number: bytes, tmp_path: Path) -> None:
    members = make_members(cuda=True)
    changes: dict[str, bytes | None] = {
        BUILD_INFO: members[BUILD_INFO].replace(b"12.5.1", number),
        CUDNN_HEADER: b"#define CUDNN_MAJOR %s\n#define CUDNN_MINOR +\n" % number,
    }
    facts = read_facts(write_tiny_wheel(tmp_path, cuda=True, changes=changes))
    assert (facts.cuda, facts.cudnn) == ("12.5", "9")
    facts = read_facts(write_tiny_wheel(tmp_path, cuda=True))
    assert (facts.cuda, facts.cudnn) == ("12.5", "9.3"), "build_info.py has cuDNN 9, its header 9.3"


MODULE = "tensorflow/python/_pywrap_small.so"


@pytest.mark.parametrize(
    ("content", "python"),
    [
        (b"\0module was compiled for Python %s\0003.12\0", "3.12"),
        (b"\0003.12\0", "3.11"),
        (b"\0module was compiled for Python %s\0" + b"x" * (1 << 20) + b"\0003.12\0", "3.11"),
    ],
    ids=["stated", "no check", "too large"],
)
def test_the_smallest_module_that_says_so_names_the_python(content: bytes, python: str, tmp_path: Path) -> None:
    changes: dict[str, bytes | None] = {MODULE: content, INTERNAL: make_members(cuda=False)[INTERNAL] + b"x" * 100}
    assert read_facts(write_tiny_wheel(tmp_path, changes=changes)).compiled_for == python


def test_only_so_many_modules_are_read(tmp_path: Path) -> None:
    others: dict[str, bytes | None] = {f"tensorflow/python/a{number}.so": b"" for number in range(MAX_MODULES - 3)}
    found = [
        read_facts(write_tiny_wheel(tmp_path, changes={**others, **more})).compiled_for
        for more in ({}, {"tensorflow/python/one_more.so": b""})
    ]
    assert found == ["3.11", None]


def test_nothing_of_a_wheel_is_executed(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w')\nbuild_info = {{'is_cuda_build': False}}\n".encode()
    facts = read_facts(write_tiny_wheel(tmp_path, changes={BUILD_INFO: code, "tensorflow/__init__.py": code}))
    assert facts.build == {"is_cuda_build": False}
    assert not trace.exists()


@pytest.mark.parametrize(
    ("tags", "glibc"),
    [
        ("manylinux_2_17_x86_64.manylinux2014_x86_64", None),  # manylinux2014 is older than every base
        ("manylinux_2_35_x86_64.manylinux_2_28_x86_64", 28),
        ("manylinux_2_35_x86_64.linux_x86_64", None),
        ("linux_x86_64", None),
    ],
)
def test_tags_allow_a_glibc(tags: str, glibc: int | None, tmp_path: Path) -> None:
    assert read_facts(write_tagged(tmp_path, f"cp311-cp311-{tags}")).glibc == glibc


def write_tagged(folder: Path, tag: str, stated: str = "") -> Path:
    """A wheel whose name has a tag, and whose WHEEL has another."""
    text = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {stated or tag}\n".encode()
    return write_tiny_wheel(folder, changes={f"{CPU}/WHEEL": text}, filename=f"tensorflow_cpu-2.18.1-{tag}.whl")


def test_other_tags_in_the_name_than_in_the_wheel_are_refused(tmp_path: Path) -> None:
    wheel = write_tagged(tmp_path, "cp310-cp310-linux_x86_64", "cp311-cp311-linux_x86_64")
    says = "its name is tagged cp310-cp310-linux_x86_64, and WHEEL cp311-cp311-linux_x86_64."
    with pytest.raises(InvalidWheel, match=re.escape(says)):
        read_facts(wheel)
    wheel = write_tiny_wheel(tmp_path, changes={f"{CPU}/WHEEL": b"Wheel-Version: 1.0\n"})
    assert read_facts(wheel).pythons == ("3.11",), "without tags in the wheel, those of its name count"

"""Facts of wheels and libraries that are hostile: bounded, and refused with `InvalidWheel` or `ValueError` alone."""

from __future__ import annotations

import random
import re
import resource
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.tensorflow_wheels import (
    BUILD_INFO,
    CUDA_CONFIG,
    CUDNN_HEADER,
    FRAMEWORK,
    LIBRARY,
    make_members,
    write_tiny_wheel,
)
from support.tiny_elf import AARCH64, make_elf, make_fatbin
from tfimg.core.errors import InvalidWheel
from tfimg.custom.contradictions import find_contradictions
from tfimg.custom.elf import read_elf
from tfimg.custom.facts import read_facts

CPU = "tensorflow_cpu-2.18.1.dist-info"
ROUNDS = 300


def write(tmp_path: Path, content: bytes) -> Path:
    file = tmp_path / "library.so"
    file.write_bytes(content)
    return file


# Libraries


def test_a_library_states_what_it_needs_and_where_it_looks(tmp_path: Path) -> None:
    code = make_fatbin([80, 90], [90], ptx_version=(8, 5)) * 2
    facts = read_elf(
        write(
            tmp_path,
            make_elf(
                machine=AARCH64, needed=["liba.so.1", "libc.so.6"], runpath="$ORIGIN/a:/b", fatbin=code,
                glibc=["GLIBC_2.17", "GLIBC_2.28", "GLIBC_PRIVATE"],
            ),
        )
    )  # fmt: skip
    assert (facts.processor, facts.needed) == ("aarch64", ("liba.so.1", "libc.so.6"))
    assert (facts.search_path, facts.glibc) == (("$ORIGIN/a", "/b"), 28)
    assert (facts.code.binaries, facts.code.ptx_version) == (2, (8, 5))
    assert (dict(facts.code.machine_code), dict(facts.code.ptx)) == ({80: 2, 90: 2}, {90: 2})


@pytest.mark.parametrize(
    ("fatbin", "reason"),
    [
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0), "malformed"),  # a header that does not advance
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 63), "malformed"),
        (struct.pack("<IHHQ", 0x12345678, 1, 16, 0), "malformed"),
        (make_fatbin([80], [])[:16] + bytes(72), "malformed"),  # an entry without a header
    ],
)
def test_malformed_cuda_code_is_refused(fatbin: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        read_elf(write(tmp_path, make_elf(fatbin=fatbin)))


def test_endless_cuda_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.custom.device_code.MAX_BINARIES", 10)
    with pytest.raises(ValueError, match="more than 10 pieces of CUDA code"):
        read_elf(write(tmp_path, make_elf(fatbin=make_fatbin([80], []) * 11)))
    monkeypatch.setattr("tfimg.custom.elf.MAX_READS", 500)
    with pytest.raises(ValueError, match=r"not a valid ELF file|more than 500 entries"):
        read_elf(write(tmp_path, make_elf(fatbin=bytes(100_000))))


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"MZ" + bytes(200), make_elf()[:80]])
def test_a_file_that_is_no_library_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a valid ELF file"):
        read_elf(write(tmp_path, content))


def test_mutated_libraries_raise_one_error_within_seconds(tmp_path: Path) -> None:
    some = random.Random(7)  # noqa: S311  (no secret)
    honest = make_elf(
        needed=["liba.so"], runpath="$ORIGIN", glibc=["GLIBC_2.17"], fatbin=make_fatbin([80], [80]), strings=b"x" * 50
    )
    slowest = 0.0
    for _ in range(ROUNDS):
        content = bytearray(honest)
        for _ in range(some.randint(1, 6)):
            place = some.randrange(len(content) - 8)
            value = some.choice([0, 1, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 64) - 1, some.getrandbits(64)])
            content[place : place + 8] = struct.pack("<Q", value)
        start = time.monotonic()
        with suppress(ValueError):
            read_elf(write(tmp_path, bytes(content)))
        slowest = max(slowest, time.monotonic() - start)
    assert slowest < 20


# Wheels


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({BUILD_INFO: b"build_info = open('/etc/passwd')"}, "is not a valid wheel"),
        ({BUILD_INFO: b"build_info = " + b"[" * 10_000}, "assigns no build_info"),
        ({BUILD_INFO: b"build_info = {}  #" + b"x" * 70_000}, "at most 65536 are allowed"),
        ({CUDA_CONFIG: b"#" * (5 << 20)}, "at most 4194304 are allowed"),
        ({FRAMEWORK: b"no library"}, "is not a valid ELF file"),
        (
            {f"{CPU}/WHEEL": b"Wheel-Version: 1.0\nTag: " + b"a" * 300 + b"-b-c\n"},
            "more than 64 lines of tags",
        ),
        ({f"{CPU}/WHEEL": b"Wheel-Version: 1.0\n" + b"Tag: a-b-c\n" * 65}, "more than 64 lines of tags"),
        ({f"{CPU}/METADATA": b"Name: tensorflow-cpu\nVersion: x\n"}, "Invalid version"),
        (
            {f"{CPU}/METADATA": b"Name: tensorflow-cpu\nVersion: 2.18.1\nRequires-Dist: !\n"},
            "Expected package name",
        ),
        (
            {f"{CPU}/METADATA": b"Name: tensorflow-cpu\nVersion: 2.18.1\n" + b"Requires-Dist: a\n" * 1001},
            "more than 1000 requirements",
        ),
        ({"other-1.0.dist-info/METADATA": b""}, "must have one dist-info folder with METADATA"),
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
    assert facts.statements["cuda"] == {"cuda_config.h": "12.5", "cuda.h": "12.5"}
    assert facts.statements["cudnn"] == {"build_info.py": "9", "cuda_config.h": "9"}
    assert find_contradictions(facts) == ()


def test_libraries_that_take_long_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_tiny_wheel(tmp_path)
    monkeypatch.setattr("tfimg.custom.facts.MAX_SECONDS", -1.0)
    with pytest.raises(InvalidWheel, match="its libraries take more than -1 seconds to read"):
        read_facts(wheel)


def test_a_library_that_finds_no_room_is_named_with_what_to_do(tmp_path: Path) -> None:
    wheel = write_tiny_wheel(tmp_path, changes={LIBRARY: make_elf(strings=b"x" * (3 << 20))})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match=r"libtensorflow_cc\.so\.2 \(3 MiB; TMPDIR names another folder\)"):
            read_facts(wheel)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_nothing_of_a_wheel_is_executed(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w')\nbuild_info = {{'is_cuda_build': False}}\n".encode()
    facts = read_facts(write_tiny_wheel(tmp_path, changes={BUILD_INFO: code, "tensorflow/__init__.py": code}))
    assert facts.build == {"is_cuda_build": False}
    assert not trace.exists()


def test_too_many_or_too_large_libraries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_tiny_wheel(tmp_path)
    monkeypatch.setattr("tfimg.custom.facts.MAX_LIBRARIES", 2)
    with pytest.raises(InvalidWheel, match="more than 2 libraries"):
        read_facts(wheel)


def test_a_wheel_without_build_information_is_read(tmp_path: Path) -> None:
    changes: dict[str, bytes | None] = dict.fromkeys(path for path in make_members(cuda=True) if path.endswith(".h"))
    facts = read_facts(write_tiny_wheel(tmp_path, cuda=True, changes={**changes, BUILD_INFO: None}))
    assert (facts.claims_cuda, facts.has_cuda_code) == (None, True)
    assert find_contradictions(facts) == ()


def test_a_release_candidate_and_a_local_version_are_the_same_release(tmp_path: Path) -> None:
    info = "tensorflow_cpu-2.18.1rc1+nv25.3.dist-info"
    members = make_members(cuda=False)
    changes: dict[str, bytes | None] = {
        f"{CPU}/METADATA": None,
        f"{CPU}/WHEEL": None,
        f"{info}/METADATA": members[f"{CPU}/METADATA"].replace(b"2.18.1", b"2.18.1rc1+nv25.3"),
        f"{info}/WHEEL": members[f"{CPU}/WHEEL"],
        FRAMEWORK: make_elf(strings=b"\0002.18.1-rc1\0"),
        "tensorflow/include/tensorflow/core/public/version.h": b"#define TF_MAJOR_VERSION 2\n"
        b'#define TF_MINOR_VERSION 18\n#define TF_PATCH_VERSION 1\n#define TF_VERSION_SUFFIX "-rc1"\n',
    }
    filename = "tensorflow_cpu-2.18.1rc1+nv25.3-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    facts = read_facts(write_tiny_wheel(tmp_path, changes=changes, filename=filename))
    assert str(facts.version) == "2.18.1rc1+nv25.3"
    assert find_contradictions(facts) == ()


def test_a_message_about_a_hostile_wheel_is_short_and_printable(tmp_path: Path) -> None:
    name = "lib" + "x" * 5000 + "\x1b[31m.so"
    wheel = write_tiny_wheel(tmp_path, changes={LIBRARY: make_elf(needed=[name, "libtensorflow_framework.so.2"])})
    (contradiction,) = find_contradictions(read_facts(wheel))
    assert contradiction.check == "libraries"
    assert len(contradiction.message) < 500
    assert contradiction.message.isprintable()

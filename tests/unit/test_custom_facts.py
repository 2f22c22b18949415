"""Facts of wheels, which are hostile: bounded, and refused with `InvalidWheel` alone."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from support.tensorflow_wheels import (
    BUILD_INFO,
    CUDA_CONFIG,
    CUDNN_HEADER,
    INTERNAL,
    make_members,
    write_tiny_wheel,
)
from tfimg.core.errors import InvalidWheel
from tfimg.custom.source import MAX_MODULES, read_facts

CPU = "tensorflow_cpu-2.18.1.dist-info"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({BUILD_INFO: b"build_info = open('/etc/passwd')"}, "is not a valid wheel"),
        ({BUILD_INFO: b"build_info = " + b"[" * 10_000}, "assigns no build_info"),
        ({BUILD_INFO: b"build_info = {}  #" + b"x" * 70_000}, "at most 65536 are allowed"),
        ({CUDA_CONFIG: b"#" * (5 << 20)}, "at most 4194304 are allowed"),
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


def test_the_most_exact_of_several_statements_counts(tmp_path: Path) -> None:
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


def test_a_wheel_without_build_information_is_read(tmp_path: Path) -> None:
    changes: dict[str, bytes | None] = dict.fromkeys(path for path in make_members(cuda=True) if path.endswith(".h"))
    facts = read_facts(write_tiny_wheel(tmp_path, cuda=True, changes={**changes, BUILD_INFO: None}))
    assert (facts.build, facts.cuda, facts.cudnn) == ({}, "", "")


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


def test_without_tags_in_the_wheel_those_of_its_name_count(tmp_path: Path) -> None:
    wheel = write_tiny_wheel(tmp_path, changes={f"{CPU}/WHEEL": b"Wheel-Version: 1.0\n"})
    assert read_facts(wheel).pythons == ("3.11",)

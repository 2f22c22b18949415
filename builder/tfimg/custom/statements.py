"""Read what the text files of a TensorFlow wheel state: tags, requirements, build information, headers of C++.

Nothing is imported or executed: build_info.py is parsed as a literal, headers by regular expressions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import Any

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, parse_tag

from tfimg.index.wheel_metadata import BUILD_INFO, MAX_BUILD_INFO, parse_build_info
from tfimg.layers.wheel_zip import WheelZip
from tfimg.matrix.schema import PLATFORMS, PROCESSORS, Platform, minor_version

INCLUDE = "tensorflow/include"
VERSION_HEADER = f"{INCLUDE}/tensorflow/core/public/version.h"
CUDA_CONFIG = (
    f"{INCLUDE}/third_party/gpus/cuda/cuda_config.h",
    f"{INCLUDE}/external/local_config_cuda/cuda/cuda/cuda_config.h",
)
CUDA_HEADER = f"{INCLUDE}/third_party/gpus/cuda/include/cuda.h"
CUDNN_HEADERS = (
    f"{INCLUDE}/third_party/gpus/cudnn/cudnn_version.h",
    f"{INCLUDE}/external/cuda_cudnn/include/cudnn_version.h",
)

MAX_HEADER = 4 << 20  # bytes: cuda.h of 2.18.1 has 1 MB
MAX_LINES = 64  # with tags in WHEEL: 2.18.1 has two
MAX_TAGS = 256  # of a wheel, which lists them as products: 2.18.1 has two
MAX_REQUIREMENTS = 1000  # 2.18.1 has 45
MAX_REQUIREMENT = 400  # characters: 2.18.1 has 60
MAX_CONDITIONS = 1000  # of the versions in all requirements, which compare each with each: 2.18.1 has 60

Statements = Mapping[str, Mapping[str, str]]
"""Fact → where it is stated → its value."""


def read_tags(headers: Message) -> frozenset[Tag]:
    """Return the tags in the headers of a WHEEL file. Raises `ValueError`."""
    texts = [str(text) for text in headers.get_all("Tag", [])]
    if len(texts) > MAX_LINES or any(text.count("-") != 2 or len(text) > 200 for text in texts):
        raise ValueError(f"WHEEL has more than {MAX_LINES} lines of tags, or one unlike cp311-cp311-linux_x86_64")
    if sum(map(count_tags, texts)) > MAX_TAGS:
        raise ValueError(f"WHEEL has more than {MAX_TAGS} tags")
    return frozenset(tag for text in texts for tag in parse_tag(text))


def count_tags(text: str) -> int:
    """Return how many tags a text such as `cp310.cp311-abi3-linux_x86_64`, or the end of a file name, stands for."""
    return math.prod(part.count(".") + 1 for part in text.split("-")[-3:])


def read_requirements(metadata: Message) -> tuple[str, ...]:
    """Return the requirements in METADATA. Raises `ValueError`, also for one that cannot be compared or evaluated."""
    lines = [str(line) for line in metadata.get_all("Requires-Dist", [])]
    if len(lines) > MAX_REQUIREMENTS:
        raise ValueError(f"METADATA has more than {MAX_REQUIREMENTS} requirements")
    requirements = [_parse_requirement(line) for line in lines]
    if sum(len(requirement.specifier) for requirement in requirements) > MAX_CONDITIONS:
        raise ValueError(f"the requirements in METADATA have more than {MAX_CONDITIONS} conditions")
    for requirement in requirements:
        try:
            requirement.specifier.is_disjoint(SpecifierSet(">=0"))
            if requirement.marker:
                requirement.marker.evaluate(make_environment("3.11", PLATFORMS[0]))
        except (ValueError, UndefinedComparison, UndefinedEnvironmentName) as error:
            raise ValueError(f"its requirement {str(requirement)[:100]!r} cannot be used: {error}") from None
    return tuple(map(str, requirements))


def _parse_requirement(line: str) -> Requirement:
    if len(line) > MAX_REQUIREMENT:
        raise ValueError(f"a requirement has more than {MAX_REQUIREMENT} characters")
    try:
        requirement = Requirement(line)
    except RecursionError:
        raise ValueError("a requirement is nested too deeply") from None
    if requirement.url:  # uv would open it: a file of this machine, or a server that only this machine reaches
        raise ValueError(f"its requirement {line[:100]!r} names an address, and images take packages from an index")
    return requirement


def make_environment(python: str, platform: Platform, *, extra: str = "") -> dict[str, str]:
    """Return the values of environment markers on a Python and platform, with one extra (PEP 508)."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": PROCESSORS[platform],
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": extra,
    }


def read_build_info(archive: WheelZip) -> Mapping[str, Any] | None:
    """Return the literal of build_info.py; None if the wheel lacks it. Raises `ValueError`."""
    if BUILD_INFO not in archive.files:
        return None
    return parse_build_info(archive.read(BUILD_INFO, MAX_BUILD_INFO).decode())


def read_statements(archive: WheelZip, build: Mapping[str, Any] | None) -> Statements:
    """Return what build information and headers state of version, CUDA, cuDNN and architectures."""
    found: dict[str, dict[str, str]] = {"version": {}, "cuda": {}, "cudnn": {}, "architectures": {}}
    pairs = [*_of_build(build or {}), *_of_version_header(archive), *_of_cuda_config(archive), *_of_headers(archive)]
    for fact, source, value in pairs:
        if value:
            found[fact][source] = value
    return found


def _of_build(build: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for fact, key in (("cuda", "cuda_version"), ("cudnn", "cudnn_version")):
        yield fact, "build_info.py", _number(str(build.get(key, "")))
    capabilities = build.get("cuda_compute_capabilities", [])
    listed = capabilities if isinstance(capabilities, list) else []
    yield "architectures", "build_info.py", " ".join(_sorted(re.findall(r"_(\d{2,3})\b", " ".join(listed))))


def _of_version_header(archive: WheelZip) -> Iterator[tuple[str, str, str]]:
    text = _text(archive, VERSION_HEADER)
    parts = [_defined(text, f"TF_{part}_VERSION") for part in ("MAJOR", "MINOR", "PATCH")]
    if all(parts):
        yield "version", "version.h", ".".join(parts) + _defined(text, "TF_VERSION_SUFFIX")


def _of_cuda_config(archive: WheelZip) -> Iterator[tuple[str, str, str]]:
    text = next((text for path in CUDA_CONFIG if (text := _text(archive, path))), "")
    yield "cuda", "cuda_config.h", _number(_defined(text, "TF_CUDA_VERSION"))
    yield "cudnn", "cuda_config.h", _number(_defined(text, "TF_CUDNN_VERSION"))
    line = re.search(r"^#define TF_CUDA_COMPUTE_CAPABILITIES(.*)$", text, re.MULTILINE)
    numbers = re.findall(r"\b(\d{1,2})[.,]?(\d)\b(?!\.)", line[1]) if line else []
    yield "architectures", "cuda_config.h", " ".join(_sorted(major + minor for major, minor in numbers))


def _of_headers(archive: WheelZip) -> Iterator[tuple[str, str, str]]:
    number = _defined(_text(archive, CUDA_HEADER), "CUDA_VERSION")
    if re.fullmatch(r"\d{4,6}", number):  # 12050 is 12.5 (CUDA driver API)
        yield "cuda", "cuda.h", f"{int(number) // 1000}.{int(number) % 1000 // 10}"
    text = next((text for path in CUDNN_HEADERS if (text := _text(archive, path))), "")
    parts = [_defined(text, f"CUDNN_{part}") for part in ("MAJOR", "MINOR")]
    yield "cudnn", "cudnn_version.h", _number(".".join(parts))


def _text(archive: WheelZip, path: str) -> str:
    """Return the text of a header, empty if the wheel lacks it. Raises `ValueError` if it is too large."""
    return archive.read(path, MAX_HEADER).decode(errors="replace") if path in archive.files else ""


def _defined(text: str, name: str) -> str:
    match = re.search(rf'^#define {name} +"?([\w.+-]{{1,40}})"?\s*$', text, re.MULTILINE)
    return match[1] if match else ""


def _number(version: str) -> str:
    """Return the first two numbers of a version, empty for anything else."""
    return minor_version(version) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,4}){0,3}", version) else ""


def _sorted(numbers: Iterator[str] | list[str]) -> list[str]:
    return sorted(set(numbers), key=int)

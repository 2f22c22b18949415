"""Read requirements and TensorFlow's build information from a wheel in an index."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from typing import Any

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tfimg.core.documents import validate

BUILD_INFO = "tensorflow/python/platform/build_info.py"
"""The module whose literal `tf.sysconfig.get_build_info()` returns."""

MAX_METADATA = 4 << 20
"""Bytes of METADATA. That of TensorFlow 2.21.0 has 9 kB, that of the longest README in locks 61 kB."""

MAX_BUILD_INFO = 64 << 10
"""Bytes of `BUILD_INFO`: 2 kB in TensorFlow 2.21.0."""

BuildInfo = dict[str, str | bool | int | list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelMetadata:
    """Requirements of a wheel, and its build information if it has one."""

    requires: tuple[str, ...]
    build: Mapping[str, Any] | None


def read_wheel(archive: zipfile.ZipFile, *, build: bool) -> WheelMetadata:
    """Return the metadata of a wheel and, with `build`, its build information. Raises `ValueError`."""
    names = archive.namelist()
    metadata = next((name for name in names if name.endswith(".dist-info/METADATA")), None)
    if metadata is None:
        raise ValueError("it holds no METADATA")
    text = _read_member(archive, BUILD_INFO, MAX_BUILD_INFO) if build and BUILD_INFO in names else None
    requires = parse_requires(_read_member(archive, metadata, MAX_METADATA))
    return WheelMetadata(requires=requires, build=parse_build_info(text.decode()) if text else None)


def _read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return a file of an archive. Raises `ValueError` if it has more than `limit` bytes, whatever it declares."""
    with archive.open(name) as member:
        content = member.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{name} has more than {limit} bytes")
    return content


def parse_requires(metadata: bytes) -> tuple[str, ...]:
    """Return the requirements in a METADATA file. Raises `ValueError`, also for a marker that cannot be evaluated."""
    headers = HeaderParser().parsestr(metadata.decode())
    if "Metadata-Version" not in headers:
        raise ValueError("it is not a METADATA file")
    requires = tuple(headers.get_all("Requires-Dist") or ())
    try:
        for requirement in map(Requirement, requires):
            if requirement.marker:
                requirement.marker.evaluate()
    except (UndefinedComparison, UndefinedEnvironmentName) as error:
        raise ValueError(f"a marker cannot be evaluated: {error}") from None
    except RecursionError:
        raise ValueError("a requirement is nested too deeply") from None
    return requires


def make_environment(python: str, processor: str, *, extra: str = "") -> dict[str, str]:
    """Return the values of environment markers on a Python of Linux on a processor, with one extra (PEP 508)."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": processor,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": extra,
    }


def select_requirements(requires: Iterable[str], environment: Mapping[str, str]) -> dict[str, SpecifierSet]:
    """Return the versions of each package that requirements ask for in an environment."""
    found: dict[str, SpecifierSet] = {}
    for requirement in map(Requirement, requires):
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            name = canonicalize_name(requirement.name)
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return found


def parse_build_info(text: str) -> Mapping[str, Any]:
    """Return the literal that a build_info module assigns. Raises `ValueError`."""
    try:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "build_info":
                value = node.value
                literal = value.args[0] if isinstance(value, ast.Call) and value.args else value
                return validate(BuildInfo, dict(ast.literal_eval(literal)))
    except (SyntaxError, TypeError, RecursionError, MemoryError):
        pass  # not Python, not a dictionary, or nested too deeply
    raise ValueError(f"{BUILD_INFO} assigns no build_info")

"""Compare what a wheel states with what it contains, and name each contradiction.

A fact that is stated once, or nowhere, contradicts nothing. Each check is a plain function in one table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from tfimg.core.errors import ContradictoryWheel
from tfimg.core.text import escape_unprintable
from tfimg.custom.cuda_checks import CUDA_LIBRARIES, check_architectures, check_cuda, check_cudnn, check_device
from tfimg.custom.differences import find_differences, list_some, shorten
from tfimg.custom.facts import FRAMEWORK, PLATFORM_OF, Library, WheelFacts

SYSTEM_LIBRARIES = re.compile(
    r"(lib(c|m|dl|pthread|rt|util|resolv|stdc\+\+|gcc_s)|ld-linux-(x86-64|aarch64))\.so\.\d{1,2}"
)
"""Libraries that the base of every image has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """What two parts of a wheel say of the same fact; `check` is the name of the check that found it."""

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


Check = Callable[[WheelFacts], Iterator[str]]


def find_contradictions(facts: WheelFacts) -> tuple[Contradiction, ...]:
    """Return every contradiction of a wheel."""
    return tuple(
        Contradiction(check=name, message=escape_unprintable(message))
        for name, check in CHECKS.items()
        for message in check(facts)
    )


def require_consistent(facts: WheelFacts) -> None:
    """Raise `ContradictoryWheel` for a wheel that contradicts itself."""
    if found := find_contradictions(facts):
        count = "a contradiction" if len(found) == 1 else f"{len(found)} contradictions"
        lines = "\n".join(f"  {contradiction}" for contradiction in found)
        raise ContradictoryWheel(
            f"{facts.file.name} has {count}:\n{lines}\n",
            next_step="Build the wheel again, or take it from a source that you trust. Do not rename or edit wheels.",
        )


def check_name(facts: WheelFacts) -> Iterator[str]:
    """File name and METADATA name the same package."""
    yield from find_differences(facts.statements.get("name", {}))


def check_version(facts: WheelFacts) -> Iterator[str]:
    """File name, METADATA, header and library are of the same release."""
    releases = {source: _release(text) for source, text in facts.statements.get("version", {}).items()}
    for library in facts.libraries:
        if library.name == FRAMEWORK and library.versions:
            found = {_release(version) for version in library.versions}
            stated = _release(str(facts.version))
            releases[FRAMEWORK] = stated if stated in found else list_some(found)
    yield from find_differences(releases)


def check_tags(facts: WheelFacts) -> Iterator[str]:
    """File name and WHEEL have the same tags."""
    if facts.filename_tags != facts.tags:
        ours, theirs = (list_some(map(str, tags)) for tags in (facts.filename_tags, facts.tags))
        yield f"the file name is tagged {ours}, and WHEEL {theirs}"


def check_python(facts: WheelFacts) -> Iterator[str]:
    """Python modules are compiled for the Python of the tags."""
    if facts.pythons and not any(tag.abi == "abi3" for tag in facts.tags):
        others: dict[str, list[str]] = {}
        for library in facts.libraries:
            if library.pythons and not set(library.pythons) & set(facts.pythons):
                others.setdefault(", ".join(library.pythons), []).append(library.path)
        for python, paths in others.items():
            yield f"the tags are for Python {', '.join(facts.pythons)}, and {list_some(paths)} for Python {python}"


def check_platform(facts: WheelFacts) -> Iterator[str]:
    """Libraries are for the processor of the tags."""
    others: dict[str, list[str]] = {}
    for path, processor in facts.processors.items():
        platform = PLATFORM_OF.get(processor, processor)
        if facts.platforms and platform not in facts.platforms:
            others.setdefault(platform, []).append(path)
    for platform, paths in others.items():
        yield f"the tags are for {', '.join(facts.platforms)}, and {list_some(paths)} for {platform}"


def check_glibc(facts: WheelFacts) -> Iterator[str]:
    """No library needs a newer glibc than the manylinux tag allows."""
    allowed = [minor for tag in facts.tags if (minor := _glibc_of_tag(tag.platform)) is not None]
    newest = max((library for library in facts.libraries if library.elf.glibc), key=_glibc, default=None)
    if allowed and newest and _glibc(newest) > min(allowed):
        yield f"the tags allow glibc 2.{min(allowed)}, and {newest.path} needs 2.{newest.elf.glibc}"


def check_libraries(facts: WheelFacts) -> Iterator[str]:
    """Each needed library is in the wheel, in the base, or NVIDIA's for a build for CUDA."""
    present = {library.name for library in facts.libraries}
    missing: dict[str, list[str]] = {}
    for library in facts.libraries:
        for name in library.elf.needed:
            is_known = name in present or SYSTEM_LIBRARIES.fullmatch(name) or CUDA_LIBRARIES.fullmatch(name)
            if not is_known:
                missing.setdefault(name, []).append(library.path)
    for name, paths in missing.items():
        yield f"{shorten(name)} is needed by {list_some(paths)}, and neither the wheel nor the base of images has it"


CHECKS: Mapping[str, Check] = {
    "name": check_name,
    "version": check_version,
    "tags": check_tags,
    "python": check_python,
    "platform": check_platform,
    "glibc": check_glibc,
    "libraries": check_libraries,
    "device": check_device,
    "cuda": check_cuda,
    "cudnn": check_cudnn,
    "architectures": check_architectures,
}


def _release(version: str) -> str:
    """Return a version without a local label, and without what rebuilding adds: 2.15.0 for 2.15.0.post1+nv.

    TensorFlow's own libraries and headers do not state either.
    """
    try:
        parsed = Version(version)
    except InvalidVersion:
        return version
    suffix = "".join(map(str, parsed.pre or ()))
    return f"{parsed.base_version}{suffix}"


def _glibc_of_tag(platform: str) -> int | None:
    legacy = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
    if match := re.match(r"manylinux_2_(\d{1,3})_", platform):
        return int(match[1])
    return legacy.get(platform.partition("_")[0])


def _glibc(library: Library) -> int:
    return library.elf.glibc or 0

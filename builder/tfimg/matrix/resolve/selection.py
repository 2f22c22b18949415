"""Select images by identifier, pattern or abbreviation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from packaging.version import Version

from tfimg.core.errors import ResolutionError
from tfimg.matrix.flavor import RUNTIME, Flavor
from tfimg.matrix.resolve.request import parse_version
from tfimg.matrix.schema import PLATFORMS, has_version_prefix
from tfimg.matrix.spec import OWN_SUFFIX, ImageSpec, with_flavor

_ABBREVIATION = re.compile(
    r"(?P<release>\d[\w.]*)(?:-(?P<device>cpu|gpu|tpu|cuda)(?P<cuda>[\d.]*))?(?:-py(?P<python>[\d.]+))?"
)


def preference_key(spec: ImageSpec) -> tuple[Version, bool, Version]:
    """Return the sort key of images: newest TensorFlow, then default Python, then newest Python."""
    return parse_version(spec.tensorflow), spec.is_default_python, parse_version(spec.python)


def select_specs(
    specs: Sequence[ImageSpec], patterns: Sequence[str], flavors: Sequence[str] = ()
) -> tuple[ImageSpec, ...]:
    """Return the images whose identifier matches a pattern (`*`, `?`, `[…]`); all without patterns.

    A pattern that is neither a glob nor an identifier is a prefix: `2.15` means `2.15*`. `flavors` are endings that an
    error suggests. Raises `ResolutionError` for a pattern without a match.
    """
    selected: set[str] = set()
    identifiers = {spec.identifier for spec in specs}
    for pattern in patterns:
        is_whole = any(sign in pattern for sign in "*?[") or pattern in identifiers
        glob = pattern if is_whole else f"{pattern}*"
        matches = {identifier for identifier in identifiers if fnmatchcase(identifier, glob)}
        if not matches:
            hint = _suggest_pattern(specs, pattern, flavors)
            raise ResolutionError(
                f"No image matches {pattern!r}: identifiers look like {max(specs, key=preference_key).identifier}.",
                next_step=f"{hint}`tfimg list` shows all of them.",
            )
        selected |= matches
    return tuple(spec for spec in specs if not patterns or spec.identifier in selected)


def _suggest_pattern(specs: Sequence[ImageSpec], pattern: str, flavors: Sequence[str]) -> str:
    """Return a sentence that names what a pattern without a match may mean, with a space behind it; else nothing."""
    if "/" in pattern:
        return "Patterns are not names of images. "
    if pattern.endswith(OWN_SUFFIX):
        return f"Leave {OWN_SUFFIX} out and name the packages with `tfimg build --with`. "
    start, _, ending = pattern.rpartition("-")
    if near := get_close_matches(ending, flavors, n=1):
        return f"Did you mean '{start}-{near[0]}'? "
    if found := find_spec(specs, pattern):  # tags are abbreviated like this
        return f"Did you mean '{found.identifier}'? "
    return ""


def select_flavors(
    specs: Sequence[ImageSpec], patterns: Sequence[str], flavors: Mapping[str, Flavor], flavor: str = RUNTIME
) -> tuple[ImageSpec, ...]:
    """Return the images that patterns select, each in the flavour that its pattern ends in, else in `flavor`.

    `2.18*-slim` selects the slim images of `2.18*`. Raises as `select_specs` and `with_flavor` do.
    """
    names = (RUNTIME, *flavors)
    chosen: dict[str, list[str]] = {} if patterns else {flavor: []}
    for pattern in patterns:
        ending = next((name for name in names if pattern.endswith(f"-{name}")), None)
        chosen.setdefault(ending or flavor, []).append(pattern.removesuffix(f"-{ending}"))
    found = [
        with_flavor(spec, name, flavors) for name, group in chosen.items() for spec in select_specs(specs, group, names)
    ]
    order = {spec.identifier: number for number, spec in enumerate(specs)}
    return tuple(sorted(found, key=lambda spec: (order[spec.runtime], names.index(spec.flavor))))


def find_spec(specs: Sequence[ImageSpec], name: str) -> ImageSpec | None:
    """Return the image of an identifier or abbreviation: newest release, default Python, linux/amd64.

    Release and CUDA may end after any number: `2.18-cuda12`, `2.18-gpu`, `2.15.1-cpu-py3.9`; without a device it is for
    CPUs, as for tags. None without a match.
    """
    exact = next((spec for spec in specs if spec.identifier == name), None)
    abbreviation = _ABBREVIATION.fullmatch(name)
    if exact or not abbreviation:
        return exact
    matches = [spec for spec in specs if _matches(spec, **abbreviation.groupdict())]
    return matches[-1] if matches else None  # oldest release first


def _matches(spec: ImageSpec, release: str, device: str | None, cuda: str | None, python: str | None) -> bool:
    if device == "cuda":
        is_variant = spec.gpu is not None and (not cuda or has_version_prefix(spec.gpu.cuda, cuda))
    else:
        is_variant = spec.device == (device or "cpu")
    return (
        is_variant
        and spec.platform == PLATFORMS[0]
        and has_version_prefix(spec.tensorflow, release)
        and (spec.python == python if python else spec.is_default_python)
    )

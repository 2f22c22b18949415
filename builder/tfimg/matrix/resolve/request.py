"""A request for an image, and the syntax of its values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.errors import UsageError
from tfimg.matrix.schema import PLATFORMS, Device, Matrix, Platform

PLATFORM_NAMES: Mapping[str, Platform] = {
    "amd64": "linux/amd64",
    "x86_64": "linux/amd64",
    "x86-64": "linux/amd64",
    "arm64": "linux/arm64",
    "aarch64": "linux/arm64",
    "arm64/v8": "linux/arm64",
}
"""Common names of a processor, and the platform."""

EXAMPLES = {
    "--tf": "2.15, 2.15.1, '>=2.15,<2.17' or latest",
    "--cuda": "12, 12.2 or '>=12.3'",
    "--cudnn": "9, 8.9 or '>=8.9.4'",
    "--python": "3.11 or '>=3.10'",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Requirements on an image; None: any value."""

    tensorflow: str | None = None
    python: str | None = None
    device: Device | None = None
    cuda: str | None = None
    cudnn: str | None = None
    platform: str | None = None
    driver: str | None = None
    gpu: str | None = None
    flavor: str | None = None

    @property
    def gpu_options(self) -> tuple[str, ...]:
        """Options of the request that only a GPU image can meet."""
        values = {"--cuda": self.cuda, "--cudnn": self.cudnn, "--gpu": self.gpu, "--driver": self.driver}
        return tuple(option for option, value in values.items() if value is not None)


def quote_argument(value: str) -> str:
    """Quote a value for a shell; zsh also expands words that begin with `=`."""
    return f"'{value}'" if value.startswith("=") and "'" not in value else shlex.quote(value)


def parse_platform(text: str) -> Platform:
    """Return the platform for `linux/arm64`, `arm64` or `aarch64`. Raises `UsageError`."""
    name = text.lower().removeprefix("linux/")
    if name not in PLATFORM_NAMES:
        raise UsageError(
            f"--platform {text!r} is not a platform that TensorFlow has wheels for.",
            next_step=f"Write {' or '.join(PLATFORMS)}.",
        )
    return PLATFORM_NAMES[name]


def check_python(text: str) -> None:
    """Raise `UsageError` if a request selects a patch version of Python."""
    minors = re.sub(r"([0-9]+\.[0-9]+)(?!\.\*)[^\s,0-9][^\s,]*", r"\1", text)
    if minors != text:
        raise UsageError(
            f"--python {text}: the patch version of Python cannot be chosen, as an image has that of its base.",
            next_step=f"Name the minor version: --python {quote_argument(minors)}.",
        )


def check_driver(matrix: Matrix, text: str) -> None:
    """Raise `UsageError` if a driver version is malformed or too short to compare."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", text):
        raise UsageError(
            f"--driver {text!r} is not the version of a driver.",
            next_step="Write what nvidia-smi shows, for example 535.104.05.",
        )
    for toolkit in matrix.toolkits.values():
        if toolkit.driver.startswith(f"{text}."):
            raise UsageError(
                f"--driver {text} is incomplete: it may be older or newer than {toolkit.driver}, which some images "
                "need.",
                next_step="Write the whole version, as nvidia-smi shows it.",
            )


def make_version_matcher(text: str, *, option: str, exact_parts: int = 3) -> Callable[[str], bool]:
    """Return the test for `2.15` (any 2.15.x), `2.15.1` (exact), `>=2.15,<2.17` (a range) or `latest` (any).

    A version of `exact_parts` parts or more is exact. Raises `UsageError` naming `option`.
    """
    if text == "latest":
        return lambda _: True
    try:
        if not text.isprintable():
            raise ValueError("packaging accepts white space of any kind around a version")
        matcher = _match_release(text, exact_parts) if text[:1].isdigit() else _match_range(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is neither a version nor a range of versions.",
            next_step=f"Write for example {EXAMPLES.get(option, EXAMPLES['--tf'])}.",
        ) from None
    return cache(matcher)  # hundreds of images have few versions


def _match_release(text: str, exact_parts: int) -> Callable[[str], bool]:
    wanted = Version(text)
    release = wanted.release
    if len(release) >= exact_parts or str(wanted) != ".".join(map(str, release)):
        return lambda version: parse_version(version) == wanted
    return lambda version: parse_version(version).release[: len(release)] == release


def _match_range(text: str) -> Callable[[str], bool]:
    specifiers = SpecifierSet(text)
    if not list(specifiers):
        raise ValueError("a range without bounds is most likely an unset variable")
    specifiers.contains("0")  # Python rejects numbers of thousands of digits only in use
    return lambda version: specifiers.contains(parse_version(version))


@cache
def parse_version(version: str) -> Version:
    """Parse a version once."""
    return Version(version)

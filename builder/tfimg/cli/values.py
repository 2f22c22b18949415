"""Values of options: parse, complete, write to files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.core.errors import FileError, NetworkError, NotInRegistry, RegistryError
from tfimg.core.text import quote_argument, read_clock
from tfimg.matrix.devices import DEVICES

if TYPE_CHECKING:
    from tfimg.matrix.schema import Matrix
    from tfimg.matrix.spec import ImageSpec

MAX_TEXT = 1000
"""Characters of a reason, as `tfimg.attestations.promotions` takes them."""


def require_text(text: str) -> None:
    """Raise `ValueError` for an empty text."""
    if not text:
        raise ValueError("is empty")


def require_repository(text: str) -> None:
    """Raise `UsageError` for a text that is not REGISTRY/NAME."""
    from tfimg.registry.reference import parse_repository

    parse_repository(text)


def require_writable(option: str, name: str) -> None:
    """Raise `FileError` if the file of an option cannot be written; as `cp`, it does not make parent folders."""
    require_text(name)
    folder = Path(name).parent
    if not folder.resolve().is_dir():
        raise FileError(
            f"{option} {name}: there is no folder {folder}.",
            next_step=f"Make it with `mkdir -p {quote_argument(folder)}`, or name another file.",
        )
    if Path(name).is_dir() or not os.access(Path(name).resolve().parent, os.W_OK):
        raise FileError(
            f"{option} {name} is not a file that can be written.",
            next_step="Name a file in a folder that you may write to.",
        )


def _matcher(pattern: str, problem: str) -> Callable[[str], None]:
    """Return the check of a text against a pattern; `{!r}` in the problem is the text."""

    def require(text: str) -> None:
        if not re.fullmatch(pattern, text):
            raise ValueError(problem.format(text))

    return require


require_whole_digest = _matcher(
    r"sha256:[0-9a-f]{64}", "is not a digest, which is sha256: and 64 digits of 0-9 and a-f"
)
require_advisory = _matcher(
    r"[A-Za-z0-9][A-Za-z0-9:._-]{2,63}", "must be an identifier such as CVE-2026-12484 or GHSA-xxxx-xxxx-xxxx"
)
require_tag = _matcher(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", "{!r} is not a tag")  # OCI distribution specification 1.1
require_digest = _matcher(
    r"(sha256:)?[0-9a-f]{12,64}", "{!r} is neither a digest nor 12 or more of its hexadecimal digits"
)
require_fingerprint = _matcher(
    r"SHA256:[A-Za-z0-9+/]{43}", "{!r} is not a fingerprint: SHA256: and 43 characters of base64"
)


def require_printable(text: str) -> None:
    """Raise `ValueError` for a text that is empty or not printable."""
    if not text or not text.isprintable():
        raise ValueError("is empty, or has characters that cannot be printed")


def require_reason(text: str) -> None:
    """Raise `ValueError` for a text that cannot be the reason of a withdrawal, which other machines show."""
    if not 0 < len(text.strip()) <= MAX_TEXT or not text.isprintable():
        raise ValueError(f"must be one line of at most {MAX_TEXT} characters")


def require_publisher(text: str) -> None:
    """Raise `ValueError` for a publisher's name that other machines could not show."""
    if not 0 < len(text) <= MAX_TEXT:
        raise ValueError(f"must have 1 to {MAX_TEXT} characters")


UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_seconds(text: str) -> int:
    """Parse a duration: 90s, 30m, 8h, 1h30m."""
    parts = re.findall(r"([0-9]{1,9})([smhd])", text)
    seconds = sum(int(number) * UNITS[unit] for number, unit in parts)
    if not seconds or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration: write 90s, 30m, 8h, 1d or 1h30m")
    return seconds


def require_day(text: str) -> None:
    """Raise `ValueError` for what is not a day such as 2026-03-20."""
    try:
        date.fromisoformat(text if len(text) == 10 else "")
    except ValueError:
        raise ValueError(f"{text!r} is not a day such as 2026-03-20") from None


def positive_number(text: str, limit: int = 999_999) -> int:
    """Parse a number from 1 to a limit."""
    if not (text.isdecimal() and len(text) <= 6 and 0 < int(text) <= limit):
        raise ValueError(f"{text!r} is not a positive number of at most {limit}")
    return int(text)


def lower_device(text: str) -> str:
    """Parse a device in any case."""
    if text.lower() not in DEVICES:
        raise ValueError(f"{text!r} is not one of {', '.join(DEVICES)}")
    return text.lower()


def complete_identifiers() -> Sequence[str]:
    return [spec.identifier for spec in _list_specs()]


def complete_releases() -> Sequence[str]:
    releases = list(dict.fromkeys(spec.tensorflow for spec in _list_specs()))
    return [*dict.fromkeys(release.rpartition(".")[0] for release in releases), *releases, "latest"]


def complete_gpus() -> Sequence[str]:
    gpus = _read_matrix().gpus
    return [*gpus, *(name for names in gpus.values() for name in names)]


def complete_variants() -> Sequence[str]:
    from tfimg.matrix.schema import RUNTIME

    return [RUNTIME, *_read_matrix().variants]


def complete_platforms() -> Sequence[str]:
    return list(dict.fromkeys(spec.platform for spec in _list_specs()))


def _list_specs() -> Sequence[ImageSpec]:
    from tfimg.matrix.spec import expand_matrix

    return expand_matrix(_read_matrix())


def _read_matrix() -> Matrix:
    from tfimg.core.paths import find_workspace, state_folder
    from tfimg.matrix.checked import load_matrix

    workspace, cache = find_workspace(os.environ), state_folder(os.environ) / "cache"
    today = read_clock().date()
    return load_matrix(workspace.read_matrix(), source=workspace.matrix.name, today=today, cache=cache)


@contextmanager
def explain_missing_registry(image: str) -> Iterator[None]:
    """Let errors of a registry say that the image's name has none, and which was asked."""
    from tfimg.registry.reference import names_registry, parse_reference

    try:
        yield
    except (NetworkError, NotInRegistry, RegistryError) as error:
        if names_registry(image):
            raise
        kind = next(kind for kind in (NetworkError, NotInRegistry, RegistryError) if isinstance(error, kind))
        raise kind(
            f"{image} names no registry, so it means {parse_reference(image)}: {error.what}",
            next_step=f"Write the registry too, as in registry.example/{image}; for an image in the engine use "
            f"`tfimg validate {quote_argument(image)}` or `tfimg inspect --local {quote_argument(image)}`.",
        ) from None

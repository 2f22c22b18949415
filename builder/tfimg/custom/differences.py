"""Say in one sentence how values differ that should be the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tfimg.matrix.schema import has_version_prefix

MAX_LISTED = 3
"""Libraries or values that one message lists."""

MAX_VALUE = 100
"""Characters of a quoted value."""


def find_differences(stated: Mapping[str, str]) -> Iterator[str]:
    """Yield one message if the values differ; 12 and 12.5 do not."""
    if not any(not _agree(one, other) for one in stated.values() for other in stated.values()):
        return
    sources: dict[str, list[str]] = {}
    for source, value in stated.items():
        sources.setdefault(value, []).append(source)
    yield "; ".join(f"{' and '.join(names)}: {shorten(value)}" for value, names in sources.items())


def _agree(one: str, other: str) -> bool:
    return has_version_prefix(one, other) or has_version_prefix(other, one)


def list_some(values: Iterable[str]) -> str:
    """Return values for a message, the first few by name."""
    every = sorted(set(values))
    more = len(every) - MAX_LISTED
    return ", ".join(map(shorten, every[:MAX_LISTED])) + (f" and {more} more" if more > 0 else "")


def shorten(value: str) -> str:
    """Return a value, shortened for a message."""
    return value if len(value) <= MAX_VALUE else f"{value[: MAX_VALUE - 3]}..."

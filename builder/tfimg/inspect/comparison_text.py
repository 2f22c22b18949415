"""A comparison of two images in words, and as a changelog entry in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tfimg.core.text import to_plain_text
from tfimg.inspect.comparison import Change, Comparison, PartSize

TITLES = {
    "facts": "Image",
    "libraries": "CUDA libraries",
    "packages": "Python packages",
    "debian": "Debian packages",
    "environment": "Environment",
    "configuration": "Configuration",
    "labels": "Labels",
    "outcomes": "Checks",
}
"""Titles of the kinds of changes, in the order in which people look for them."""


def list_sections(comparison: Comparison) -> list[tuple[str, Sequence[Change]]]:
    """Return the title of each kind of changes, and the changes."""
    return [(title, comparison.changes[kind]) for kind, title in TITLES.items()]


def describe_total(comparison: Comparison) -> str:
    """Return the compressed sizes of both images, and what they share."""
    before, after = comparison.before.compressed_bytes, comparison.after.compressed_bytes
    same = comparison.shared_bytes
    shared = f", {format_megabytes(same)} of it in the same layers" if same else ""
    return f"{format_megabytes(before)} → {format_megabytes(after)} ({format_percent(before, after)}){shared}"


def describe_part(size: PartSize) -> tuple[str, str, str, str]:
    """Return the name of a part, its sizes in both images, and the change."""
    if size.shared:
        change = "the same layer"
    elif size.before is None or size.after is None:
        change = "new" if size.before is None else "gone"
    else:
        change = f"{(size.after - size.before) / 1e6:+z,.1f} MB ({format_percent(size.before, size.after)})"
    return size.part, format_megabytes(size.before), format_megabytes(size.after), change


def format_megabytes(count: int | None) -> str:
    """Format bytes in units of 10^6."""
    return "-" if count is None else f"{count / 1e6:,.1f} MB"


def format_percent(before: float, after: float) -> str:
    return f"{(after - before) / before:+z.1%}" if before else "-"


def format_changelog(comparison: Comparison) -> str:
    """Return a changelog entry in Markdown."""
    before, after = comparison.before, comparison.after
    title = after.labels.get("org.opencontainers.image.version") or after.name
    lines = [f"## {_escape(title)}", "", f"`{before.digest}` → `{after.digest}`", ""]
    for section, changes in list_sections(comparison):
        if changes:
            lines += [f"### {section}", "", *map(_format_change, changes), ""]
    lines += ["### Size", "", f"{describe_total(comparison)}.", ""]
    lines += ["| part | before | after | change |", "|---|---|---|---|"]
    lines += [f"| {' | '.join((_escape(size.part), *describe_part(size)[1:]))} |" for size in comparison.sizes]
    if comparison.seconds:
        lines += ["", "### Timings", ""]
        lines += [
            f"- {_escape(timing.check)}: {timing.before:.1f} s → {timing.after:.1f} s "
            f"({format_percent(timing.before, timing.after)})"
            for timing in (comparison.seconds, *comparison.timings)
        ]
    lines += [line for note in comparison.notes for line in ("", f"*{_escape(note)}*")]
    return "\n".join(lines) + "\n"


def _format_change(change: Change) -> str:
    name = f"- **{_escape(change.name)}**"
    if change.before is None:
        return f"{name}: new, {_format_code(change.after)}"
    if change.after is None:
        return f"{name}: removed, was {_format_code(change.before)}"
    return f"{name}: {_format_code(change.before)} → {_format_code(change.after)}"


def _format_code(text: str | None) -> str:
    plain = to_plain_text(text or "").replace("`", "'").replace("\n", " ")
    return f"`{plain}`" if plain else "empty"


def _escape(text: str) -> str:
    """Escape what Markdown would read as markup: a version may contain anything."""
    flat = " ".join(to_plain_text(text).split())
    for sign in "\\`*_{}[]<>|#":
        flat = flat.replace(sign, f"\\{sign}")
    return flat

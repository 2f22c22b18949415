"""What `tfimg compare` shows: on a terminal, as an entry of a changelog, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from tfimg.cli.show import plain_table, print_table
from tfimg.core.text import to_plain_text
from tfimg.inspect.comparison import Change, Comparison, PartSize

Sections = tuple[tuple[str, Sequence[Change]], ...]


def sections(found: Comparison) -> Sections:
    """What changed, by its kind, in the order in which people ask for it."""
    return (
        ("Image", found.facts),
        ("CUDA libraries", found.libraries),
        ("Python packages", found.packages),
        ("Debian packages", found.debian),
        ("Environment", found.environment),
        ("Configuration", found.configuration),
        ("Labels", found.labels),
        ("Checks", found.outcomes),
    )


def print_difference(found: Comparison) -> None:
    """Print what changed; what did not is not spoken of."""
    print(f"before  {to_plain_text(found.before.name)}  {found.before.digest}")
    print(f"after   {to_plain_text(found.after.name)}  {found.after.digest}")
    if found.is_same_image:
        print("\nThey are the same image.")
        return
    for title, changes in sections(found):
        if changes:
            print(f"\n{title}: {_describe_count(changes)}")
            print_table(_change_table(changes))
    print(f"\nSize, as it is sent: {_describe_total(found)}")
    print_table(_size_table(found))
    if found.timings or found.seconds:
        print("\nTimings")
        print_table(_timing_table(found))
    for note in _list_notes(found):
        print(f"\n{to_plain_text(note)}")


def _change_table(changes: Sequence[Change]) -> Table:
    table = plain_table("NAME", "BEFORE", "AFTER")
    for column in table.columns[1:]:
        column.no_wrap, column.overflow = False, "fold"
    for change in changes:
        table.add_row(*(escape(to_plain_text(text or "-")) for text in (change.name, change.before, change.after)))
    return table


def _size_table(found: Comparison) -> Table:
    table = plain_table("PART", "BEFORE", "AFTER", "CHANGE")
    for column in table.columns[1:3]:
        column.justify = "right"
    for size in found.sizes:
        table.add_row(
            escape(size.part), _format_megabytes(size.before), _format_megabytes(size.after), escape(_change(size))
        )
    return table


def _timing_table(found: Comparison) -> Table:
    table = plain_table("CHECK", "BEFORE", "AFTER", "CHANGE")
    for timing in (*((found.seconds,) if found.seconds else ()), *found.timings):
        change = _format_percent(timing.before, timing.after)
        table.add_row(escape(to_plain_text(timing.check)), f"{timing.before:.1f} s", f"{timing.after:.1f} s", change)
    return table


def _format_megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:,.1f} MB"


def _change(size: PartSize) -> str:
    if size.shared:
        return "the same layer"
    if size.before is None or size.after is None:
        return "new" if size.before is None else "gone"
    return f"{(size.after - size.before) / 1e6:+z,.1f} MB ({_format_percent(size.before, size.after)})"


def _format_percent(before: float, after: float) -> str:
    return f"{(after - before) / before:+z.1%}" if before else "-"


def _describe_total(found: Comparison) -> str:
    before, after = found.before.compressed_bytes, found.after.compressed_bytes
    shared = f", {_format_megabytes(found.shared_bytes)} of it in the same layers" if found.shared_bytes else ""
    return f"{_format_megabytes(before)} → {_format_megabytes(after)} ({_format_percent(before, after)}){shared}"


def _describe_count(changes: Sequence[Change]) -> str:
    new = sum(change.before is None for change in changes)
    gone = sum(change.after is None for change in changes)
    counts = ((len(changes) - new - gone, "changed"), (new, "new"), (gone, "gone"))
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def _list_notes(found: Comparison) -> Iterator[str]:
    """What could not be compared."""
    for image in (found.before, found.after):
        if image.evidence_problem:
            yield f"The evidence of {image.name} cannot be read: {image.evidence_problem}"
        elif image.report is None:
            yield f"{image.name} has no validation report: checks and timings are not compared."
    unknown = [image.name for image in (found.before, found.after) if not image.contents.known]
    if unknown:
        yield (
            f"{' and '.join(unknown)} {'has' if len(unknown) == 1 else 'have'} no bill of materials: only "
            "configuration, labels and layers are compared. Packages and libraries are not."
        )


def markdown(found: Comparison) -> str:
    """An entry of a changelog."""
    lines = [f"## {_describe_title(found)}", ""]
    lines += [f"`{found.before.digest}` → `{found.after.digest}`", ""]
    for title, changes in sections(found):
        if changes:
            lines += [f"### {title}", "", *(f"- {_describe_change(change)}" for change in changes), ""]
    lines += [
        "### Size",
        "",
        f"{_describe_total(found)}.",
        "",
        "| part | before | after | change |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {_format_cell(size.part)} | {_format_megabytes(size.before)} | {_format_megabytes(size.after)} "
        f"| {_change(size)} |"
        for size in found.sizes
    ]
    if found.seconds:
        lines += ["", "### Timings", ""]
        lines += [
            f"- {_format_cell(timing.check)}: {timing.before:.1f} s → {timing.after:.1f} s "
            f"({_format_percent(timing.before, timing.after)})"
            for timing in (found.seconds, *found.timings)
        ]
    lines += [line for note in _list_notes(found) for line in ("", f"*{_format_cell(note)}*")]
    return "\n".join(lines) + "\n"


def _describe_title(found: Comparison) -> str:
    return _format_cell(found.after.labels.get("org.opencontainers.image.version") or found.after.name)


def _describe_change(change: Change) -> str:
    name = f"**{_format_cell(change.name)}**"
    if change.before is None:
        return f"{name}: new, {_format_code(change.after)}"
    if change.after is None:
        return f"{name}: gone, was {_format_code(change.before)}"
    return f"{name}: {_format_code(change.before)} → {_format_code(change.after)}"


def _format_code(text: str | None) -> str:
    plain = to_plain_text(text or "").replace("`", "'").replace("\n", " ")
    return f"`{plain}`" if plain else "empty"


def _format_cell(text: str) -> str:
    """Text that means nothing to Markdown: a version may hold anything."""
    flat = " ".join(to_plain_text(text).split())
    for sign in "\\`*_{}[]<>|#":
        flat = flat.replace(sign, f"\\{sign}")
    return flat


def difference_document(found: Comparison) -> dict[str, Any]:
    """All of it as a JSON object."""
    return {
        "event": "difference",
        "before": {"image": found.before.name, "digest": found.before.digest},
        "after": {"image": found.after.name, "digest": found.after.digest},
        "same": found.is_same_image,
        **{
            name: [asdict(change) for change in getattr(found, name)]
            for name in ("facts", "environment", "configuration", "labels", "sizes", "outcomes", "timings")
        },
        **{
            name: [asdict(change) for change in getattr(found, name)] if found.compares_contents else None
            for name in ("libraries", "packages", "debian")
        },
        "seconds": asdict(found.seconds) if found.seconds else None,
        "compressed_bytes": {
            "before": found.before.compressed_bytes,
            "after": found.after.compressed_bytes,
            "shared": found.shared_bytes,
        },
        "notes": list(_list_notes(found)),
    }

"""`tfimg history`: the promotions and withdrawals of a tag, or of a repository's newest releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from tfimg.cli.context import Context
from tfimg.cli.keys import verifying_keys
from tfimg.cli.show import plain_table, print_table
from tfimg.cli.signing import default_repository
from tfimg.core.text import to_plain_text
from tfimg.evidence.promotions import export_withdrawals
from tfimg.evidence.statement import format_time
from tfimg.publish.history import HistoryEntry, build_tags, repository_history, tag_history
from tfimg.recipe.tags import DIGEST_DIGITS
from tfimg.registry.reference import Reference, parse_reference, parse_repository

if TYPE_CHECKING:
    from tfimg.cli.commands.history import History

GAP = "no trusted key signed a promotion to this tag: it was moved without tfimg, or statements were deleted"


def history(command: History, context: Context) -> int:
    """`tfimg history REPOSITORY [TAG]`: read what trusted keys signed, newest first."""
    environ, limit = context.services.environ, command.limit
    target, tag = _target(command, environ)
    keys, registry = verifying_keys(command.public_key, environ), context.registry(target)
    if tag:
        entries = list(tag_history(registry, tag, keys, limit=limit))
    else:
        builds = build_tags(registry.list_tags())
        if len(builds) > limit:
            context.say(f"Only the {limit} newest of {len(builds)} builds are read: --limit reads more.")
        entries = repository_history(registry, builds[:limit], keys, limit=limit)
    if command.withdrawals:
        digests = dict.fromkeys(entry.digest for entry in entries if entry.kind == "withdrawal")
        lines = [line for digest in digests for line in export_withdrawals(registry, digest, keys)]
        Path(command.withdrawals).write_bytes(b"".join(line + b"\n" for line in lines))
    if command.json:
        for entry in entries:
            context.emit(entry.to_json())
    elif entries:
        _print_table(entries, with_tags=tag is None)
    else:
        context.say(f"No trusted key signed a promotion or withdrawal in {target.repository}.")
    for entry in entries:
        if entry.kind == "gap":
            context.say(f"{tag} pointed to {entry.digest}, and {GAP}.")
    return 0


def _target(command: History, environ: Mapping[str, str]) -> tuple[Reference, str | None]:
    """Return the repository and the tag, if one is named: as a second argument, behind the repository, or alone."""
    text, tag = command.target, command.tag
    if tag is None and not set("/:") & set(text):
        return parse_repository(default_repository(environ, text)), text
    if tag is None and ":" in text.rpartition("/")[2]:
        reference = parse_reference(text)
        return reference, reference.tag
    return parse_repository(text), tag


def _print_table(entries: Sequence[HistoryEntry], *, with_tags: bool) -> None:
    table = plain_table("TIME", "WHAT", "DIGEST", *(("TAGS",) if with_tags else ()), "BY", "WHY")
    for entry in entries:
        cells = _cells(entry, with_tags=with_tags)
        table.add_row(*(escape(" ".join(to_plain_text(cell).split())) for cell in cells))
    print_table(table)


def _cells(entry: HistoryEntry, *, with_tags: bool) -> Iterator[str]:
    predicate = entry.signed.predicate if entry.signed else None
    yield f"{format_time(predicate.time)[:16].replace('T', ' ')}Z" if predicate else "-"
    yield "cancelled" if entry.in_force is False else entry.kind
    yield entry.digest.partition(":")[2][:DIGEST_DIGITS]
    if with_tags:
        yield ", ".join(entry.tags or ["all"])
    yield predicate.publisher if predicate else "-"
    yield predicate.reason if predicate else "not signed"

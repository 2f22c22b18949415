"""`tfimg history`: the promotions and withdrawals of a tag, or of a repository's newest releases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version
from rich.markup import escape

from tfimg.cli.context import Context
from tfimg.cli.keys import verifying_keys
from tfimg.cli.publisher import default_repository
from tfimg.cli.show import plain_table, print_table
from tfimg.core.text import to_plain_text
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.promotions import (
    ImageStatements,
    Promotion,
    SignedPredicate,
    TagHistoryEntry,
    Withdrawal,
    read_image_statements,
    walk_history,
    withdrawal_envelopes,
)
from tfimg.evidence.statement import format_time
from tfimg.recipe.tags import DIGEST_DIGITS, make_build_tag
from tfimg.registry.protocol import Registry, require_manifest
from tfimg.registry.reference import Reference, parse_reference, parse_repository

Event = dict[str, Any]

BUILD_TAG = re.compile(rf"(?P<identifier>.+)-[0-9a-f]{{{DIGEST_DIGITS}}}")

GAP = "no trusted key signed a promotion to this tag: it was moved without tfimg, or statements were deleted"


def history(context: Context) -> int:
    """`tfimg history REPOSITORY [TAG]`: read what trusted keys signed, newest first."""
    target, tag = _asked(context)
    keys, registry, limit = verifying_keys(context), context.registry(target), context.arguments.limit
    if tag:
        events = list(_tag_events(_steps(registry, tag, keys, limit), tag))
    else:
        builds = _build_tags(registry.list_tags())
        if len(builds) > limit:
            context.say(f"Only the {limit} newest of {len(builds)} builds are read: --limit reads more.")
        events = _repository_events(registry, builds[:limit], keys)[:limit]
    if file := context.arguments.withdrawals:
        digests = dict.fromkeys(event["digest"] for event in events if event["event"] == "withdrawal")
        lines = [one for digest in digests for one in withdrawal_envelopes(registry, digest, keys)]
        Path(file).write_bytes(b"".join(line + b"\n" for line in lines))
    _show(context, events, of_tag=tag is not None)
    if not events:
        context.say(f"No trusted key signed a promotion or withdrawal in {target.repository}.")
    for event in events:
        if event["event"] == "gap":
            context.say(f"{tag} pointed to {event['digest']}, and {GAP}.")
    return 0


def _asked(context: Context) -> tuple[Reference, str | None]:
    """Return the repository, and the tag if one is named: as a word of its own, behind the repository, or alone."""
    text, tag = context.arguments.target, context.arguments.tag
    if tag is None and not set("/:") & set(text):
        return parse_repository(default_repository(context, text)), text
    if tag is None and ":" in text.rpartition("/")[2]:
        reference = parse_reference(text)
        return reference, reference.tag
    return parse_repository(text), tag


def _steps(registry: Registry, tag: str, keys: Sequence[VerifyingKey], limit: int) -> Iterator[TagHistoryEntry]:
    present = require_manifest(registry, tag).digest
    known: dict[str, ImageStatements] = {}

    def read(digest: str) -> ImageStatements:
        if digest not in known:
            known[digest] = read_image_statements(registry, digest, keys, is_thorough=False)
        return known[digest]

    return walk_history(registry.repository, tag, present, read, limit=limit)


def _tag_events(steps: Iterable[TagHistoryEntry], tag: str) -> Iterator[Event]:
    told: set[str] = set()
    for step in steps:
        for withdrawal in step.withdrawals:
            if withdrawal.statement not in told:
                told.add(withdrawal.statement)
                yield _withdrawal(withdrawal, step.digest, in_force=withdrawal in step.in_force)
        if step.promotion:
            yield _promotion(step.promotion, step.digest)
        else:
            yield {"event": "gap", "tag": tag, "digest": step.digest}


def _repository_events(registry: Registry, builds: Sequence[str], keys: Sequence[VerifyingKey]) -> list[Event]:
    events: list[tuple[datetime, Event]] = []
    for tag in builds:
        found = registry.find(tag)
        if found is None or tag != make_build_tag(tag[: -DIGEST_DIGITS - 1], found.digest):
            continue  # a tag of one build that was moved names nothing
        statements = read_image_statements(registry, found.digest, keys, is_thorough=False)
        events += [(one.predicate.time, _promotion(one, found.digest)) for one in statements.promotions]
        events += [
            (one.predicate.time, _withdrawal(one, found.digest, in_force=_holds(one, statements)))
            for one in statements.withdrawals
        ]
    # Events show whole seconds; statements differ in fractions.
    return [event for _, event in sorted(events, key=itemgetter(0), reverse=True)]


def _holds(signed: SignedPredicate[Withdrawal], statements: ImageStatements) -> bool:
    said = signed.predicate
    return any(signed in statements.in_force(said.repository, tag) for tag in said.tags or (None,))


def _build_tags(tags: Iterable[str]) -> list[str]:
    """Return the tags of single builds, those of the newest releases first."""
    found = [(match["identifier"], match[0]) for tag in tags if (match := BUILD_TAG.fullmatch(tag))]
    return [tag for _, tag in sorted(found, key=lambda pair: (_release(pair[0]), pair[1]), reverse=True)]


def _release(identifier: str) -> Version:
    try:
        return Version(identifier.partition("-")[0])
    except InvalidVersion:
        return Version("0")


def _promotion(signed: SignedPredicate[Promotion], digest: str) -> Event:
    return {"event": "promotion", "digest": digest, **_document(signed)}


def _withdrawal(signed: SignedPredicate[Withdrawal], digest: str, *, in_force: bool) -> Event:
    return {"event": "withdrawal", "digest": digest, "in_force": in_force, **_document(signed)}


def _document(signed: SignedPredicate[Promotion] | SignedPredicate[Withdrawal]) -> Event:
    said = signed.predicate
    return {
        **said.model_dump(mode="json"),
        "time": format_time(said.time),
        "statement": signed.statement,
        "signer": signed.signer,
    }


def _show(context: Context, events: Sequence[Event], *, of_tag: bool) -> None:
    if context.arguments.json:
        for event in events:
            context.emit(event)
        return
    if not events:
        return
    table = plain_table("TIME", "WHAT", "DIGEST", *(() if of_tag else ("TAGS",)), "BY", "WHY")
    for event in events:
        cells = _cells(event, of_tag=of_tag)
        table.add_row(*(escape(" ".join(to_plain_text(cell).split())) for cell in cells))
    print_table(table)


def _cells(event: Event, *, of_tag: bool) -> Iterator[str]:
    yield f"{event['time'][:16].replace('T', ' ')}Z" if "time" in event else "-"
    yield str(event["event"] if event.get("in_force", True) else "cancelled")
    yield str(event["digest"]).partition(":")[2][:DIGEST_DIGITS]
    if not of_tag:
        yield ", ".join(map(_tag, event["tags"] or ["all"]))
    yield str(event.get("publisher", "-"))
    yield str(event.get("reason", "not signed"))


def _tag(named: Any) -> str:
    return str(named["tag"] if isinstance(named, dict) else named)

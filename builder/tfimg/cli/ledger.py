"""`tfimg history`, `tfimg rollback`: what a repository's tags were, and one led back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape

from tfimg.cli.context import Context
from tfimg.cli.desk import desk_of, finish_killed, signer_of
from tfimg.cli.keys import verifying_keys
from tfimg.cli.proofs import policy as policy_of
from tfimg.cli.show import plain_table, print_table
from tfimg.errors import UnsignedError, UsageError
from tfimg.evidence.keys import VerifyingKey
from tfimg.publishing.ledger import Entry, Ledger, Step
from tfimg.publishing.ledger_store import read
from tfimg.publishing.rollback import resumed, rolled_back
from tfimg.publishing.runs import folder_of, opened_run
from tfimg.registry.protocol import Registry
from tfimg.registry.reference import Reference, parse, parse_repository
from tfimg.validation.text import plain

Moves = Sequence[tuple[Entry, Step]]

SHOWN = 12
"""Digits of a digest in a table, as in a build's own tag; `rollback --to` takes them."""


def history(context: Context) -> int:
    """`tfimg history REPOSITORY [TAG]`: read the ledger, verify its chain and signatures, hold it against the tags."""
    target, tag = _asked(context)
    named = context.arguments.key or context.environ.get("TFIMG_KEY")
    keys = verifying_keys(context) if named else ()
    registry = context.registry(target)
    ledger = read(registry)
    moves = [
        (entry, step) for entry in ledger.entries for step in entry.draft.steps if tag in (None, step.tag)
    ]
    _show(context, moves, keys)
    _show_now(context, registry, ledger, {step.tag for _, step in moves} | {tag for tag in (tag,) if tag})
    if not moves:
        context.say(f"No entry of {target.repository}'s ledger is about {tag or 'any tag'}: check the name.")
    elif not keys:
        context.say("The chain is whole. Whose entries these are was not looked at: --key FILE.pub does.")
    _require_signed(moves, keys)
    return 0


def rollback(context: Context) -> int:
    """`tfimg rollback REPOSITORY:TAG`: finish what was killed, then lead the tag to what it was, with evidence."""
    image = context.arguments.image
    reference = parse(image if set("/:") & set(image) else f"{_usual(context, image)}:{image}")
    if not reference.tag or reference.digest:
        raise UsageError(f"{reference} names no tag alone.", next_step="Write REGISTRY/NAME:TAG.")
    signer, policy = signer_of(context), policy_of(context)
    folder = folder_of(context.state, reference.repository)
    with opened_run(folder, new=True) as (run, journal, others):
        done = None
        for other in others:  # to go on with the rest of it is for `publish`
            left = desk_of(context, reference, signer, policy, run=other.path.stem, journal=other)
            finish_killed(context, left)
            if step := resumed(left, reference.tag, to=context.arguments.to):
                done = step
                other.note("finished")
        desk = desk_of(context, reference, signer, policy, run=run, journal=journal)
        step = done or rolled_back(desk, reference.tag, policy, to=context.arguments.to)
        journal.note("finished")
    if context.arguments.json:
        context.emit({"event": "rollback", "repository": reference.repository, **asdict(step)})
    else:
        print(f"{reference} leads to {step.identifier} {step.after} again; it led to {step.before}.")
    return 0


def _asked(context: Context) -> tuple[Reference, str | None]:
    """The repository, and the tag if one is named: as a word of its own, behind the repository, or alone."""
    text, tag = context.arguments.target, context.arguments.tag
    if tag is None and not set("/:") & set(text):
        return parse_repository(_usual(context, text)), text
    if tag is None and ":" in text.rpartition("/")[2]:
        reference = parse(text)
        return reference, reference.tag
    return parse_repository(text), tag


def _usual(context: Context, tag: str) -> str:
    """The repository that is meant where none is named: that of TFIMG_REPOSITORY. Raises `UsageError`."""
    if named := context.environ.get("TFIMG_REPOSITORY"):
        return named
    raise UsageError(
        f"{tag} is a tag, and no repository is named.",
        next_step="Write `REGISTRY/NAME TAG`, or name the repository in TFIMG_REPOSITORY.",
    )


def _show(context: Context, moves: Moves, keys: Sequence[VerifyingKey]) -> None:
    if context.arguments.json:
        for entry, step in moves:
            context.emit(_document(entry, step, keys))
        return
    table = plain_table("TIME", "TAG", "FROM", "TO", "IMAGE", "LEVEL", "WHY", "BY", "SIGNED")
    for entry, step in moves:
        draft = entry.draft
        cells = (
            _moment(draft.time), step.tag, _short(step.before), _short(step.after), step.identifier, step.level,
            draft.reason, f"{draft.publisher}, tfimg {draft.version}", _signed(entry, keys),
        )  # fmt: skip
        # Whoever may write to the registry can have written any of it.
        table.add_row(*(escape(" ".join(plain(str(cell)).split())) for cell in cells))
    print_table(table)


def _show_now(context: Context, registry: Registry, ledger: Ledger, tags: Iterable[str]) -> None:
    """Where the tags lead at this moment, where that is not what the ledger says."""
    for tag in sorted(tags):
        found, last = registry.find(tag), ledger.last(tag)
        digest, told = found.digest if found else None, last.after if last else None
        if digest == told:
            continue
        if context.arguments.json:
            context.emit({"event": "moved-elsewhere", "tag": tag, "ledger": told, "registry": digest})
        else:
            print(
                f"{tag} leads to {digest or 'nowhere'}, which no entry says: somebody moved it without tfimg."
            )


def _require_signed(moves: Moves, keys: Sequence[VerifyingKey]) -> None:
    if keys and (others := [entry.digest for entry, _ in moves if not entry.signed_by(keys)]):
        count = len(set(others))
        raise UnsignedError(
            f"{count} of these entries {'is' if count == 1 else 'are'} not signed by your keys: {others[0]}"
            f"{' is the first' if count > 1 else ''}.",
            next_step="Whoever may write to the registry can have written them. Name the other publishers' keys, too, "
            "if you trust them.",
        )


def _document(entry: Entry, step: Step, keys: Sequence[VerifyingKey]) -> dict[str, Any]:
    draft, signer = entry.draft, entry.signed_by(keys)
    return {
        "event": "move",
        **asdict(step),
        "time": draft.time,
        "reason": draft.reason,
        "publisher": draft.publisher,
        "tfimg": draft.version,
        "entry": entry.digest,
        "previous": list(entry.previous),
        "signers": list(entry.envelope.signers) if entry.envelope else [],
        "verified": signer.identifier if signer else None,
    }


def _signed(entry: Entry, keys: Sequence[VerifyingKey]) -> str:
    if entry.envelope is None:
        return "no"
    if not keys:
        return "not looked at"
    return "yes" if entry.signed_by(keys) else "by somebody else"


def _moment(time: str) -> str:
    """A time of the ledger, which is in UTC, as `verify` shows it."""
    return time.replace("+00:00", "Z")


def _short(digest: str | None) -> str:
    return digest.partition(":")[2][:SHOWN] if digest else "-"

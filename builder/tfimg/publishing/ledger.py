"""Who moved which tag from where to where, and when: entries that name those before them by digest.

Entries form a chain; two publishers at once make it fork, and the next entry names both ends. So nothing that was
written is ever left out, and what is taken away from the middle is missed. What is taken away from the end is not:
only the tags themselves can be held against it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from tfimg.errors import TamperedError
from tfimg.evidence.dsse import Envelope
from tfimg.evidence.keys import VerifyingKey
from tfimg.recipe.describe import LEVELS, Level

SCHEMA = 1
"""Version of an entry's JSON."""

Reason = Literal["publish", "rollback"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One tag's move. `before` is None where there was no such tag; `level` is what the image is shown to be."""

    tag: str
    before: str | None
    after: str
    identifier: str
    level: Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """What an entry says. `run` is the same when a killed run writes it again; `publisher` is what he calls himself."""

    run: str
    reason: Reason
    time: str
    publisher: str
    version: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A draft that was written. `digest` is its blob's, `previous` are those that it follows.

    `envelope` has its signature; None where nobody signed it.
    """

    digest: str
    previous: tuple[str, ...]
    draft: Draft
    envelope: Envelope | None = None

    def signed_by(self, keys: Sequence[VerifyingKey]) -> VerifyingKey | None:
        """The first of these keys that signed it; None where none did."""
        return self.envelope.signed_by(keys) if self.envelope else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Every entry, the oldest first."""

    entries: tuple[Entry, ...] = ()

    @property
    def ends(self) -> tuple[str, ...]:
        """The entries that no other follows: what the next one names."""
        named = {digest for entry in self.entries for digest in entry.previous}
        return tuple(entry.digest for entry in self.entries if entry.digest not in named)

    def of(self, tag: str) -> tuple[tuple[Entry, Step], ...]:
        """A tag's moves, the oldest first."""
        return tuple((entry, step) for entry in self.entries for step in entry.draft.steps if step.tag == tag)

    def last(self, tag: str) -> Step | None:
        """A tag's last move."""
        moves = self.of(tag)
        return moves[-1][1] if moves else None

    def level(self, digest: str) -> Level | None:
        """What an image was shown to be when it was last given a tag."""
        found = [step.level for entry in self.entries for step in entry.draft.steps if step.after == digest]
        return found[-1] if found else None

    def has(self, draft: Draft) -> bool:
        """Whether a draft is written: a run that was killed may have done that. It has the same time then, too.

        Who finishes it may call himself otherwise, or have a newer tfimg by now.
        """
        asked = draft.run, draft.time, draft.steps
        return any((entry.draft.run, entry.draft.time, entry.draft.steps) == asked for entry in self.entries)

    def since(self, ends: Sequence[str]) -> tuple[Entry, ...]:
        """The entries that were written since these were the ends: all that they do not follow."""
        known = set(ends)
        for entry in reversed(self.entries):
            if entry.digest in known:
                known.update(entry.previous)
        return tuple(entry for entry in self.entries if entry.digest not in known)


def ordered(entries: Iterable[Entry]) -> Ledger:
    """Each after those that it names; of several at once, the earlier time first.

    Raises `TamperedError` where an entry names one that is not there.
    """
    waiting = {entry.digest: entry for entry in entries}
    for entry in waiting.values():
        if missing := [digest for digest in entry.previous if digest not in waiting]:
            raise TamperedError(
                f"The ledger lacks {', '.join(missing)}, which {entry.digest} follows.",
                next_step="Somebody took it away. Do not trust the tags before you know who.",
            )
    followers: dict[str, list[str]] = {digest: [] for digest in waiting}
    left = {digest: len(entry.previous) for digest, entry in waiting.items()}
    for entry in waiting.values():
        for digest in entry.previous:
            followers[digest].append(entry.digest)
    ready = [(entry.draft.time, digest) for digest, entry in waiting.items() if not left[digest]]
    heapq.heapify(ready)
    found = []
    while ready:
        _, digest = heapq.heappop(ready)
        found.append(waiting[digest])
        for follower in followers[digest]:
            left[follower] -= 1
            if not left[follower]:
                heapq.heappush(ready, (waiting[follower].draft.time, follower))
    return Ledger(entries=tuple(found))


def document(draft: Draft, previous: Sequence[str]) -> dict[str, Any]:
    """A draft as the JSON object that is written."""
    return {
        "schema": SCHEMA,
        "previous": list(previous),
        "run": draft.run,
        "reason": draft.reason,
        "time": draft.time,
        "publisher": draft.publisher,
        "tfimg": draft.version,
        "moves": [{name: getattr(step, name) for name in Step.__dataclass_fields__} for step in draft.steps],
    }


def understood(told: Mapping[str, Any], *, digest: str, envelope: Envelope | None = None) -> Entry:
    """An entry's JSON object → the entry. Raises `TamperedError` for one that is none."""
    try:
        steps = tuple(Step(**move) for move in told["moves"])
        if told["reason"] not in ("publish", "rollback") or not all(step.level in LEVELS for step in steps):
            raise ValueError("it says something that no tfimg says")
        if datetime.fromisoformat(told["time"]).tzinfo is None:
            raise ValueError("its time has no zone")
        draft = Draft(
            run=str(told["run"]), reason=told["reason"], time=told["time"], steps=steps,
            publisher=str(told["publisher"]), version=str(told["tfimg"]),
        )  # fmt: skip
        return Entry(
            digest=digest, previous=tuple(map(str, told["previous"])), draft=draft, envelope=envelope
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TamperedError(
            f"The ledger's entry {digest} cannot be understood: {error}.",
            next_step="A newer tfimg may have written it; else somebody else did.",
        ) from None

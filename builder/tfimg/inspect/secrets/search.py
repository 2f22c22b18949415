"""Search bytes that pass by once for rules and tokens.

Vectorscan (through the `hyperscan` package) looks for all rules in one pass: 3.8 GB/s where Aho-Corasick and RE2 have
0.6 and one search for each word 0.1 (20 rules, TensorFlow's own layer, one core of two). It tells where a match ends;
Python's `re` then says what it is. The rules for tokens have a scanner of their own (`tfimg.inspect.secrets.tokens`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import hyperscan

from tfimg.inspect.secrets.rules import FILES, MAX_MATCH_BYTES, PUBLIC, Kind, Rule
from tfimg.inspect.secrets.tokens import BEFORE, CATALOGUE, LONGEST_TOKEN, TokenSearch, kind_of

WINDOW = 1 << 20
"""Bytes that are looked at together."""

MAX_MATCHES = 1000
"""Matches in one stream that are kept: enough to act on, and nothing that is searched can fill the memory."""

OVERLAP = max(2 * MAX_MATCH_BYTES, LONGEST_TOKEN)
"""Bytes at the end of a window that are looked at again with the next one: a match may go on there."""

_EDGE = b"[A-Za-z0-9]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A rule's match at an offset in bytes. `shown` tells what it is without telling what it says."""

    offset: int
    kind: Kind
    what: str
    shown: str


class Search:
    """Rules, compiled, and tokens. Not thread-safe: Vectorscan's scratch memory is one search's."""

    def __init__(self, rules: Sequence[Rule], tokens: TokenSearch | None = None) -> None:
        self._rules, self._tokens = tuple(rules), tokens
        self._exact = tuple(_exact(rule) for rule in self._rules)
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        caseless = hyperscan.HS_FLAG_CASELESS
        self._database.compile(
            expressions=[rule.pattern for rule in self._rules],
            ids=list(range(len(self._rules))),
            elements=len(self._rules),
            flags=[caseless if rule.caseless else 0 for rule in self._rules],
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides what is found."""
        told = repr((WINDOW, FILES, PUBLIC, self._rules, CATALOGUE if self._tokens else None))
        return hashlib.sha256(told.encode()).hexdigest()

    def matches(self, window: bytes) -> Iterator[Match]:
        """Yield what a window holds, each match once, in no order. Raises `LimitReached`."""
        for start, end, rule in self._tokens.matches(window) if self._tokens else ():
            kind, what = kind_of(rule)
            yield Match(offset=start, kind=kind, what=f"{what} ({rule})", shown=mask(window[start:end]))
        yield from self._rule_matches(window)

    def _rule_matches(self, window: bytes) -> Iterator[Match]:
        seen = set()
        for number, block in self._blocks(window):
            rule, start = self._rules[number], block * MAX_MATCH_BYTES
            around = self._exact[number].finditer(window, max(0, start - MAX_MATCH_BYTES), start + 2 * MAX_MATCH_BYTES)
            for found in around:
                # Behind the block, a match may be cut short here; its own block has it whole.
                if found.start() >= start + MAX_MATCH_BYTES or (number, found.start()) in seen:
                    continue
                seen.add((number, found.start()))
                if not (rule.harmless and rule.harmless.fullmatch(found[0])):
                    yield Match(offset=found.start(), kind=rule.kind, what=rule.what, shown=mask(found[0]))

    def _blocks(self, window: bytes) -> set[tuple[int, int]]:
        """(rule, number of the block of `LONGEST` bytes) where matches end: one that repeats ends at every byte."""
        ends: set[tuple[int, int]] = set()

        def ended(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.add((number, (end - 1) // MAX_MATCH_BYTES))

        self._database.scan(window, match_event_handler=ended)
        return ends


class StreamSearch:
    """A search over a stream, piece by piece, in bounded memory."""

    def __init__(self, search: Search, window: int = WINDOW) -> None:
        self._search, self._size = search, window
        self._found: list[Match] = []
        self.is_complete = True
        self._waiting: list[bytes] = []
        self._length, self._start, self._decided = 0, 0, 0

    def feed(self, piece: bytes) -> None:
        """The stream's next bytes."""
        self._waiting.append(piece)
        self._length += len(piece)
        if self._length >= self._size + OVERLAP:
            # What starts later may go on in the next piece, and be a word with it.
            self._decide(self._length - OVERLAP)

    @property
    def length(self) -> int:
        """Bytes that were fed."""
        return self._start + self._length

    def close(self) -> Sequence[Match]:
        """The stream has ended: what it holds, by offset, `MOST` at most."""
        self._decide(self._length)
        self._waiting, self._length = [], 0
        return sorted(self._found, key=lambda match: match.offset)

    def _decide(self, until: int) -> None:
        """Take the matches that start before `until`, and keep what follows, with the bytes before it that matter."""
        window = b"".join(self._waiting)
        for match in self._search.matches(window):
            if not self._decided <= match.offset < until:
                continue
            self.is_complete = self.is_complete and len(self._found) < MAX_MATCHES
            if self.is_complete:
                self._found.append(replace(match, offset=self._start + match.offset))
        kept = max(0, until - BEFORE)
        self._waiting, self._length = [window[kept:]], len(window) - kept
        self._start, self._decided = self._start + kept, until - kept


def mask(found: bytes) -> str:
    """Enough of a secret to find it by: four characters at most, and how many there are."""
    beginning = re.sub(rb"\s", b" ", found[: min(4, len(found) // 4)]).decode("latin-1")
    return f"{beginning}… ({len(found)} characters)"


def _exact(rule: Rule) -> re.Pattern[bytes]:
    pattern = b"(?:" + rule.pattern + b")" + rule.more
    if rule.whole:
        pattern = b"(?<!" + _EDGE + b")" + pattern + b"(?!" + _EDGE + b")"
    return re.compile(pattern, re.IGNORECASE if rule.caseless else 0)

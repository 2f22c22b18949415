"""Search bytes for rules and tokens in one pass.

Vectorscan (through the `hyperscan` package) searches for all rules at 3.8 GB/s, where Aho-Corasick and RE2 reach 0.6
and one search for each word 0.1 (20 rules, TensorFlow's own layer, one core of two). It returns the end of a match;
Python's `re` then finds the whole match. Tokens have a scanner of their own (`tfimg.inspect.secrets.tokens`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import hyperscan

from tfimg.inspect.secrets.rules import FILES, MAX_MATCH_BYTES, PUBLIC, Kind, Rule
from tfimg.inspect.secrets.tokens import CATALOGUE, CONTEXT_BYTES, MAX_TOKEN_BYTES, find_tokens

WINDOW = 1 << 20
"""Bytes that are searched together."""

MAX_MATCHES = 1000
"""Matches of one stream that are kept, so that memory is bounded."""

OVERLAP = max(2 * MAX_MATCH_BYTES, MAX_TOKEN_BYTES)
"""Bytes at the end of a window that are searched again with the next one: a match may cross the boundary."""

_EDGE = b"[A-Za-z0-9]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A rule's match at an offset in bytes. `shown` describes the match without revealing it."""

    offset: int
    kind: Kind
    what: str
    shown: str


class Search:
    """Compiled rules, with or without tokens. Not thread-safe: Vectorscan's scratch memory belongs to one search."""

    def __init__(self, rules: Sequence[Rule], *, tokens: bool = False) -> None:
        self._rules, self._tokens = tuple(rules), tokens
        self._patterns = tuple(_compile(rule) for rule in self._rules)
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
        """SHA-256 of everything that determines the findings."""
        key = repr((WINDOW, FILES, PUBLIC, self._rules, CATALOGUE if self._tokens else None))
        return hashlib.sha256(key.encode()).hexdigest()

    def matches(self, window: bytes) -> Iterator[Match]:
        """Yield each match in a window once, unordered. Raises `LimitReached`."""
        for start, end, rule in find_tokens(window) if self._tokens else ():
            is_password = rule == "betterleaks.generic-credential-uri"
            kind: Kind = "credential" if is_password else "token"
            what = f"{'a password in an address' if is_password else 'a token'} ({rule})"
            yield Match(offset=start, kind=kind, what=what, shown=mask(window[start:end]))
        yield from self._rule_matches(window)

    def _rule_matches(self, window: bytes) -> Iterator[Match]:
        seen = set()
        for number, block in self._blocks(window):
            rule, start = self._rules[number], block * MAX_MATCH_BYTES
            first, last = max(0, start - MAX_MATCH_BYTES), start + 2 * MAX_MATCH_BYTES
            for found in self._patterns[number].finditer(window, first, last):
                # A match behind the block may be cut off here; its own block contains all of it.
                if found.start() >= start + MAX_MATCH_BYTES or (number, found.start()) in seen:
                    continue
                seen.add((number, found.start()))
                if not (rule.harmless and re.fullmatch(rule.harmless, found[0])):
                    yield Match(offset=found.start(), kind=rule.kind, what=rule.what, shown=mask(found[0]))

    def _blocks(self, window: bytes) -> set[tuple[int, int]]:
        """Return rules and blocks of `MAX_MATCH_BYTES` with ends of matches: a repetition ends at every byte."""
        ends: set[tuple[int, int]] = set()

        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.add((number, (end - 1) // MAX_MATCH_BYTES))

        self._database.scan(window, match_event_handler=on_match)
        return ends


class StreamSearch:
    """A search over a stream, piece by piece, in bounded memory."""

    def __init__(self, search: Search, window: int = WINDOW) -> None:
        self._search, self._window = search, window
        self._found: list[Match] = []
        self.is_complete = True
        self._pending: list[bytes] = []
        self._length, self._start, self._searched = 0, 0, 0

    def feed(self, piece: bytes) -> None:
        """Add the stream's next bytes."""
        self._pending.append(piece)
        self._length += len(piece)
        if self._length >= self._window + OVERLAP:
            # A later match may continue in the next piece.
            self._search_until(self._length - OVERLAP)

    @property
    def length(self) -> int:
        """Number of bytes that were fed."""
        return self._start + self._length

    def close(self) -> Sequence[Match]:
        """End the stream and return its matches by offset, `MAX_MATCHES` at most."""
        self._search_until(self._length)
        self._pending, self._length = [], 0
        return sorted(self._found, key=lambda match: match.offset)

    def _search_until(self, until: int) -> None:
        """Keep the matches that start before `until`, and the bytes after it with their context."""
        window = b"".join(self._pending)
        for match in self._search.matches(window):
            if not self._searched <= match.offset < until:
                continue
            self.is_complete = self.is_complete and len(self._found) < MAX_MATCHES
            if self.is_complete:
                self._found.append(replace(match, offset=self._start + match.offset))
        rest = max(0, until - CONTEXT_BYTES)
        self._pending, self._length = [window[rest:]], len(window) - rest
        self._start, self._searched = self._start + rest, until - rest


def mask(secret: bytes) -> str:
    """Return at most four characters of a secret, and its length."""
    beginning = re.sub(rb"\s", b" ", secret[: min(4, len(secret) // 4)]).decode("latin-1")
    return f"{beginning}… ({len(secret)} characters)"


def _compile(rule: Rule) -> re.Pattern[bytes]:
    pattern = b"(?:" + rule.pattern + b")" + rule.more
    if rule.whole:
        pattern = b"(?<!" + _EDGE + b")" + pattern + b"(?!" + _EDGE + b")"
    return re.compile(pattern, re.IGNORECASE if rule.caseless else 0)

"""Severity of advisories: the score of a CVSS vector, else the word of the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfimg.advisories.schema import Advisory, Affected

RATINGS = ("unknown", "none", "low", "medium", "high", "critical")
"""Qualitative ratings (CVSS 3.1, section 5), the lowest first; `unknown` means that the advisory has no rating."""

WORDS = {"moderate": "medium", "important": "high", "unimportant": "low"}
"""Words of databases for the same: GitHub's, Red Hat's and Debian's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    """Severity of a defect: `score` and `vector` are None where no CVSS vector can be read."""

    word: str = "unknown"
    score: float | None = None
    vector: str | None = None

    @property
    def order(self) -> tuple[int, float]:
        """A key that sorts the gravest last."""
        return RATINGS.index(self.word), self.score or 0.0

    def __str__(self) -> str:
        return f"{self.word} {self.score}" if self.score is not None else self.word


def rate(records: Iterable[tuple[Advisory, Affected]]) -> Rating:
    """Return the gravest rating that advisories about one defect give it; a CVSS score wins over words."""
    found = [rating for advisory, affected in records for rating in _list_ratings(advisory, affected)]
    scored = [rating for rating in found if rating.score is not None]
    return max(scored or found, key=lambda rating: rating.order, default=Rating())


def _list_ratings(advisory: Advisory, affected: Affected) -> Iterator[Rating]:
    # The severity of a package replaces that of the whole advisory.
    for severity in affected.severity or advisory.severity:
        if rating := _score(severity.score):
            yield rating
    for values in (affected.database_specific, affected.ecosystem_specific, advisory.database_specific):
        if word := _find_word(values or {}):
            yield Rating(word=word)


def _score(vector: str) -> Rating | None:
    """Return the rating of a CVSS vector of version 2, 3 or 4; None for another text."""
    from cvss import CVSS2, CVSS3, CVSS4
    from cvss.exceptions import CVSSError

    try:
        if vector.startswith("CVSS:4"):
            found = CVSS4(vector)
            score, word = found.base_score, found.severity
        else:
            found = CVSS3(vector) if vector.startswith("CVSS:3") else CVSS2(vector)
            score, word = found.base_score, found.severities()[0]
    except (CVSSError, ArithmeticError, LookupError, ValueError):
        return None
    return Rating(word=_normalize(word), score=float(score), vector=vector)


def _find_word(values: Mapping[str, Any]) -> str | None:
    for name in ("severity", "urgency"):
        value = values.get(name)
        if isinstance(value, str) and (word := _normalize(value)) != RATINGS[0]:
            return word
    return None


def _normalize(word: str) -> str:
    lower = word.lower()[:20]
    name = WORDS.get(lower, lower)
    return name if name in RATINGS else RATINGS[0]

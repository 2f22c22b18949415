"""Find known failures in a text: the cause, the lines that prove it, the fix, and who can correct it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from known_issues import KNOWN_ISSUES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from known_issues import KnownIssue

HARMLESS = "harmless"
# A person reads the proof: a few lines, of each as much as a terminal shows in three.
PROOF_LINES, PROOF_WIDTH = 3, 240
# Colours of a terminal.
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PATTERNS = {one.name: tuple(re.compile(pattern, re.MULTILINE) for pattern in one.patterns) for one in KNOWN_ISSUES}


@dataclass(frozen=True)
class Explanation:
    """A known failure that was recognised; `proof` are the lines of the text that match."""

    issue: str
    fault: str
    cause: str
    proof: str
    fix: str

    def to_json(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return asdict(self)


def explain(text: str) -> list[Explanation]:
    """Return the known failures in a text: the likeliest root cause first, harmless messages last."""
    clean = COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    proofs = {one.name: _proof(one, clean) for one in KNOWN_ISSUES}
    found = [one for one in KNOWN_ISSUES if proofs[one.name]]
    consequences = {name for one in found for name in one.leads_to}
    causes = [one for one in found if one.name not in consequences]
    return [
        Explanation(one.name, one.fault, one.cause, proofs[one.name], one.fix)
        for one in sorted(causes, key=lambda one: one.fault == HARMLESS)
    ]


def _proof(issue: KnownIssue, text: str) -> str:
    lines = list(dict.fromkeys(_lines(issue, text)))
    return "\n".join(lines[:PROOF_LINES])


def _lines(issue: KnownIssue, text: str) -> Iterator[str]:
    """Yield the lines of each pattern's first match."""
    for pattern in PATTERNS[issue.name]:
        match = pattern.search(text)
        if match:
            first = text.rfind("\n", 0, match.start()) + 1
            last = text.find("\n", match.end())
            yield from _shortened(text, first, match.start(), len(text) if last < 0 else last)


def _shortened(text: str, first: int, start: int, last: int) -> Iterator[str]:
    """Yield the lines between two positions, long ones cut around `start`."""
    place = first
    for line in text[first:last].split("\n"):
        begin = max(0, min(start - place, len(line)) - PROOF_WIDTH // 3) if len(line) > PROOF_WIDTH else 0
        cut = line[begin : begin + PROOF_WIDTH].strip()
        place += len(line) + 1
        if cut:
            yield f"{'…' if begin else ''}{cut}{'…' if begin + PROOF_WIDTH < len(line) else ''}"


def add_explanations(end: dict[str, Any]) -> dict[str, Any]:
    """Return the event with `explained`: the known failures in its reason, output and what it measured."""
    if end["outcome"] in ("passed", "skipped"):
        return {**end, "explained": []}
    text = "\n".join([end["reason"] or "", *end["output"], *_texts(end["measured"])])
    return {**end, "explained": [one.to_json() for one in explain(text) if one.fault != "harmless"]}


def _texts(value: Any) -> list[str]:
    """Return the strings in what a check measured, at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []

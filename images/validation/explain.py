"""Find known failures in a text: the cause, the lines that prove it, the fix, and who can correct it."""

from __future__ import annotations

import json
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
# Of the distinct lines of a log, so much of the start and of the end is searched.
MAX_PART = 1 << 20
# Colours and cursor movements of a terminal.
ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,40}[A-Za-z]")
# What programs write before each line of another one's log; the long one is a time, of CI jobs and docker logs -t.
PREFIXES = re.compile(
    r"^(?:"
    r"[ \t]{0,8}>[ \t]|"  # a quotation
    r"[\w.@-]{1,80} {1,60}\| ?|"  # Compose, Swarm
    r"\[[\w./-]{1,200}\] |"  # kubectl logs --prefix
    r"[^\t\n]{1,100}\t[^\t\n]{1,100}\t(?=\d{4}-)|"  # gh run view --log
    r"\[?\d{4}[/-]\d\d[/-]\d\d(?:[T ]|, )\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d| UTC)?\]?[\t |]+|"
    r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]? {1,4}|"  # Jenkins
    r"\d\d[OE]\+? ?|"  # GitLab, after its timestamp
    r"(?:stdout|stderr) [FP] |"  # files of containerd
    r"#\d{1,4} (?:\d{1,6}\.\d{1,3} )?|\d{1,6}\.\d{3} |"  # BuildKit
    r"\[\d{1,5},\d{1,5}\]<std(?:err|out)>: ?|\d{1,5}: (?=\D)|"  # mpirun, srun --label
    r"\{[\w.]{1,60}:\d{1,6}\} [A-Z]{4,8} - |"  # Airflow
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )?[\w.-]{1,100} [\w./-]{1,60}\[\d{1,9}\]: |"  # journalctl
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,100} [\w./-]{1,60}: "  # syslog
    r"){1,5}",
    re.MULTILINE,
)
# Hexadecimal ones too: addresses and digests.
NO_NUMBERS = {ord(digit): None for digit in "0123456789abcdef"}
# Where JSON lines of containers, collectors and clouds have the message.
MESSAGE_KEYS = ("log", "message", "msg", "MESSAGE", "textPayload", "line", "text")
PATTERNS = {one.name: tuple(re.compile(pattern, re.MULTILINE) for pattern in one.patterns) for one in KNOWN_ISSUES}
NEEDS = {one.name: re.compile(one.needs) for one in KNOWN_ISSUES if one.needs}
DONE = {one.name: re.compile(one.done) for one in KNOWN_ISSUES if one.done}


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
    """Return the known failures in a text in the order of the text.

    Secondary ones come after the others, and harmless messages last.
    """
    plain = _read(text)
    found: dict[str, tuple[KnownIssue, list[re.Match[str]]]] = {}
    for one in KNOWN_ISSUES:
        matches = [match for match in (pattern.search(plain) for pattern in PATTERNS[one.name]) if match]
        if matches and (one.name not in NEEDS or NEEDS[one.name].search(plain)):
            found[one.name] = (one, matches)
    consequences = {name for one, _ in found.values() for name in one.leads_to}
    causes = [(one, matches) for name, (one, matches) in found.items() if name not in consequences]
    return [
        Explanation(one.name, one.fault, one.cause, _proof(matches, plain), _fix(one, plain))
        for one, matches in sorted(
            causes,
            key=lambda pair: (pair[0].fault == HARMLESS, pair[0].secondary, min(match.start() for match in pair[1])),
        )
    ]


def _fix(issue: KnownIssue, text: str) -> str:
    done = DONE.get(issue.name)
    return issue.then if done and done.search(text) else issue.fix


def _read(text: str) -> str:
    """Return a log as the program wrote it: without what a notebook, a collector or a terminal added, or repeated."""
    text = ESCAPES.sub("", _notebook_outputs(text)) if "\x1b" in text or text[:1] == "{" else text
    lines = _distinct(text.replace("\r\n", "\n").replace("\r", "\n"))
    return "\n".join(map(_json_message, PREFIXES.sub("", lines).split("\n")))


def _notebook_outputs(text: str) -> str:
    """Return what the cells of a saved notebook printed; other texts as they are."""
    if '"cells"' not in text:
        return text
    try:
        cells = json.loads(text)["cells"]
        return "\n".join(_text(output) for cell in cells for output in cell.get("outputs", ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text


def _text(output: Any) -> str:
    """Return the text of one output of a notebook's cell."""
    data = output.get("data") or {}
    parts = [output.get("text"), data.get("text/plain"), output.get("traceback")]
    if output.get("ename"):
        parts.append(f"{output['ename']}: {output.get('evalue')}")
    return "\n".join(part if isinstance(part, str) else "".join(map(_line, part)) for part in parts if part)


def _line(line: Any) -> str:
    return str(line) if str(line).endswith("\n") else f"{line}\n"


def _distinct(text: str) -> str:
    """Return a long text without lines that differ from an earlier one in numbers only, such as those of progress."""
    if len(text) <= MAX_PART:
        return text
    first: dict[str, str] = {}
    for line, key in zip(text.split("\n"), text.translate(NO_NUMBERS).split("\n")):
        first.setdefault(key, line)
    kept = "\n".join(first.values())
    return kept if len(kept) <= 2 * MAX_PART else kept[:MAX_PART] + "\n" + kept[-MAX_PART:]


def _json_message(line: str) -> str:
    """Return the message of a JSON line; other lines as they are."""
    if line[:1] != "{" or not line.rstrip().endswith("}"):
        return line
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    nested = record.get("jsonPayload")
    for key in MESSAGE_KEYS:
        message = (nested if isinstance(nested, dict) else record).get(key)
        if isinstance(message, str) and message:
            return PREFIXES.sub("", ESCAPES.sub("", message.rstrip("\n")))
    return line


def _proof(matches: list[re.Match[str]], text: str) -> str:
    lines = list(dict.fromkeys(line for match in matches for line in _lines(match, text)))
    return "\n".join(lines[:PROOF_LINES])


def _lines(match: re.Match[str], text: str) -> Iterator[str]:
    """Yield the lines of a match, long ones cut around its start."""
    place = text.rfind("\n", 0, match.start()) + 1
    last = text.find("\n", match.end())
    for line in text[place : len(text) if last < 0 else last].split("\n"):
        begin = max(0, min(match.start() - place, len(line)) - PROOF_WIDTH // 3) if len(line) > PROOF_WIDTH else 0
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

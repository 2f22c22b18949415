"""Find known failures in a text: the cause, the lines that prove it, the fix, and who can correct it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from html import unescape
from typing import TYPE_CHECKING

from known_issues import KNOWN_ISSUES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from known_issues import KnownIssue

HARMLESS, GREEN = "harmless", ("passed", "skipped")
# A person reads the proof: a few lines, of each as much as a terminal shows in three.
PROOF_LINES, PROOF_WIDTH = 3, 240
# Of the distinct lines of a log, so much of the start and of the end is searched.
MAX_PART = 1 << 19  # two seconds on an idle machine
# Colours and cursor movements of a terminal, also those that lost the escape character in a paste.
ESCAPES = re.compile(r"(?:\x1b|\^\[|\\(?:x1b|033|u001b))\[[0-9;?]{0,40}[A-Za-z]|\[\d{1,2}(?:;\d{1,3}){0,4}m")
# What programs write before each line of another one's log; the long one is a time, of CI jobs and docker logs -t.
PREFIXES = re.compile(
    r"(?:"
    r"[ \t]{0,8}[>│┃|][ \t]|"  # a quotation, a frame
    r"\[\d{1,9}\] \[[A-Z]{4,8}\] |[A-Z]{4,8} {0,5}\| [\w.<>:]{1,120} - |"  # gunicorn, loguru
    r"[\w.@-]{1,80} {1,60}\| ?|"  # Compose, Swarm
    r"\[[\w./-]{1,200}\] |"  # kubectl logs --prefix
    r"[^\t\n]{1,100}\t[^\t\n]{1,100}\t(?=\d{4}-)|"  # gh run view --log
    r"\[?\d{4}[/-]\d\d[/-]\d\d(?:[T ]|, )\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d| UTC|"
    r": [A-Z]{4,8}/[\w-]{1,40})?\]?[\t |]+|"
    r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]? {1,4}|"  # Jenkins
    r"\d\d[OE]\+? ?|"  # GitLab, after its timestamp
    r"(?:stdout|stderr) [FP] |"  # files of containerd
    r"#\d{1,4} (?:\d{1,6}\.\d{1,3} )?|\d{1,6}\.\d{3} |"  # BuildKit
    r"\[\d{1,5}(?:,\d{1,5})?\]<std(?:err|out)>: ?|\d{1,5}: (?=\D)|"  # mpirun, srun --label
    r"\((?:[\w.:-]{1,80} )?pid=\d{1,9}(?:, ip=[\d.]{7,15})?\) |"  # Ray
    r"\d{1,6}\.\d{1,2}s[\t ]\d{1,6}[\t ]|E {3}(?=\S)|"  # Kaggle, pytest
    r'\{\w{1,40}="[^}\n]{1,300}\} |'  # Loki
    r"\{[\w.]{1,60}:\d{1,6}\} [A-Z]{4,8} - |"  # Airflow
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )?(?:[\w.-]{1,100} )?[\w./-]{1,60}\[[\w.]{1,40}\]: |"  # journalctl
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,100} [\w./-]{1,60}: |"  # syslog
    r"\[ {0,6}\d{1,9}\.\d{1,9}\] "  # dmesg
    r"){1,5}"
)
# Of a prefix, whose line it is, where several write in turns: a service, a pod, a rank.
WRITERS = re.compile(
    r"(?<![\w.@-])(?=[^\s|]{0,79}[a-z])[\w.@-]{1,80} {1,60}\||\[[\w.-]{1,100}/[\w./-]{1,100}\]|"
    r"\[\d{1,5}(?:,\d{1,5})?\]<|^\d{1,5}: |pid=\d{1,9}"
)
# Notes of tfimg about what a build survived: they quote failures that are no causes of what comes after them.
NOTES = re.compile(
    r"(?:Base: (?:official|look-alike|bootstrapped) \S+, because |The configuration of \S+ was not read: |Not used: |"
    r"Level \w+ is the highest that can be proven here\.|\S+ has changed since \S+ was proven on |"
    r"No container engine answers at [^\n]{1,300} A plan needs none;)"
)
# The end of a check in a log of tfimg, for people and as JSON.
CHECK = re.compile(
    r"(?:check {1,8}\d{1,6}\.\d s {1,4}|"
    r'\{"event": "check", (?:"(?:identifier|check)": "[^"]{1,200}", ){1,2}"outcome": ")'
    r"(passed|skipped|failed|crashed|timed-out)\b"
)
# Quotation marks and line ends in a string that a program quoted, once or several times.
QUOTED_MARK = re.compile(r"""\\{1,8}(["'])""")
QUOTED_END = re.compile(r"""\\{1,8}n(?=[ \tA-Z'"\[\\]|$|[a-z]\w{0,40}\.)""")
QUOTATION_MARKS = str.maketrans("\u2018\u2019\u201c\u201d\u00a0", "''\"\" ")
# Hexadecimal ones too: addresses and digests.
NO_NUMBERS = {ord(digit): None for digit in "0123456789abcdef"}
# Where JSON lines of containers, collectors and clouds have the message.
MESSAGE_KEYS = ("log", "message", "msg", "MESSAGE", "textPayload", "line", "text")


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


# Compiled when they are needed: the suite of a sound image starts a tenth of a second earlier.
compiled = lru_cache(maxsize=None)(re.compile)


def explain(text: str) -> list[Explanation]:
    """Return the known failures in a text in the order of the text.

    Secondary ones come after the others, and harmless messages last; a generic one is left out if there is another.
    """
    lines = _read(text)
    plain = "\n".join(line for _, line in lines)
    found: dict[str, tuple[KnownIssue, list[re.Match[str]]]] = {}
    for one in KNOWN_ISSUES:
        matches = [
            match for match in (compiled(pattern, re.MULTILINE).search(plain) for pattern in one.patterns) if match
        ]
        if matches and (not one.needs or compiled(one.needs).search(plain)):
            found[one.name] = (one, matches)
    consequences = {name for one, _ in found.values() for name in one.leads_to}
    causes = [(one, matches) for name, (one, matches) in found.items() if name not in consequences]
    specific = [pair for pair in causes if not pair[0].generic]
    if any(one.fault != HARMLESS for one, _ in specific):
        causes = specific
    return [
        Explanation(one.name, one.fault, one.cause, _proof(matches, plain), _fix(one, plain))
        for one, matches in sorted(
            causes,
            key=lambda pair: (
                pair[0].fault == HARMLESS,
                pair[0].secondary,
                min((lines[plain.count("\n", 0, match.start())][0], match.start()) for match in pair[1]),
            ),
        )
    ]


def _fix(issue: KnownIssue, text: str) -> str:
    return issue.then if issue.done and compiled(issue.done).search(text) else issue.fix


def _read(text: str) -> list[tuple[int, str]]:
    """Return the lines as the program wrote them, each with its number, those of one writer together.

    What a notebook, a collector or a terminal added, quoted or repeated is left out.
    """
    text = ESCAPES.sub("", _json_texts(text)).translate(QUOTATION_MARKS)
    groups: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(_distinct(text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")):
        prefix = PREFIXES.match(line)
        writer = WRITERS.search(prefix[0]) if prefix else None
        message = QUOTED_MARK.sub(r"\1", _json_message(line[prefix.end() if prefix else 0 :]))
        parts = QUOTED_END.sub("\n", message).split("\n")
        groups.setdefault(writer[0] if writer else "", []).extend((number, unescape(part)) for part in parts)
    return _judged([pair for group in groups.values() for pair in group if not NOTES.match(pair[1])])


def _judged(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the lines of a log of the suite from the first check on that did not pass, without those that did.

    What came before was survived: the suite ran.
    """
    checks = [CHECK.match(line) for _, line in lines]
    first = next((n for n, check in enumerate(checks) if check and check[1] not in GREEN), None)
    if first is None:
        return lines
    return [line for line, check in zip(lines[first:], checks[first:]) if not check or check[1] not in GREEN]


def _json_texts(text: str) -> str:
    """Return what the cells of a saved notebook printed, or the messages in a JSON document before the document."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        document = json.loads(text)
        if isinstance(document, dict) and "cells" in document:
            return "\n".join(_text(output) for cell in document["cells"] for output in cell.get("outputs", ()))
        return "\n".join([*_messages(document), text])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text


def _messages(value: Any) -> Iterator[str]:
    """Yield the messages of the records in a JSON document."""
    if isinstance(value, dict):
        yield from (value[key] for key in MESSAGE_KEYS if isinstance(value.get(key), str))
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _messages(item)


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
            message = ESCAPES.sub("", message.rstrip("\n"))
            prefix = PREFIXES.match(message)
            return message[prefix.end() if prefix else 0 :]
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

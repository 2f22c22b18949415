"""Known issues, from the table that `tfimg explain` reads."""

from __future__ import annotations

import re
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from generator.markdown import escape
from generator.program import suite
from tfimg.recipe.support import make_issue_url

SECTIONS = {
    "Permission denied, users, files": ("users",),
    "GPU not found, driver, memory": ("host", "device"),
    "An import fails": ("image", "companions"),
    "Engine, registry, network": ("engines", "network"),
    "Models and data": ("models",),
    "Several workers": ("cluster",),
    "Harmless messages": ("harmless",),
}
"""Section of the page → modules of `known_issues`: what users meet most often comes first."""

CORRECTED_IN = {"image": "the image", "host": "the machine", "request": "the request or program"}
"""Fault → where it is corrected."""


def known_issues() -> str:
    """Return the known issues under the messages by which they are recognised, each with an anchor of its name."""
    return "\n".join(f"## {title}\n\n" + "\n".join(map(_issue, some)) for title, some in _read_sections().items())


def see_error() -> str:
    """Return every message that is recognised, sorted, with its cause and a link to what helps."""
    return "\n".join(
        f"## {title}\n\n" + "\n".join(map(_lines, sorted(some, key=_first_letters)))
        for title, some in _read_sections().items()
    )


def _read_sections() -> dict[str, list[Any]]:
    return {
        title: [one for module in modules for one in getattr(suite(f"known_issues.{module}"), module.upper())]
        for title, modules in SECTIONS.items()
    }


def _first_letters(issue: Any) -> str:
    return re.sub(r"\W", "", read_message(issue.patterns[0])).lower()


def _lines(issue: Any) -> str:
    """Return the messages of an issue: a heading, then what else is recognised, the cause, and the link."""
    first, *others = dict.fromkeys(map(read_message, issue.patterns))
    also = f"{escape(' · '.join(others))}\n\n" if others else ""
    return f"### {escape(first)}\n\n{also}{escape(issue.cause)} [What helps](how-to/troubleshoot.md#{issue.name})\n"


def _issue(issue: Any) -> str:
    issues = re.findall(r"[\w.-]+/[\w.-]+#\d+", issue.source)
    sources = ", ".join(f"[{escape(issue)}]({make_issue_url(issue)})" for issue in issues)
    consequences = ", ".join(f"[{name}](#{name})" for name in issue.leads_to)
    messages = dict.fromkeys(map(read_message, issue.patterns[1:]))
    where = f" It is corrected in {CORRECTED_IN[issue.fault]}." if issue.fault in CORRECTED_IN else ""
    return (
        f"({issue.name})=\n\n### {escape(read_message(issue.patterns[0]))}\n\n"
        + (f"Also: {escape(' · '.join(messages))}\n\n" if messages else "")
        + f"**Cause** (`{issue.name}`): {escape(issue.cause)}{where}\n\n**Fix:** {escape(issue.fix)}\n\n"
        + (f"**If the log shows that this is done:** {escape(issue.then)}\n\n" if issue.then else "")
        + (f"Its consequences: {consequences}.\n\n" if consequences else "")
        + (f"Reported in {sources}.\n\n" if sources else "")
    )


def read_message(pattern: str) -> str:
    """Return the message that a pattern recognises: its first alternatives without options, `…` for what varies."""
    message = re.sub(r"…[… ]*…", "…", _read(parser.parse(pattern)))
    return " ".join(message.split()).strip(" :(")


def _read(parsed: Any) -> str:
    found = ""
    for kind, value in parsed:
        if kind is kinds.LITERAL:
            found += chr(value)
        elif kind is kinds.SUBPATTERN:
            found += _read(value[3])
        elif kind is kinds.BRANCH:
            branches = [_read(branch) for branch in value[1]]
            found += branches[0] if all(branches) else ""
        elif kind is kinds.IN:
            letters = [one for name, one in value if name is kinds.LITERAL]
            is_space = value[0] == (kinds.CATEGORY, kinds.CATEGORY_SPACE)
            found += chr(letters[0]) if len(letters) == len(value) else " " if is_space else "…"
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            least, most, repeated = value
            text = _read(repeated)
            if most == 1:
                found += text * least
            else:
                found += " " if text.isspace() else "…"
        elif kind not in (kinds.AT, kinds.ASSERT, kinds.ASSERT_NOT):
            found += "…"
    return found

"""Known failures, from the table that `tfimg explain` reads."""

from __future__ import annotations

import re
from typing import Any

from generator.markdown import block, escape, links
from generator.program import suite
from tfimg.recipe.support import make_issue_url

TITLES = {
    "host": "Causes on the machine",
    "image": "Causes in the image",
    "request": "Causes in the request",
    "harmless": "Harmless messages",
}
"""Fault → section of the page."""


def known_issues() -> str:
    """Return the known failures by who can correct them, each with an anchor of its name."""
    known: tuple[Any, ...] = suite("known_issues").KNOWN_ISSUES
    by_title = {title: [one for one in known if one.fault == fault] for fault, title in TITLES.items()}
    return "\n".join(
        f"## {title}\n\n{links({one.name: one.name for one in some})}" + "\n".join(map(_issue, some))
        for title, some in by_title.items()
    )


def _issue(issue: Any) -> str:
    issues = re.findall(r"[\w.-]+/[\w.-]+#\d+", issue.source)
    sources = ", ".join(f"[{escape(issue)}]({make_issue_url(issue)})" for issue in issues)
    consequences = ", ".join(f"[{name}](#{name})" for name in issue.leads_to)
    return (
        f"({issue.name})=\n\n### {issue.name}\n\n"
        f"**Cause:** {escape(issue.cause)}\n\n**Fix:** {escape(issue.fix)}\n\n"
        + (f"**If the log shows that this is done:** {escape(issue.then)}\n\n" if issue.then else "")
        + (f"Its consequences: {consequences}.\n\n" if consequences else "")
        + (f"Reported in {sources}.\n\n" if sources else "")
        + f"Recognised by:\n\n{{.wrap}}\n{block(issue.patterns, 'text')}"
        + (f"\n\nif the log has this too:\n\n{{.wrap}}\n{block((issue.needs,), 'text')}" if issue.needs else "")
    )

"""Reference of the suite's checks, from its own table."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from generator.markdown import escape, links
from generator.program import suite
from tfimg.matrix.devices import DEVICES


def checks() -> str:
    """Return the checks by group, with all that the table states."""
    found: Mapping[str, Any] = suite("checks").CHECKS
    order = list(dict.fromkeys(map(_group, found)))
    by_group = groupby(sorted(found, key=lambda name: order.index(_group(name))), _group)
    return "\n".join(_section(group, {name: found[name] for name in names}) for group, names in by_group)


def _section(group: str, found: Mapping[str, Any]) -> str:
    targets = {name.partition(".")[2]: name for name in found}
    return f"## {group}\n\n{links(targets)}" + "\n".join(_check(name, check) for name, check in found.items())


def _group(name: str) -> str:
    return name.partition(".")[0]


def _check(name: str, check: Any) -> str:
    paragraphs = (inspect.getdoc(check.run) or "").split("\n\n")
    facts = "\u00a0· ".join(f"{title}: {escape(value)}" for title, value in _facts(check) if value)
    text = "\n\n".join(map(escape, paragraphs))
    return f"({name})=\n\n### {name}\n\n{text}\n\n{{.facts}}\n{facts}\n"


def _facts(check: Any) -> Iterator[tuple[str, str]]:
    yield "bound", check.bound
    if len(check.devices) < len(DEVICES):
        yield "only images for", ", ".join(DEVICES[device].title for device in check.devices)
    yield "only images with", ", ".join(check.packages)
    yield "needs", "" if check.level == "linked" else f"the device{'' if check.accelerators == 1 else ', two of them'}"
    yield "profile", check.profile
    yield "limit", f"{check.seconds:g} s"
    yield "runs", "in a process of its own" if check.isolated else ""

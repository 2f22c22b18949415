"""Markdown from text that was not written as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"[\\*_\[\]<>|$~&#]")


def escape(text: str) -> str:
    """Return text as Markdown of one line. Only backquotes keep their meaning: they mark code."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(
        part.replace("|", r"\|") if part.startswith("`") else _SPECIAL.sub(lambda found: f"\\{found[0]}", part)
        for part in parts
    )


def code(text: str) -> str:
    """Return text as code in a cell of a table."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}".replace("|", r"\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], style: str = ".stack") -> str:
    """Return a table whose cells are Markdown. On a phone each row becomes a paragraph (`site.css`)."""
    lines = (heads, ["---"] * len(heads), *rows)
    return f"{{{style}}}\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def links(targets: Mapping[str, str]) -> str:
    """Return links to anchors of the same page by their text, as a paragraph."""
    return "{.links}\n" + "\u00a0· ".join(f"[{escape(text)}](#{anchor})" for text, anchor in targets.items()) + "\n\n"


def block(lines: Iterable[str], language: str) -> str:
    """Return a block of code."""
    return f"```{language}\n" + "".join(f"{line}\n" for line in lines) + "```\n"

"""What the site needs beside its text: the order of pages, wide pages, and the list of pages for language models."""

from __future__ import annotations

import re
from pathlib import Path


def toctree(argument: str) -> str:
    """Return the order of pages in the navigation: `first second`, or `A caption: first second`.

    It is hidden. Pages list their links as Markdown, which GitHub renders too.
    """
    caption, _, names = argument.rpartition(": ")
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    entries = (f"{name.capitalize()} <{name}>" if caption == "Commands" else name for name in names.split())
    return f"```{{toctree}}\n{options}" + "".join(f"{entry}\n" for entry in entries) + "```\n"


def wide_page() -> str:
    """Return the style of a page whose table needs the whole width."""
    style = Path(__file__).with_name("wide-page.css").read_text(encoding="utf-8")
    return f"```{{raw}} html\n<style>\n{style}</style>\n```\n"


def style(name: str) -> str:
    """Return the class of the next paragraph or list, for `site.css`."""
    return f"{{.{name}}}"


def session() -> str:
    """Return the picture of a terminal in the colours of the page, whichever theme its button chose."""
    alternative = (
        "A terminal: tfimg refuses Python 3.12 for TensorFlow 2.15 and names what works, builds an image that passes "
        "its checks, and computes a sum in it."
    )
    return "\n".join(
        f"```{{image}} _static/session-{theme}.svg\n:alt: {alternative}\n:class: only-{theme}\n:width: 677px\n```\n"
        for theme in ("light", "dark")
    )


def write_list_of_pages(source: Path, target: Path) -> None:
    """Write `llms.txt` into a built site, with links to its pages (https://llmstxt.org)."""
    text = (source / "llms.txt").read_text(encoding="utf-8")
    (target / "llms.txt").write_text(re.sub(r"(?<=\w)\.md\)", ".html)", text), encoding="utf-8")

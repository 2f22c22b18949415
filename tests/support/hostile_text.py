"""Text with which a registry, an index or an image would steer a terminal, and a check that none of it arrives."""

from __future__ import annotations

import argparse
import unicodedata
from collections.abc import Iterator

from tfimg.cli.parser import build_parser

HOSTILE = (
    "before"
    "\x1b]0;title\x07"  # the window's title
    "\x1b]8;;https://evil.example.test\x1b\\link\x1b]8;;\x1b\\"  # a hyperlink
    "\x1b[2J\x1b[1;1H\x1b[8m"  # erase the screen, move the cursor, conceal
    "\x9b31m\x9d0;title\x9c"  # the same with C1 controls
    "\x08\r\x7f\x85"
    "\u202egnp.exe\u2066\u200f\u061c"  # bidirectional overrides and marks
    "\u2028\u2029\ufeff\ud800\U000e0041"
    "after"
)  # fmt: skip
ESCAPED = (
    r"before\x1b]0;title\x07\x1b]8;;https://evil.example.test\x1b\link\x1b]8;;\x1b\\x1b[2J\x1b[1;1H\x1b[8m"
    r"\x9b31m\x9d0;title\x9c\x08\x0d\x7f\x85\u202egnp.exe\u2066\u200f\u061c\u2028\u2029\ufeff\ud800\U000e0041after"
)


def unprintable(text: str) -> set[str]:
    """Return the controls, format characters, line separators and surrogates of a text; line ends and tabs are none."""
    return {
        ascii(char)
        for char in text
        if char not in "\n\t" and unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }


def commands(parser: argparse.ArgumentParser | None = None) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that runs something, with what it requires: `engine up`, `verify x`."""
    parser = parser or build_parser()
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for group in groups:
        for name, below in group.choices.items():
            yield from ((name, *rest) for rest in commands(below))
    if not groups:
        chosen = [group._group_actions[0] for group in parser._mutually_exclusive_groups if group.required]
        required = [action for action in parser._actions if action.required]
        yield tuple(word for action in required + chosen for word in _words(action))


def _words(action: argparse.Action) -> Iterator[str]:
    yield from action.option_strings[:1]
    yield from [str(next(iter(action.choices or "x")))] * (action.nargs if isinstance(action.nargs, int) else 1)

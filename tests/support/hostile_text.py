"""Text with which a registry, an index or an image would steer a terminal, and a check that none of it arrives."""

import unicodedata
from collections.abc import Iterator

from tfimg.cli.app import COMMANDS, load_command
from tfimg.cli.options import list_parameters

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
    """Return the controls, format characters, line separators and surrogates of a text; no line ends and tabs."""
    return {
        ascii(char)
        for char in text
        if char not in "\n\t" and unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }


def commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, with what it requires: `engine up`, `verify x`."""
    for name in COMMANDS:
        words = name.split()
        for field, parameter in list_parameters(load_command(name)).items():
            if parameter.is_required or field == "jupyter":
                words += parameter.names[:1]
                words += [] if parameter.is_flag else [*parameter.choices, "x"][:1]
        yield tuple(words)

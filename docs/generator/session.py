"""Record the terminal session of the README: run commands on a terminal, write what it shows as SVG, dark and light.

    .venv/bin/python docs/generator/session.py

It needs a container engine (`tfimg engine up --install` starts one) and builds an image with it. The last lines of long
output are shown, with the number of those before them.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS, ROWS = 54, 40
"""So that letters have 11 pixels on a phone with a screen of 375, and not 7 as with 80 columns."""

FOLDER = Path(__file__).parents[1] / "_static"


@dataclass(frozen=True)
class Step:
    """A command, and how many lines of its output are shown at most."""

    command: str
    last: int = ROWS


STEPS = (
    Step("tfimg build --tf 2.15 --python 3.11", last=14),
    Step(
        "tfimg run tfimg/tensorflow:2.15 -- python -c \\\n"
        "    'import tensorflow as tf; print(tf.add(1, 2))' \\\n"
        "    2>/dev/null"
    ),
)

# Background, text, and eight colours with their bright forms: each has a contrast of at least 4.5 to the background.
THEMES = {
    "dark": TerminalTheme(
        (13, 17, 23), (230, 237, 243),
        [(139, 148, 158), (255, 123, 114), (86, 211, 100), (227, 179, 65),
         (121, 192, 255), (210, 168, 255), (86, 212, 221), (230, 237, 243)],
    ),
    "light": TerminalTheme(
        (246, 248, 250), (31, 35, 40),
        [(87, 96, 106), (179, 29, 40), (17, 99, 41), (115, 77, 5),
         (5, 80, 174), (110, 58, 180), (10, 88, 100), (31, 35, 40)],
    ),
}  # fmt: skip

TOKEN = re.compile(r"\x1b\[(?P<parameters>[?\d;]*)(?P<final>[A-Za-z])|\r(?=\n)|[\r\n]|[^\x1b\r\n]+|\x1b.")


def run_on_terminal(command: str) -> str:
    """Return what a command writes to a terminal. Standard output and errors are one stream there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environ = {**os.environ, "PATH": path, "TERM": "xterm-256color"}
    process = subprocess.Popen(["bash", "-c", command], stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    written = bytearray()
    try:
        while block := os.read(ours, 1 << 16):
            written += block
    except OSError:  # Linux ends a terminal without writers with EIO.
        pass
    os.close(ours)
    process.wait()
    return written.decode()


def read_screen(written: str) -> list[str]:
    """Return the lines that a terminal shows at the end, with their colours as escape sequences.

    It knows what rich writes: carriage returns, erased lines and moves up. A line is always rewritten from its start.
    """
    lines, row, is_at_start = [""], 0, False
    for token in TOKEN.finditer(written):
        text, final = token[0], token["final"]
        if text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text == "\r":
            is_at_start = len(token[0]) == 1 and not written.startswith("\n", token.end())
        elif final == "A":
            row = max(0, row - int(token["parameters"] or 1))
        elif final == "K":
            lines[row] = ""
        elif final == "m" or not text.startswith("\x1b"):
            lines[row] = ("" if is_at_start else lines[row]) + text
            is_at_start = False
    while lines and not Text.from_ansi(lines[-1]).plain.strip():
        lines.pop()
    return lines


def draw(session: list[tuple[Step, list[str]]], theme: TerminalTheme) -> str:
    """Return a session as SVG, which loads nothing."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number, (step, lines) in enumerate(session):
        console.print(*([""] if number else []), Text.assemble(("$ ", "green"), (step.command, "bold")), sep="\n")
        if more := max(0, len(lines) - step.last):
            console.print(Text(f"… {more} more lines", "bright_black"))
        for line in lines[more:]:
            console.print(Text.from_ansi(line))
    text = console.export_svg(title="tfimg", theme=theme, unique_id="session")
    without_fonts = re.sub(r"@font-face \{.*?\}\n", "", text, flags=re.DOTALL)
    return "".join(f"{line.rstrip()}\n" for line in without_fonts.splitlines())


def main() -> None:
    """Run the session and write both pictures."""
    session = [(step, read_screen(run_on_terminal(step.command))) for step in STEPS]
    for name, theme in THEMES.items():
        (FOLDER / f"session-{name}.svg").write_text(draw(session, theme))


if __name__ == "__main__":
    main()

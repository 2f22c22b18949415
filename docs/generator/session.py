"""Record the terminal session of the README: run commands on a terminal, write what it shows as SVG, dark and light.

    .venv/bin/python docs/generator/session.py

It needs a container engine (`tfimg engine up --install` starts one) and builds an image with it. Of long output a part
is shown, with the number of the other lines. Commands are typed and lines appear, with CSS alone and in at most
`SECONDS`; then the whole session stays, which is also what a browser shows that was asked for less motion.
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


SECONDS = 5.0
"""What moves by itself beside text for longer needs a button that stops it (WCAG 2.2, 2.2.2); a picture has none."""

TYPE, ANSWER, LINE, READ = 0.008, 0.15, 0.03, 1.1
"""Seconds of a typed character, before an answer, between its lines, and to read it."""


@dataclass(frozen=True)
class Step:
    """A command, and how many lines of its output are shown at most, from its start or to its end."""

    command: str
    first: int = sys.maxsize
    last: int = sys.maxsize


STEPS = (
    Step("tfimg build --tf 2.15 --python 3.12", first=7),
    Step("tfimg build --tf 2.15 --python 3.11", last=9),
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


ROW = re.compile(r'<text class="(?P<colour>[^"]+)"(?P<rest>[^>]*clip-path="url\(#session-line-(?P<row>\d+)\)")')

STYLE = """\
    @media (prefers-reduced-motion: no-preference) {
        .shown { animation: show 1ms backwards }
        .typed { animation: type 1ms backwards }
    }
    @keyframes show { from { visibility: hidden } }
    @keyframes type { from { clip-path: inset(0 100% 0 0) } to { clip-path: inset(0) } }
    </style>
"""


def draw(session: list[tuple[Step, list[str]]], theme: TerminalTheme) -> str:
    """Return a session as SVG, which loads nothing. Raises `ValueError` if it moves for longer than `SECONDS`."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    rows: list[tuple[str, str]] = []  # of each row the class and the times of its animation
    now = 0.0

    def show(text: Text, *, is_typed: bool = False) -> None:
        nonlocal now
        for line in text.wrap(console, COLUMNS):
            console.print(line)
            seconds = TYPE * len(line) if is_typed else LINE
            timing = (
                f";animation-duration:{seconds:.2f}s;animation-timing-function:steps({len(line)})" if is_typed else ""
            )
            rows.append(("typed" if is_typed else "shown", f"animation-delay:{now:.2f}s{timing}"))
            now += seconds

    for step, lines in session:
        if rows:
            show(Text(" "))
            now += READ
        show(Text.assemble(("$ ", "green"), (step.command, "bold")), is_typed=True)
        now += ANSWER
        shown = lines[: step.first][-step.last :]
        if before := max(0, min(step.first, len(lines)) - step.last):
            show(Text(f"… {before} more lines", "bright_black"))
        for line in shown:
            show(Text.from_ansi(line))
        if after := len(lines) - before - len(shown):
            show(Text(f"… {after} more lines", "bright_black"))
    if now > SECONDS:
        raise ValueError(f"The session takes {now:.1f} s, and may take {SECONDS} s.")

    def animate(found: re.Match[str]) -> str:
        kind, times = rows[int(found["row"])]
        return f'<text class="{found["colour"]} {kind}" style="{times}"{found["rest"]}'

    text = console.export_svg(title="tfimg", theme=theme, unique_id="session")
    without_fonts = re.sub(r"@font-face \{.*?\}\n", "", text, flags=re.DOTALL)
    moving = ROW.sub(animate, without_fonts).replace("    </style>\n", STYLE, 1)
    return "".join(f"{line.rstrip()}\n" for line in moving.splitlines())


def main() -> None:
    """Run the session and write both pictures."""
    session = [(step, read_screen(run_on_terminal(step.command))) for step in STEPS]
    for name, theme in THEMES.items():
        (FOLDER / f"session-{name}.svg").write_text(draw(session, theme))


if __name__ == "__main__":
    main()

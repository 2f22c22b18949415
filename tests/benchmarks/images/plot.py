"""Results → a plot in SVG: bars with their figures, readable on a phone, on light and on dark pages.

Lengths are percentages of the plot's width and text has one size: shown inline with a width of 100 %, a plot fits any
page. As a file it has a width of its own.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape, quoteattr

from benchmarks.images.figures import FIGURES, ORDER, PLAIN, Result, describe_runs, format_value

WIDTH = 480
"""Pixels of a plot as a file: scaled down to a phone's 360, its text is still readable."""

LINE, BAR, GAP = 17, 9, 12
"""Pixels: a line of text, a bar, and the space above a group."""

LETTERS = {"title": 36, "figure": 44, "small": 56}
"""Letters of a line that fit the 340 pixels of a phone."""

LEFT_OUT = ("knob-push", "knob-bytes", "family-emptied")
"""Shown in the table and kept in the JSON, and too much for a picture."""

CONTESTANTS = {
    "tfimg": "tfimg build",
    PLAIN: "one RUN pip install",
    "runtime": "TensorFlow's runtime Dockerfile",
    "baked": "one RUN for each wheel",
}
"""What each contestant is, as short as a bar's label."""

STYLE = Path(__file__).with_name("plot.css").read_text().rstrip("\n")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A figure and its label; from `value` to `whole` the bar is pale. `is_ours`: it has tfimg's colour."""

    label: str
    is_ours: bool
    value: float
    whole: float
    text: str


@dataclass(kw_only=True)
class _Lines:
    """Parts of a plot from its top down; `y` is where the next one begins."""

    y: int = 4
    parts: list[str] = field(default_factory=list)

    def write(self, words: str, kind: str) -> None:
        # A result is on a line of its own.
        stated = re.split("(?<=:) ", words) if kind != "small" else [words]
        for line in (line for part in stated for line in wrap(part, LETTERS[kind])):
            self.y += LINE + 3 * (kind == "title")
            self.parts.append(f'<text class="{kind}" x="0" y="{self.y}">{escape(line)}</text>')

    def draw(self, bar: Bar, longest: float) -> None:
        kind = "bar tfimg" if bar.is_ours else "bar"
        length, whole = (max(value / longest * 100, 0.3) for value in (bar.value, bar.whole))
        self.y += LINE
        self.parts.append(f'<text class="name" x="0" y="{self.y}">{escape(bar.label)}</text>')
        self.parts.append(f'<text class="value" x="100%" y="{self.y}" text-anchor="end">{escape(bar.text)}</text>')
        self.y += 4
        size = f'y="{self.y}" height="{BAR}"'
        self.parts.append(f'<rect class="{kind}" x="0" width="{length:.2f}%" {size}/>')
        if whole > length:
            rest = f'x="{length:.2f}%" width="{whole - length:.2f}%"'
            self.parts.append(f'<rect class="{kind} suite" {rest} {size}/>')
        self.y += BAR


def plot(found: Sequence[Result], *, title: str, notes: Sequence[str]) -> str:
    """Return a plot of each figure that several contestants have; the pale part of a bar is tfimg's validation."""
    return draw_plot(groups(found), title=title, notes=notes)


def draw_plot(headed: Iterable[tuple[str, Sequence[Bar]]], *, title: str, notes: Sequence[str]) -> str:
    """Return the text of an SVG file: groups of bars under their headings, each on a scale of its own."""
    lines = _Lines()
    lines.write(title, "title")
    lines.y += 2
    for note in notes:
        lines.write(note, "small")
    for heading, bars in headed:
        lines.y += GAP
        lines.write(heading, "figure")
        for bar in bars:
            lines.draw(bar, max(bar.whole for bar in bars) or 1)
    height = lines.y + 12
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="benchmark" {size} role="figure" aria-label={quoteattr(title)}>'
    )
    page = '<rect class="page" width="100%" height="100%"/>'
    inside = '<svg x="2%" width="96%" height="100%">'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", page, inside, *lines.parts, "</svg>", "</svg>", ""])


def groups(found: Sequence[Result]) -> Iterator[tuple[str, list[Bar]]]:
    """Results → headings that state the result, with their bars, for each figure and store.

    A validated figure lengthens the bar of the figure that it belongs to. A bar alone compares nothing and is left out.
    """
    stores = list(dict.fromkeys(one.store for one in found))
    everything = {(one.store, one.contestant, one.figure): one for one in found}
    runs = {one.runs for one in found}
    for figure, (words, _) in FIGURES.items():
        if figure in LEFT_OUT or figure.endswith("-validated"):
            continue
        for store in stores:
            results = [one for name in ORDER if (one := everything.get((store, name, figure)))]
            if len(results) < 2:
                continue
            bars = [_bar(one, everything.get((store, one.contestant, f"{figure}-validated")), runs) for one in results]
            on_store = f", {store} store" if len(stores) > 1 else ""
            result = state_result(everything.get((store, "tfimg", figure)))
            yield f"{words}{on_store}{f': {result}' if result else ''}", bars


def state_result(ours: Result | None) -> str | None:
    """Say how a figure of tfimg's compares with one `pip install`: `2.9 times faster`."""
    if ours is None or ours.of_plain is None:
        return None
    better, worse = ("smaller", "larger") if FIGURES[ours.figure][1] == "B" else ("faster", "slower")
    times, word = (1 / ours.of_plain, better) if ours.of_plain <= 1 else (ours.of_plain, worse)
    return f"{times:.1f} times {word}" if times >= 1.05 else f"as {'large' if better == 'smaller' else 'fast'}"


def _bar(one: Result, whole: Result | None, runs: Collection[int]) -> Bar:
    text = format_value(one.median, one.figure)
    if whole:
        text += f"; validated {format_value(whole.median, whole.figure)}"
    if len(runs) > 1:
        text += f" ({describe_runs([one.runs]).removesuffix(' each')})"
    value = max(one.median, whole.median if whole else 0)
    label, is_ours = CONTESTANTS[one.contestant], one.contestant == "tfimg"
    return Bar(label=label, is_ours=is_ours, value=one.median, whole=value, text=text)

"""Results → a plot: bars with their figures, in SVG, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from benchmarks.images.figures import FIGURES, Result, format_value, ratio

WIDTH, EDGE, NAMES, TEXT, ROW, GAP = 860, 16, 62, 190, 20, 16
"""Pixels: the whole, its edge, names of contestants, figures beside bars, a bar with its space, space above a group."""

LEFT_OUT = ("knob-push", "knob-bytes", "family-emptied")
"""Told in the table and kept in the JSON, and too much for a picture."""

STYLE = Path(__file__).with_name("plot.css").read_text().rstrip("\n")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One contestant's figure on one store; `whole` is the figure with the contestant's validation."""

    name: str
    store: str
    value: float
    whole: float
    text: str


def plot(found: Sequence[Result], *, title: str, notes: Sequence[str]) -> str:
    """The text of an SVG file: a column for each store, and for each figure a group of bars on a scale of its own."""
    stores = list(dict.fromkeys(one.store for one in found))
    y, parts = 30, [_text(EDGE, 30, title, "title")]
    for note in notes:
        y += 17
        parts.append(_text(EDGE, y, note, "small"))
    y += GAP + ROW
    parts += [_text(_column(stores, store), y, f"{store} store", "small") for store in stores]
    for heading, bars in groups(found):
        y += GAP + ROW
        parts.append(_text(EDGE, y, heading, "figure"))
        longest = max(bar.whole for bar in bars) or 1
        for name in dict.fromkeys(bar.name for bar in bars):
            y += ROW
            for bar in bars:
                if bar.name == name:
                    room = WIDTH / len(stores) - EDGE - NAMES - TEXT
                    parts += _draw_bar(bar, _column(stores, bar.store), y, room / longest)
    size = f'width="{WIDTH}" height="{y + 18}" viewBox="0 0 {WIDTH} {y + 18}"'
    page = f'<rect class="page" width="{WIDTH}" height="{y + 18}"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={quoteattr(title)}>'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", page, *parts, "</svg>", ""])


def _column(stores: Sequence[str], store: str) -> float:
    return EDGE + WIDTH / len(stores) * stores.index(store)


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y}">{escape(words)}</text>'


def _draw_bar(bar: Bar, x: float, y: int, scale: float) -> Iterator[str]:
    kind = "bar tfimg" if bar.name == "tfimg" else "bar"
    start, length, whole = x + NAMES, max(bar.value * scale, 1), max(bar.whole * scale, 1)
    yield _text(x, y, bar.name, "name")
    yield f'<rect class="{kind}" x="{start:.1f}" y="{y - 11}" width="{length:.1f}" height="13"/>'
    if whole > length:
        rest = f'x="{start + length:.1f}" y="{y - 11}" width="{whole - length:.1f}" height="13"'
        yield f'<rect class="{kind} suite" {rest}/>'
    yield _text(start + whole + 6, y, bar.text, "value")


def groups(found: Sequence[Result]) -> Iterator[tuple[str, list[Bar]]]:
    """Results → headings with their bars; a validated figure lengthens the bar of the figure that it belongs to."""
    wholes = {(one.store, one.contestant, one.figure): one for one in found}
    for figure, (words, _) in FIGURES.items():
        if figure not in LEFT_OUT and not figure.endswith("-validated"):
            bars = [
                _bar(one, wholes.get((one.store, one.contestant, f"{figure}-validated")))
                for one in found
                if one.figure == figure
            ]
            if bars:
                yield words, bars


def _bar(one: Result, whole: Result | None) -> Bar:
    text = format_value(one.median, one.figure)
    if one.of_plain is not None and one.contestant != "plain":
        text += f" ({ratio(one.of_plain)})"
    if whole:
        text += f", {format_value(whole.median, whole.figure)}"
    return Bar(
        name=one.contestant, store=one.store, value=one.median, whole=max(one.median, whole.median if whole else 0),
        text=text,
    )  # fmt: skip

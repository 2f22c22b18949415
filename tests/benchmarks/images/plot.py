"""Results → a plot: bars with their figures, in SVG, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from benchmarks.images.figures import FIGURES, Result, ratio, told

WIDTH, LEFT, LONGEST, ROW, GAP = 860, 84, 470, 20, 14
"""Pixels: the whole, the names of contestants, the longest bar, a bar with its space, and the space above a figure."""

STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.page { fill: #ffffff }
.title { font-size: 17px; font-weight: 600 }
.figure { font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.bar { fill: #8c959f }
.tfimg { fill: #0969da }
.suite { fill-opacity: 0.35 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .page { fill: #0d1117 }
  .small { fill: #9198a1 }
  .bar { fill: #656c76 }
  .tfimg { fill: #4493f8 }
}"""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One contestant's figure, and what its validation adds to that."""

    name: str
    value: float
    whole: float
    text: str


def plot(found: Sequence[Result], *, title: str, notes: Sequence[str]) -> str:
    """The text of an SVG file: a group of bars for each store and figure, each group to a scale of its own."""
    y, parts = 30, [f'<text class="title" x="16" y="30">{escape(title)}</text>']
    for note in notes:
        y += 17
        parts.append(f'<text class="small" x="16" y="{y}">{escape(note)}</text>')
    for heading, bars in groups(found):
        y += GAP + ROW
        parts.append(f'<text class="figure" x="16" y="{y}">{escape(heading)}</text>')
        scale = LONGEST / (max(bar.whole for bar in bars) or 1)
        for bar in bars:
            y += ROW
            parts += _drawn(bar, y, scale)
    size = f'width="{WIDTH}" height="{y + 18}" viewBox="0 0 {WIDTH} {y + 18}"'
    page = f'<rect class="page" width="{WIDTH}" height="{y + 18}"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={quoteattr(title)}>'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", page, *parts, "</svg>", ""])


def _drawn(bar: Bar, y: int, scale: float) -> Iterator[str]:
    kind = "bar tfimg" if bar.name == "tfimg" else "bar"
    length, whole = max(bar.value * scale, 1), max(bar.whole * scale, 1)
    yield f'<text x="16" y="{y}">{escape(bar.name)}</text>'
    yield f'<rect class="{kind}" x="{LEFT}" y="{y - 11}" width="{length:.1f}" height="13"/>'
    if whole > length:
        start = f'x="{LEFT + length:.1f}" y="{y - 11}" width="{whole - length:.1f}" height="13"'
        yield f'<rect class="{kind} suite" {start}/>'
    yield f'<text x="{LEFT + whole + 8:.1f}" y="{y}">{escape(bar.text)}</text>'


def groups(found: Sequence[Result]) -> Iterator[tuple[str, list[Bar]]]:
    """Results → headings with their bars; a validated figure lengthens the bar of the figure that it belongs to."""
    by_key = {(one.store, one.figure, one.contestant): one for one in found}
    for store in dict.fromkeys(one.store for one in found):
        for figure, (words, _) in FIGURES.items():
            of_figure = [one for one in found if (one.store, one.figure) == (store, figure)]
            if of_figure and not figure.endswith("-validated"):
                wholes = (by_key.get((store, f"{figure}-validated", one.contestant)) for one in of_figure)
                yield (
                    f"{words} ({store} store)",
                    [_bar(*both) for both in zip(of_figure, wholes, strict=True)],
                )


def _bar(one: Result, whole: Result | None) -> Bar:
    text = told(one.median, one.figure)
    if one.of_plain is not None and one.of_plain != 1:
        text += f", {ratio(one.of_plain)} of plain"
    if whole:
        text += f"; validated {told(whole.median, whole.figure)}"
    return Bar(name=one.contestant, value=one.median, whole=whole.median if whole else one.median, text=text)

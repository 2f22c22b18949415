"""Draw which package imports which, from the imports of the program:

    .venv/bin/python docs/generator/architecture.py

An arrow that others imply is left out: a package imports only packages that it reaches along the arrows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import mean

DOCS = Path(__file__).parents[1]
PROGRAM = DOCS.parent / "builder/tfimg"
PICTURE = DOCS / "_static/architecture.svg"

BOX, LINE, HEIGHT, STEP, MARGIN = 240, 20, 44, 76, 12
"""In pixels: width of a box and of the lane of an arrow that passes boxes, height of a box and of a row, margin."""

STYLE = """\
text { font: 12px sans-serif; fill: #1f2328; text-anchor: middle }
.name { font: bold 14px monospace }
rect { fill: #fff; stroke: #0550ae }
.page { fill: #f6f8fa; stroke: none }
path { fill: none; stroke: #57606a; marker-end: url(#head) }
#head path { fill: #57606a; marker-end: none }
"""

Edge = tuple[str, str]
Item = str | tuple[Edge, int]
"""A package, or an arrow in a row that it passes."""


def read_imports() -> dict[str, set[str]]:
    """Return the packages that each package imports, also within functions and for type checkers."""
    packages = {file.parent.name: file.parent for file in sorted(PROGRAM.glob("*/__init__.py"))}
    return {
        name: set(
            re.findall(
                r"^\s*(?:from|import) tfimg\.(\w+)",
                "".join(file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.py"))),
                re.MULTILINE,
            )
        )
        - {name}
        for name, folder in packages.items()
    }


def draw(imports: Mapping[str, Iterable[str]]) -> str:
    """Return a picture of imports without circles as SVG."""
    reached: dict[str, set[str]] = {}
    rows: dict[str, int] = {}
    edges: list[Edge] = []
    for name in TopologicalSorter(imports).static_order():
        below = set(imports[name])
        implied = set[str]().union(*(reached[other] for other in below))
        edges += [(name, other) for other in below - implied]
        reached[name] = below | implied
        rows[name] = 1 + max((rows[other] for other in below), default=-1)
    edges.sort()
    x = _place(rows, edges)
    top = max(rows.values())

    def y(row: int) -> int:
        return MARGIN + (top - row) * STEP

    width = max(place + _size(item) // 2 for item, place in x.items()) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y(0) + HEIGHT + MARGIN}" role="img">',
        "<title>The packages of tfimg and their imports</title>",
        f"<style>\n{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>',
        '<rect class="page" width="100%" height="100%" rx="6"/>',
    ]
    for upper, lower in edges:
        points = [(x[upper], y(rows[upper]) + HEIGHT)]
        for row in range(rows[upper] - 1, rows[lower], -1):
            points += [(x[(upper, lower), row], y(row)), (x[(upper, lower), row], y(row) + HEIGHT)]
        points.append((x[lower], y(rows[lower])))
        parts.append(f'<path d="{_curve(points)}"/>')
    for name in sorted(rows):
        left, head = x[name] - BOX // 2, y(rows[name])
        parts += [
            f'<rect x="{left}" y="{head}" width="{BOX}" height="{HEIGHT}" rx="4"/>',
            f'<text class="name" x="{x[name]}" y="{head + 18}">{name}</text>',
            f'<text x="{x[name]}" y="{head + 35}">{escape(_purpose(name))}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def _purpose(name: str) -> str:
    """Return what a package is for: its docstring up to the first punctuation mark."""
    text = ast.get_docstring(ast.parse((PROGRAM / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    return re.split(r"[:;.]", text)[0]


def _curve(points: list[tuple[int, int]]) -> str:
    (x, y), *rest = points
    path = f"M{x} {y}"
    for number, (to_x, to_y) in enumerate(rest):
        middle = (y + to_y) // 2
        path += f"L{to_x} {to_y}" if number % 2 else f"C{x} {middle} {to_x} {middle} {to_x} {to_y}"
        x, y = to_x, to_y
    return path


def _place(rows: Mapping[str, int], edges: Iterable[Edge]) -> dict[Item, int]:
    """Return the horizontal centre of each item: near those that it is connected to, without overlap."""
    numbers = range(max(rows.values()) + 1)
    table: list[list[Item]] = [[name for name in sorted(rows) if rows[name] == row] for row in numbers]
    near: dict[Item, list[Item]] = {name: [] for name in rows}
    for edge in edges:
        upper, lower = edge
        chain: list[Item] = [upper, *((edge, row) for row in range(rows[upper] - 1, rows[lower], -1)), lower]
        for one, other in pairwise(chain):
            near.setdefault(one, []).append(other)
            near.setdefault(other, []).append(one)
        for row in range(rows[lower] + 1, rows[upper]):
            table[row].append((edge, row))
    x: dict[Item, float] = {item: 0.0 for row in table for item in row}
    for _ in range(60):
        for items in (*table, *reversed(table)):
            wish = {item: mean(x[other] for other in near[item]) for item in items}
            items.sort(key=wish.__getitem__)
            end = -inf
            for item in items:
                x[item] = max(wish[item], end + _size(item) / 2)
                end = x[item] + _size(item) / 2 + MARGIN
            shift = mean(wish[item] - x[item] for item in items)
            x.update({item: x[item] + shift for item in items})
    left = min(x[item] - _size(item) / 2 for item in x) - MARGIN
    return {item: round(place - left) for item, place in x.items()}


def _size(item: Item) -> int:
    return BOX if isinstance(item, str) else LINE


if __name__ == "__main__":
    PICTURE.write_text(draw(read_imports()), encoding="utf-8")

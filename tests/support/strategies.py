"""The loop and the table of the page about distribution strategies: what tests run, and what they have to find."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from support.paths import ROOT
from support.shell_blocks import blocks

PAGE = ROOT / "docs/how-to/distribution-strategies.md"
MARK = "<!-- table of tests/engine/test_strategies.py -->\n"

STRATEGIES = ("mirrored", "workers", "ps")
SITUATIONS = ("one container", "two containers", "killed worker")
RELEASES = ["2.15", "2.18", "2.21"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A strategy in a situation: what was found by release, and the largest difference of the weights that may be."""

    strategy: str
    situation: str
    found: Mapping[str, str]
    bound: float | None


def read_loop() -> str:
    """Return the program of the page."""
    return next(block.text for block in blocks(PAGE) if block.language == "python")


def read_rows() -> list[Row]:
    """Return the table of the page."""
    return list(_parse_rows(PAGE.read_text().partition(MARK)[2].partition("\n\n")[0].splitlines()))


def _parse_rows(lines: list[str]) -> Iterator[Row]:
    header, _, *rows = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines)
    releases = header[2:-1]
    for strategy, situation, *found, bound in rows:
        cells = dict(zip(releases, found, strict=True))
        yield Row(strategy=strategy, situation=situation, found=cells, bound=float(bound) if bound else None)

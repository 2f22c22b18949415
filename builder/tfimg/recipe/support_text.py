"""What each row supports, as words: table columns, notes below a table, and the README's Markdown table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Literal

from packaging.requirements import Requirement

from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.recipe.support import ProvenLevels, Support, format_capability

NOTHING = "–"  # noqa: RUF001
"""What a table has where there is nothing."""


def format_releases(support: Support) -> str:
    """The row's releases, e.g. `2.15.0, 2.15.1`."""
    return ", ".join(support.releases)


def format_pythons(support: Support, platform: Platform) -> str:
    """The Pythons of a platform, with the releases that lack it, e.g. `3.9–3.11, not 2.15.0.post1`."""  # noqa: RUF002
    (found,) = (one for one in support.platforms if one.platform == platform)
    if not found.pythons:
        return NOTHING
    return ", ".join([format_span(found.pythons), *(f"not {release}" for release, _ in found.missing)])


def format_span(minors: Sequence[str]) -> str:
    """Minors without a gap as first and last, others one by one: `3.9–3.11`, or `3.9, 3.11`."""  # noqa: RUF002
    numbers = [tuple(map(int, minor.split("."))) for minor in minors]
    whole = all(after == (*before[:-1], before[-1] + 1) for before, after in pairwise(numbers))
    return f"{minors[0]}–{minors[-1]}" if whole and len(minors) > 1 else ", ".join(minors)  # noqa: RUF001


def format_range(specifier: str) -> str:
    """A version range for people, e.g. `≥9.3, <10`."""
    return specifier.replace(">=", "≥").replace("<=", "≤").replace(",", ", ")


def format_bounds(support: Support, package: Literal["numpy", "keras"]) -> str:
    """What wheels and constraints together allow of a package, e.g. `≥1.20, <2`."""
    own = support.numpy if package == "numpy" else support.keras
    required = (Requirement(constraint.requirement) for constraint in support.constraints)
    return format_range(",".join([own, *(str(one.specifier) for one in required if one.name == package)]))


def format_capabilities(support: Support) -> str:
    """Compute capabilities with code, and those with PTX, e.g. `7.0 7.5 8.0+PTX`."""
    if not support.gpu:
        return NOTHING
    with_ptx = {format_capability(one) for one in support.gpu.ptx}
    return " ".join(f"{text}+PTX" if text in with_ptx else text for text in map(format_capability, support.gpu.code))


def format_libtpu(support: Support) -> str:
    """libtpu of the releases whose pair can be had, e.g. `0.0.10 (2.19.1)`."""
    several = len(support.releases) > 1
    had = (one for one in support.tpu if not one.unavailable)
    return ", ".join(f"{one.libtpu} ({one.tensorflow})" if several else one.libtpu for one in had) or NOTHING


def format_proven(support: Support) -> str:
    """How many images are above `declared`, e.g. `cpu 1/9 validated`."""
    return ", ".join(filter(None, map(format_proven_levels, support.proven))) or NOTHING


def format_proven_levels(proven: ProvenLevels) -> str:
    """The same of one device and platform; empty where nothing is proven."""
    where = proven.device if proven.platform == PLATFORMS[0] else f"{proven.device} {short_platform(proven.platform)}"
    shown = [f"{where} {count}/{proven.images} {level}" for level, count in proven.levels if level != "declared"]
    if proven.bare:
        shown.append(f"{where} {proven.bare}/{proven.images} on a bare machine")
    return ", ".join(shown)


def short_platform(platform: Platform) -> str:
    """The processor of a platform, e.g. `arm64`."""
    return platform.partition("/")[2]


def _same_on_arm64(support: Support) -> str:
    amd64, arm64 = support.platforms
    if arm64.pythons and arm64.missing:
        return "some"
    return "same" if arm64.pythons == amd64.pythons else format_pythons(support, arm64.platform)


def _capability_span(support: Support) -> str:
    if not support.gpu:
        return NOTHING
    first, last = (format_capability(one) for one in (support.gpu.code[0], support.gpu.code[-1]))
    return f"{first}–{last}{'+PTX' if support.gpu.ptx else ''}"  # noqa: RUF001


def _tight(specifier: str) -> str:
    return format_range(specifier).replace(" ", "")


def _stacked(text: Callable[[Support], str], support: Support) -> str:
    """What is between commas below each other, and a level below its count."""
    return re.sub(r"(,) ?|(?<=\d) (?=[a-z])", r"\1\n", text(support))


Columns = tuple[tuple[str, Callable[[Support], str]], ...]
"""Heading and text of a row."""

FULL_COLUMNS: Columns = (
    ("TensorFlow", format_releases),
    ("Python", lambda support: format_pythons(support, "linux/amd64")),
    ("arm64", lambda support: format_pythons(support, "linux/arm64")),
    ("CUDA", lambda support: support.gpu.cuda if support.gpu else NOTHING),
    ("cuDNN", lambda support: format_range(support.gpu.cudnn) if support.gpu else NOTHING),
    ("driver", lambda support: f"≥{support.gpu.driver_floor}" if support.gpu else NOTHING),
    ("GPUs (code for)", format_capabilities),
    ("TPU", format_libtpu),
    ("NumPy", lambda support: format_bounds(support, "numpy")),
    ("Keras", lambda support: format_bounds(support, "keras")),
    ("proven", format_proven),
)
"""The support table."""

SHORT_COLUMNS: Columns = (
    ("TensorFlow", lambda support: _from_to(support.releases[0], support.releases[-1])),
    ("Python", lambda support: format_span(support.platforms[0].pythons) or NOTHING),
    ("arm64", _same_on_arm64),
    ("CUDA", lambda support: support.gpu.cuda if support.gpu else NOTHING),
    ("cuDNN", lambda support: _tight(support.gpu.cudnn) if support.gpu else NOTHING),
    ("driver", lambda support: support.gpu.driver_floor if support.gpu else NOTHING),
    ("GPUs", _capability_span),
    ("TPU", lambda support: ", ".join(one.libtpu for one in support.tpu if not one.unavailable) or NOTHING),
    ("NumPy", lambda support: _tight(format_bounds(support, "numpy"))),
    ("Keras", lambda support: _tight(format_bounds(support, "keras"))),
    ("proven", format_proven),
)
"""The support table for a terminal that has no room for the whole one; the notes say what is short here."""

STACKED_COLUMNS: Columns = tuple((name, partial(_stacked, text)) for name, text in SHORT_COLUMNS)
"""The same with the parts of a cell below each other."""

MAIN_COLUMNS: Columns = tuple(
    column for column in SHORT_COLUMNS if column[0] in ("TensorFlow", "Python", "CUDA", "driver", "proven")
)
"""What a terminal of eighty columns has room for."""

MINIMAL_COLUMNS: Columns = MAIN_COLUMNS[:3]


def list_notes(rows: Sequence[Support]) -> tuple[str, ...]:
    """What the support table has no room for: why something is missing, blocked or constrained, each once."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for where, text in _exceptions(row):
            said.setdefault(text, []).append(where)
    for text, of_rows in _constrained(rows).items():
        said[text] = list(_stretches(rows, of_rows))
    return tuple(f"{', '.join(where)}: {text}" for text, where in said.items())


def _exceptions(row: Support) -> Iterator[tuple[str, str]]:
    for one in row.platforms:
        for release, reason in one.missing:
            yield release, f"not for {one.platform}: {reason}"
    for python, reason in row.blocked:
        yield _from_to(row.releases[0], row.releases[-1]), f"not for Python {python}: {reason}"
    for pair in row.tpu:
        if pair.unavailable:
            yield pair.tensorflow, f"not for tpu: libtpu {pair.libtpu}: {pair.unavailable}"


def _constrained(rows: Sequence[Support]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for constraint in row.constraints:
            issue = f" ({constraint.issue})" if constraint.issue else ""
            found.setdefault(f"{constraint.requirement}: {constraint.reason}{issue}", []).append(number)
    return found


def _stretches(rows: Sequence[Support], numbers: Sequence[int]) -> Iterator[str]:
    """Rows that follow each other as their first and last release."""
    for _, members in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        stretch = [rows[number] for _, number in members]
        yield _from_to(stretch[0].releases[0], stretch[-1].releases[-1])


def _from_to(first: str, last: str) -> str:
    return first if first == last else f"{first}–{last}"  # noqa: RUF001


def make_issue_url(issue: str) -> str:
    """Where an upstream report is read: `owner/repository#number` → its page on GitHub."""
    repository, _, number = issue.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


# As Markdown


def render_markdown(rows: Sequence[Support]) -> str:
    """The support table in GitHub's Markdown, a line per row of the matrix."""
    head = [f"| {' | '.join(name for name, _ in FULL_COLUMNS)} |", f"|{'---|' * len(FULL_COLUMNS)}"]
    lines = (f"| {' | '.join(_cell(text(row)) for _, text in FULL_COLUMNS)} |" for row in rows)
    return "".join(f"{line}\n" for line in [*head, *lines])


def _cell(text: str) -> str:
    # What GitHub would read as a further cell, or as the start of a tag or an entity.
    return re.sub(r"[|\\]|<(?=[a-zA-Z/!?])|&(?=[a-zA-Z#])", lambda found: f"\\{found[0]}", text)


BEGIN, END = "<!-- matrix: written by tfimg render -->\n", "<!-- /matrix -->"
"""What stands around the support table in a README."""


def insert_table(readme: str, rows: Sequence[Support]) -> str | None:
    """A README with the support table between its markers; None when it does not have them."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    # Blank lines: inside an HTML block there is no Markdown.
    return f"{before}{begin}\n{render_markdown(rows)}\n{end}{after}" if begin and end else None

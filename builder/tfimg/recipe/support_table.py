"""The support table: its columns, the notes below it, and its Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Literal

from packaging.requirements import Requirement
from packaging.version import Version

from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.recipe.labels import BaseKind
from tfimg.recipe.support import GpuSupport, ProvenLevels, Support, format_capability

NOTHING = "–"  # noqa: RUF001
"""Text of an empty cell."""

PROVEN_ON: Mapping[BaseKind, str] = {
    "official": "on official images",
    "look-alike": "on look-alikes of the official images",
    "bootstrapped": "on bases bootstrapped from Debian's packages",
}
"""Kinds of bases in a sentence."""

BEGIN, END = "<!-- matrix: written by tfimg render -->\n", "<!-- /matrix -->"
"""Markers around the support table in a README."""


def format_pythons(support: Support, platform: Platform) -> str:
    """Return the Pythons of a platform: `3.9–3.11, not 2.15.0.post1`."""  # noqa: RUF002
    found = support.platforms[platform]
    missing = (f"not {release}" for release in found.missing)
    return ", ".join([format_span(found.pythons), *missing]) if found.pythons else NOTHING


def format_span(minors: Sequence[str]) -> str:
    """Return minors as a span if they have no gap: `3.9–3.11`, or `3.9, 3.11`."""  # noqa: RUF002
    numbers = [tuple(map(int, minor.split("."))) for minor in minors]
    whole = all(after == (*before[:-1], before[-1] + 1) for before, after in pairwise(numbers))
    return _from_to(minors) if minors and whole else ", ".join(minors)


def format_range(specifier: str) -> str:
    """Return a version range for people: `≥9.3, <10`."""
    return specifier.replace(">=", "≥").replace("<=", "≤").replace(",", ", ")


def format_bounds(support: Support, package: Literal["numpy", "keras"]) -> str:
    """Return what wheels and constraints together allow of a package: `≥1.20, <2`."""
    requirements = (Requirement(constraint.requirement) for constraint in support.constraints)
    constrained = (str(requirement.specifier) for requirement in requirements if requirement.name == package)
    return format_range(",".join([support.numpy if package == "numpy" else support.keras, *constrained]))


def format_proven(support: Support) -> str:
    """Return how many images are above `declared`: `cpu 1/9 validated`."""
    return ", ".join(filter(None, map(format_proven_levels, support.proven))) or NOTHING


def format_proven_levels(proven: ProvenLevels) -> str:
    """Return the same of one device and platform; empty if nothing is proven."""
    suffix = "" if proven.platform == PLATFORMS[0] else f" {proven.platform.partition('/')[2]}"
    counts: dict[str, int] = {level: count for level, count in proven.levels.items() if level != "declared"}
    if proven.emulated:
        on_processor = counts.pop("linked") - proven.emulated
        counts |= {"linked": on_processor} if on_processor else {}
        counts |= {"linked on an emulator": proven.emulated}
    if proven.bare:
        counts |= {"on a bare machine": proven.bare}
    return ", ".join(f"{proven.device}{suffix} {count}/{proven.images} {words}" for words, count in counts.items())


def describe_proven_bases(rows: Sequence[Support]) -> str:
    """Return on which kinds of bases images of amd64 are proven, by Python, in a sentence."""
    found: dict[BaseKind, set[str]] = {}
    for proven in (proven for row in rows for proven in row.proven if proven.platform == PLATFORMS[0]):
        for kind, pythons in proven.bases.items():
            found.setdefault(kind, set()).update(pythons)
    parts = [
        f"{PROVEN_ON[kind]} for Python {', '.join(sorted(found[kind], key=Version))}" if kind in found else absent
        for kind, absent in (("official", "on no official image yet"), ("look-alike", ""), ("bootstrapped", ""))
    ]
    return f"Proven {'; '.join(filter(None, parts))}."


def _capabilities(gpu: GpuSupport) -> str:
    """Return compute capabilities with code, and those with PTX: `7.0 7.5 8.0+PTX`."""
    with_ptx = set(map(format_capability, gpu.ptx))
    texts = map(format_capability, gpu.code)
    return " ".join(f"{text}+PTX" if text in with_ptx else text for text in texts)


def _capability_span(gpu: GpuSupport) -> str:
    return _from_to([format_capability(name) for name in gpu.code]) + ("+PTX" if gpu.ptx else "")


def _libtpu(support: Support, *, with_release: bool) -> str:
    """Return the libtpu that the package index has by release: `0.0.10 (2.19.1)`."""
    pairs = (pair for pair in support.tpu if not pair.unavailable)
    return ", ".join(f"{pair.libtpu} ({pair.tensorflow})" if with_release else pair.libtpu for pair in pairs) or NOTHING


def _same_on_arm64(support: Support) -> str:
    amd64, arm64 = (support.platforms[platform] for platform in PLATFORMS)
    if arm64.pythons and arm64.missing:
        return "some"
    return "same" if arm64.pythons == amd64.pythons else format_pythons(support, "linux/arm64")


def _stacked(text: Callable[[Support], str], support: Support) -> str:
    """Put each part of a list, and each level of a count, on a line of its own."""
    return re.sub(r"(,) ?|(?<=\d) (?=[a-z])", r"\1\n", text(support))


def _of_gpu(text: Callable[[GpuSupport], str]) -> Callable[[Support], str]:
    return lambda support: text(support.gpu) if support.gpu else NOTHING


def _without_blanks(text: Callable[[Support], str]) -> Callable[[Support], str]:
    return lambda support: text(support).replace(" ", "")


def _from_to(texts: Sequence[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]}–{texts[-1]}"  # noqa: RUF001


Columns = tuple[tuple[str, Callable[[Support], str]], ...]
"""Headings, and the text of a row below each."""

_FULL: dict[str, Callable[[Support], str]] = {
    "TensorFlow": lambda support: ", ".join(support.releases),
    "Python": partial(format_pythons, platform="linux/amd64"),
    "arm64": partial(format_pythons, platform="linux/arm64"),
    "CUDA": _of_gpu(lambda gpu: gpu.cuda),
    "cuDNN": _of_gpu(lambda gpu: format_range(gpu.cudnn)),
    "driver": _of_gpu(lambda gpu: f"≥{gpu.driver_floor}"),
    "GPUs (code for)": _of_gpu(_capabilities),
    "TPU": lambda support: _libtpu(support, with_release=len(support.releases) > 1),
    "NumPy": partial(format_bounds, package="numpy"),
    "Keras": partial(format_bounds, package="keras"),
    "proven": format_proven,
}
_SHORT: dict[str, Callable[[Support], str]] = {
    "TensorFlow": lambda support: _from_to(support.releases),
    "Python": lambda support: format_span(support.platforms["linux/amd64"].pythons) or NOTHING,
    "arm64": _same_on_arm64,
    "driver": _of_gpu(lambda gpu: gpu.driver_floor),
    "GPUs (code for)": _of_gpu(_capability_span),
    "TPU": partial(_libtpu, with_release=False),
    **{name: _without_blanks(_FULL[name]) for name in ("cuDNN", "NumPy", "Keras")},
}

FULL_COLUMNS: Columns = tuple(_FULL.items())
SHORT_COLUMNS: Columns = tuple((name.removesuffix(" (code for)"), _SHORT.get(name, _FULL[name])) for name in _FULL)
STACKED_COLUMNS: Columns = tuple((name, partial(_stacked, text)) for name, text in SHORT_COLUMNS)
MAIN_COLUMNS: Columns = tuple(
    column for column in SHORT_COLUMNS if column[0] in {"TensorFlow", "Python", "CUDA", "driver", "proven"}
)
MINIMAL_COLUMNS: Columns = MAIN_COLUMNS[:3]

SUPPORT_FORMS = (FULL_COLUMNS, SHORT_COLUMNS, STACKED_COLUMNS, MAIN_COLUMNS, MINIMAL_COLUMNS)
"""Columns of `tfimg matrix`, from a wide terminal to a narrow one."""


def list_notes(rows: Sequence[Support]) -> tuple[str, ...]:
    """Return why images are missing, blocked or constrained, each reason once."""
    notes: dict[str, list[str]] = {}
    constrained: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for subject, text in _exceptions(row):
            notes.setdefault(text, []).append(subject)
        for constraint in row.constraints:
            issue = f" ({constraint.issue})" if constraint.issue else ""
            constrained.setdefault(f"{constraint.requirement}: {constraint.reason}{issue}", []).append(number)
    for text, numbers in constrained.items():
        # Rows that follow each other are named by their first and last release.
        runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
        releases = ([release for _, number in run for release in rows[number].releases] for _, run in runs)
        notes[text] = [_from_to(run) for run in releases]
    return tuple(f"{', '.join(subjects)}: {text}" for text, subjects in notes.items())


def _exceptions(row: Support) -> Iterator[tuple[str, str]]:
    for platform, support in row.platforms.items():
        for release, reason in support.missing.items():
            yield release, f"not for {platform}: {reason}"
    for python, reason in row.blocked.items():
        yield _from_to(row.releases), f"not for Python {python}: {reason}"
    for pair in row.tpu:
        if pair.unavailable:
            yield pair.tensorflow, f"not for tpu: libtpu {pair.libtpu}: {pair.unavailable}"


def make_issue_url(issue: str) -> str:
    """Return the address of an upstream report: `owner/repository#number`."""
    repository, _, number = issue.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def render_markdown(rows: Sequence[Support], columns: Columns = FULL_COLUMNS) -> str:
    """Return the support table in GitHub's Markdown, a line per row of the matrix."""
    head = [f"| {' | '.join(name for name, _ in columns)} |", f"|{'---|' * len(columns)}"]
    lines = (f"| {' | '.join(_escape_cell(text(row)) for _, text in columns)} |" for row in rows)
    return "".join(f"{line}\n" for line in [*head, *lines])


def _escape_cell(text: str) -> str:
    # What GitHub would read as a further cell, or as the start of a tag or an entity.
    return re.sub(r"[|\\]|<(?=[a-zA-Z/!?])|&(?=[a-zA-Z#])", lambda found: f"\\{found[0]}", text)


def insert_table(readme: str, rows: Sequence[Support]) -> str | None:
    """Return a README with the main columns of the table between its markers; None if it lacks one."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    # Blank lines: inside an HTML block there is no Markdown.
    text = f"{render_markdown(rows, MAIN_COLUMNS)}\n{describe_proven_bases(rows)}\n"
    return f"{before}{begin}\n{text}{end}{after}" if begin and end else None

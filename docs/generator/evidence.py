"""What the README shows of committed records and benchmarks: a chart, badges, and five numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from generator import advisories
from generator.program import project, suite
from tfimg import __version__
from tfimg.core.levels import Level
from tfimg.matrix.devices import CPU, GPU
from tfimg.project.project import read_record

_COLOURS = """\
.c { --text: #1f2328; --soft: #59636e; --bar: #8c959f; --tfimg: #0969da }
@media (prefers-color-scheme: dark) { .c { --text: #f0f6fc; --soft: #9198a1; --bar: #656c76; --tfimg: #4493f8 } }
.c text { font: 13px system-ui, sans-serif; fill: var(--text) }
.c .title { font-weight: 600 }
.c .small { font-size: 12px; fill: var(--soft) }
.c rect { fill: var(--bar) }
.c .tfimg { fill: var(--tfimg) }"""

_CHARACTER = 6.6
"""Pixels of a character of a badge, at most: 11 px DejaVu Sans."""


def _benchmark(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (project().workspace.root / ".github/benchmarks" / f"{name}.json").read_text("utf-8")
    )
    return found


def _medians(name: str, figure: str) -> tuple[float, float]:
    """Return a figure of tfimg and of one `pip install` in a Dockerfile."""
    found = {one["contestant"]: one["median"] for one in _benchmark(name)["results"] if one["figure"] == figure}
    return found["tfimg"], found["plain"]


def count_proven() -> dict[str, tuple[int, int]]:
    """Return the proven images and all images of amd64 by device: CPU images are validated, others at least linked."""
    found = project()
    totals: Counter[str] = Counter()
    proven: Counter[str] = Counter()
    for spec in found.specs:
        if spec.platform == "linux/amd64" and spec.variant == "runtime":
            totals[spec.device] += 1
            needed = Level.VALIDATED if spec.device == CPU else Level.LINKED
            proven[spec.device] += found.statuses[spec.identifier].level >= needed
    return {device: (proven[device], totals[device]) for device in totals}


def numbers() -> str:
    """Return the five numbers as a list."""
    ours, plain = _medians("gpu", "run")
    size, plain_size = _medians("gpu", "size")
    family, plain_family = _medians("family", "family-bytes")
    proven = count_proven()
    on_gpu = sum(bool(status.gpu) for status in project().statuses.values())
    records = (read_record(project().workspace, spec.identifier) for spec in project().specs if spec.device == CPU)
    names = [set(record.passed) for record in records if record and record.level == Level.VALIDATED]
    passed = [len(one) for one in names]
    checks = _count_checks(set.union(*names))
    newer = "" if {checks} == set(passed) else f"; today's suite has {checks} for them"
    patch = _benchmark("patch")
    lines = (
        f"**{plain / ours:.1f} times faster**: a cold GPU image imports TensorFlow after {ours:.0f} s; "
        f"`pip install` in a Dockerfile takes {plain:.0f} s.",
        f"**{1 - size / plain_size:.0%} smaller**: {size / 1e9:.2f} GB instead of {plain_size / 1e9:.2f}; "
        f"five images of a family share {family / 1e9:.1f} GB instead of {plain_family / 1e9:.1f}.",
        f"**CPU images: {_of(proven[CPU])} validated; GPU images: {_of(proven[GPU])} linked**: they passed every check "
        f"that needs no GPU; {on_gpu or 'none'} ran on a GPU so far.",
        f"**{' to '.join(map(str, sorted({min(passed), max(passed)})))} checks** passed in each of these CPU images"
        f"{newer}.",
        f"**{patch['seconds']} s from an advisory to a patched, validated image**; "
        f"{patch['pulled_bytes'] / patch['image_bytes']:.0%} of its bytes are pulled again.",
    )
    return "".join(f"- {line}\n" for line in lines)


def _count_checks(passed: set[str]) -> int:
    """Return how many checks of today's suite are about CPU images: those `passed`, and newer ones.

    Checks of variants, of the longest profile, and of packages that no record has, are left out.
    """
    found = suite("checks").CHECKS.items()
    return sum(
        name in passed or (CPU in one.devices and not (one.packages or one.variants) and one.profile != "full")
        for name, one in found
    )


def _of(pair: tuple[int, int]) -> str:
    return f"all {pair[1]}" if pair[0] == pair[1] else f"{pair[0]} of {pair[1]}"


def pictures() -> Iterator[tuple[str, str]]:
    """Yield the name and SVG of the chart and of each badge."""
    yield "chart", _draw_chart()
    for badge in _list_badges():
        yield badge.file, _draw_badge(badge)


@dataclass(frozen=True)
class Badge:
    """A badge of the README, with the file that it links to."""

    name: str
    value: str
    target: str
    colour: str = "#0a5c9e"

    @property
    def file(self) -> str:
        """The name of its picture, without the ending."""
        return f"badge-{self.name.replace(' ', '-')}"


CI = "../../actions/workflows/check.yml"
"""The workflow, relative to the README as GitHub shows it: no address is needed, and a fork has its own."""


def badges() -> str:
    """Return all badges as Markdown: that of CI is the service's own."""
    own = (f"[![{one.name}](docs/_static/{one.file}.svg)]({one.target})" for one in _list_badges())
    return " ".join([f"[![checks]({CI}/badge.svg)]({CI})", *own]) + "\n"


def _list_badges() -> Iterator[Badge]:
    images = [sum(part) for part in zip(*count_proven().values(), strict=True)]
    last = max(status.date for status in project().statuses.values() if status.date)
    yield Badge("images proven", f"{images[0]} of {images[1]}", "docs/reference/proofs.md")
    yield Badge("last proof", str(last)[:10], "docs/reference/proofs.md")
    if audit := advisories.read():
        count = advisories.count_open(audit)
        value = f"{count} on {audit['date']}"
        yield Badge("advisories open", value, "docs/reference/advisories.md", advisories.choose_colour(count))
    yield Badge("release", __version__, "docs/CHANGELOG.md")
    yield Badge("licence", "Apache-2.0", "LICENSE")


def _draw_chart() -> str:
    groups = (
        ("GPU image, until TensorFlow is imported", _medians("gpu", "run"), "{:.0f} s", 1),
        ("The same for a second Python", _medians("family", "second"), "{:.0f} s", 1),
        ("Five GPU and CPU images, in a registry", _medians("family", "family-bytes"), "{:.1f} GB", 1e9),
    )
    parts = []
    for number, (title, (ours, plain), form, unit) in enumerate(groups):
        top = 8 + 76 * number
        parts.append(f'<text class="title" x="0" y="{top + 12}">{title}</text>')
        for row, (name, value, style) in enumerate((("tfimg", ours, "tfimg"), ("pip install", plain, "plain"))):
            y = top + 20 + 22 * row
            width = 230 * value / max(ours, plain)
            parts.append(f'<text x="0" y="{y + 13}">{name}</text>')
            parts.append(f'<rect class="{style}" x="80" y="{y}" width="{width:.0f}" height="17" rx="2"/>')
            parts.append(f'<text x="{86 + width:.0f}" y="{y + 13}">{form.format(value / unit)}</text>')
    cold = "Nothing cached but the base; two cores; validation not included"
    parts.append(f'<text class="small" x="0" y="248">{cold}</text>')
    label = "tfimg against one pip install in a Dockerfile"
    return _svg(400, 254, label, f"<style>\n{_COLOURS}\n</style>\n" + "\n".join(parts))


def _draw_badge(badge: Badge) -> str:
    name, value = badge.name, badge.value
    left, right = (round(len(text) * _CHARACTER) + 12 for text in (name, value))
    return _svg(
        left + right, 20, f"{name}: {value}",
        f'<rect width="{left + right}" height="20" rx="3" fill="{badge.colour}"/>'
        f'<rect width="{left}" height="20" rx="3" fill="#444d56"/>\n'
        f'<g fill="#fff" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">{name}</text><text x="{left + right / 2}" y="14">{value}</text></g>',
    )  # fmt: skip


def _svg(width: int, height: int, label: str, content: str) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="c" {size} role="img" aria-label="{label}">'
    return f"{head}\n{content}\n</svg>\n"

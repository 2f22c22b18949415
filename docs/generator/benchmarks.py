"""What benchmarks have measured, as parts of pages: plots as wide as the page and in its theme, and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from generator.markdown import code, escape, table
from tfimg.core.paths import find_workspace

_SIZE = re.compile(r'width="\d+" (height="\d+") viewBox="[^"]+"')


def benchmark(name: str) -> str:
    """Return a committed plot as inline SVG in Markdown."""
    file = find_workspace({}).root / ".github/benchmarks" / f"{name}.svg"
    plot = _SIZE.sub(r'width="100%" \1', file.read_text("utf-8"), count=1)
    return f"````{{raw}} html\n{plot}\n````\n"


def patch() -> str:
    """Return what it took to come from an advisory to a patched image."""
    found = json.loads((find_workspace({}).root / ".github/benchmarks/patch.json").read_text())
    stages, pulled, size = found["stages"], found["pulled_bytes"], found["image_bytes"]
    return (
        f"From an advisory about {code(found['package'])} in {found['image']} to a validated image with its fix, on "
        f"two cores on {found['date']}: {found['seconds']} s, {found['ratio']} times what building and validating the "
        f"image takes in the same run. `tfimg matrix audit` takes {stages['audit']} s of it, `tfimg matrix lock --fix` "
        f"{stages['fix']} s, the build {stages['after']} s and the suite {stages['suite of after']} s. Who has the "
        f"image pulls {pulled / 1e6:.1f} MB of its {size / 1e6:.1f} again, {pulled / size:.0%}.\n"
    )


def packages() -> str:
    """Return what became of popular packages beside releases of TensorFlow."""
    return show_packages(json.loads((find_workspace({}).root / ".github/benchmarks/packages.json").read_text()))


def show_packages(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of pairs, and why some are refused or fail."""
    found = {(one["package"], one["image"]): one for one in pairs}
    images = list(dict.fromkeys(one["image"] for one in pairs))
    names = dict.fromkeys(one["package"] for one in pairs)
    rows = [[code(name), *(_cell(found.get((name, image))) for image in images)] for name in names]
    refusals = "".join(f"\n{line}\n" for one in pairs for line in _explain(one))
    days = sorted(one["resolved"] for one in pairs)
    heads = ("package", *(image.partition("-")[0] for image in images))
    span = " to ".join(dict.fromkeys((days[0], days[-1])))
    return f"Measured on {span}.\n\n{table(heads, rows, '.even')}\n## Refusals and failures\n{refusals}"


def _cell(pair: Mapping[str, Any] | None) -> str:
    if pair is None:
        return "-"
    if pair["version"] is None:
        return f"[refused](#{_anchor(pair)})"
    version = escape(pair["version"])
    if pair["problems"]:
        return f"[{version} fails](#{_anchor(pair)})"
    marks = ["*"] * bool(pair["debian"]) + ["†"] * bool(pair["sources"]) + ["?"] * (pair["problems"] is None)
    return f"{version}{' '.join(['', *map(escape, marks)])}"


def _explain(pair: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is known of a pair that is refused or fails, under an anchor."""
    if pair["refusal"] or pair["problems"]:
        head = f"**{escape(pair['package'])} beside {pair['image'].partition('-')[0]}**"
        checked = f" (checked by hand on {pair['checked']})" if pair.get("checked") else ""
        yield f"({_anchor(pair)})=\n\n{head}: {escape(pair['refusal'] or ' '.join(pair['problems']))}{checked}"


def _anchor(pair: Mapping[str, Any]) -> str:
    return f"{pair['package']}-{pair['image']}".replace(".", "-")

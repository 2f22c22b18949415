"""The plots of the image benchmark as parts of a page: as wide as it is, and in its theme."""

from __future__ import annotations

import re

from tfimg.core.paths import find_workspace

_SIZE = re.compile(r'width="\d+" (height="\d+") viewBox="[^"]+"')


def benchmark(name: str) -> str:
    """Return a committed plot as inline SVG in Markdown."""
    file = find_workspace({}).root / ".github/benchmarks" / f"{name}.svg"
    plot = _SIZE.sub(r'width="100%" \1', file.read_text("utf-8"), count=1)
    return f"````{{raw}} html\n{plot}\n````\n"

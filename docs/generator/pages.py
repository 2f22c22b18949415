"""Write what is generated into README and pages and draw README's pictures, for GitHub, which renders them as they are:

.venv/bin/python docs/generator/pages.py
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parents[1]

if __name__ == "__main__":
    sys.path[:0] = [str(DOCS), str(DOCS.parent / "builder")]
    from generator import fill_for_github
    from generator.evidence import pictures

    for name, picture in pictures():
        (DOCS / "_static" / f"{name}.svg").write_text(picture, encoding="utf-8")
    for page in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        if (filled := fill_for_github(text)) != text:
            page.write_text(filled, encoding="utf-8")

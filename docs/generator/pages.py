"""Write what is generated into README and pages, which GitHub renders as they are; pictures, the selector's answers:

.venv/bin/python docs/generator/pages.py
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parents[1]

if __name__ == "__main__":
    sys.path[:0] = [str(DOCS), str(DOCS.parent / "builder")]
    from generator import answers, fill_for_github
    from generator.evidence import pictures

    for name, picture in pictures():
        (DOCS / "_static" / f"{name}.svg").write_text(picture, encoding="utf-8")
    for page in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        if (filled := fill_for_github(text)) != text:
            page.write_text(filled, encoding="utf-8")
    if answers.is_stale():
        print(f"{answers.FILE.name} is of another matrix or resolver: it is made again, in minutes.")
        answers.write()

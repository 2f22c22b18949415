"""The page beside a model of TensorFlow.js, which loads it in a browser and answers on inputs of the proof."""

from __future__ import annotations

import shutil
from pathlib import Path

from tfimg.export.javascript import FILES, file_name

EXAMPLES = "examples.json"
"""Inputs of the proof with the original's answers, which the container writes."""

SCRIPTS = ("run.js", "page.js")


def write_page(folder: Path, *, program: Path, javascript: Path, examples: Path) -> None:
    """Write the page into the folder of a model: only the examples are the container's, which are data."""
    shutil.copyfile(program / "tfjs/page.html", folder / "index.html")
    for name in SCRIPTS:
        shutil.copyfile(program / "tfjs" / name, folder / name)
    for package in FILES:
        shutil.copyfile(javascript / file_name(package), folder / file_name(package))
    shutil.copyfile(examples, folder / EXAMPLES)

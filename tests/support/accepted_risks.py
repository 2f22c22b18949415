"""The accepted risks of a copy of matrix.yaml."""

import re
from pathlib import Path

BLOCK = re.compile(r"^accepted_risks:\n(?:(?: .*|#.*)?\n)*", re.MULTILINE)
"""The key with its indented lines, comments and empty lines."""


def replace_risks(matrix: Path, entries: str) -> None:
    """Replace all accepted risks by `entries`, the lines below the key; by none if they are empty."""
    text = BLOCK.sub("", matrix.read_text())
    matrix.write_text(f"{text}\naccepted_risks:\n{entries}" if entries else text)

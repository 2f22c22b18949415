"""Edits of the good small matrix, in files that also have the messages about the result."""

from collections.abc import Iterator
from typing import NamedTuple

from support.paths import DATA

FOLDER = DATA / "matrix"
GOOD = (FOLDER / "base.yaml").read_text()
"""rows[0]: 2.15.0 and 2.15.1, for CPU, GPU, TPU and arm64. rows[1]: 2.16.1 for CPU, and TPU without its libtpu."""


class MatrixEdit(NamedTuple):
    """A paragraph of such a file. Edits are as `diff` writes them; a matrix without edits is a file of its own."""

    name: str
    edits: str
    reported: list[str]

    def text(self) -> str:
        if not self.edits:
            return (FOLDER / f"{self.name}.yaml").read_text()
        text = GOOD
        for edit in self.edits.split("\n@@\n"):
            lines = edit.split("\n")
            old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in signs) for signs in (" -", " +"))
            assert text.count(old) == 1, f"{old!r} is not in the text once"
            text = text.replace(old, new)
        return text


def read_edits(name: str) -> Iterator[MatrixEdit]:
    """Read `# name`, the edits, and `! message`, up to an empty line."""
    for paragraph in (FOLDER / name).read_text().strip().split("\n\n"):
        title, *lines = paragraph.split("\n")
        edits = "\n".join(line for line in lines if not line.startswith("! "))
        reported = [line.removeprefix("! ") for line in lines if line.startswith("! ")]
        yield MatrixEdit(title.removeprefix("# "), edits, reported)

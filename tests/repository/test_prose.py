"""Spelling, and terms that the project does not use, in documentation, docstrings, comments and messages.

The lists are in `tests/data/prose`: `words.txt` has words that codespell takes for errors, `terms.txt` the terms.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "tests/data/prose"
FOLDERS = ("README.md", ".github", ".gitlab", "builder", "docs", "images", "matrix.yaml", "pyproject.toml")
WRITTEN_BY_TFIMG = ("images/records/", "images/locks/", "images/rendered/", "builder/requirements.txt")
SUFFIXES = (".css", ".html", ".js", ".j2", ".md", ".py", ".sh", ".toml", ".yaml", ".yml")


@cache
def read_terms() -> dict[re.Pattern[str], str]:
    lines = [line for line in (LISTS / "terms.txt").read_text().splitlines() if not line.startswith("#")]
    pairs = [line.rpartition(" | ") for line in lines]
    return {re.compile(rf"\b(?:{term})\b".replace(" ", r"\s+"), re.IGNORECASE): better for term, _, better in pairs}


def list_files(*folders: str) -> list[str]:
    done = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [
        name
        for name in done.stdout.splitlines()
        if name.endswith(SUFFIXES) and not name.startswith(WRITTEN_BY_TFIMG) and (ROOT / name).is_file()
    ]


def find_prose(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the prose of a file with its first line: all of Markdown, comments and strings of Python."""
    if name.endswith(".md"):
        yield 1, text
    elif name.endswith(".py"):
        comments: list[tuple[int, str]] = []
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.STRING:
                yield token.start[0], token.string
            elif token.type == tokenize.COMMENT:
                comments.append((token.start[0], token.string))
        yield from comments
    elif name.endswith((".sh", ".toml", ".yaml", ".yml")):
        for number, line in enumerate(text.splitlines(), start=1):
            if line.lstrip().startswith("#"):
                yield number, line


def find_terms(name: str, text: str) -> Iterator[str]:
    for first, prose in find_prose(name, text):
        for pattern, better in read_terms().items():
            for found in pattern.finditer(prose):
                line = first + prose[: found.start()].count("\n")
                yield f"{name}:{line}: {' '.join(found[0].split())!r} → {better}"


def test_the_spelling_is_right() -> None:
    files = list_files(*FOLDERS, "tests")
    command = [sys.executable, "-m", "codespell_lib", f"--ignore-words={LISTS / 'words.txt'}", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_terms_that_the_project_does_not_use_are_absent() -> None:
    found = [problem for name in list_files(*FOLDERS) for problem in find_terms(name, (ROOT / name).read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.md", "One.\nThe tag leads\nto an image.", 2),
        ("a.py", 'ONE = 1\nraise Error("X is none.")', 2),
        ("a.py", "ONE = None  # as nobody sets it", 1),
        ("a.yml", "a: b\n# Somebody starts it.", 2),
    ],
)
def test_a_term_is_found_with_its_line(name: str, text: str, line: int) -> None:
    (problem,) = find_terms(name, text)
    assert problem.startswith(f"{name}:{line}: ")


@pytest.mark.parametrize("text", ["if one is None: pass", '"there is none"', "nobody = 1", '"None"'])
def test_code_and_plain_answers_are_not_terms(text: str) -> None:
    assert not [*find_terms("a.py", text)]

"""Spelling, and terms that the project does not use, in documentation, docstrings, comments and messages.

The lists are in `tests/data/prose`: `words.txt` has words that codespell takes for errors, `terms.txt` the terms.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from identify.identify import tags_from_path

import tfimg
from support.paths import ROOT
from support.shell_blocks import blocks

LISTS = ROOT / "tests/data/prose"
FOLDERS = ("README.md", ".github", ".gitlab", "builder", "docs", "examples", "images", "matrix.yaml", "pyproject.toml")
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


UNCLEAR = re.compile(
    r"(?<![a-z])(told|asked|here|story|nobody|somebody|someone|anybody|everybody|whoever)(?![a-z])", re.IGNORECASE
)
"""Words that tests use in no name, comment and docstring: they leave out who does what, and where."""


def find_unclear_words(name: str, text: str) -> Iterator[str]:
    """Yield the terms and unclear words in names, comments and docstrings; other strings may quote the program."""
    parts = [(line, prose) for line, prose in find_prose(name, text) if prose.startswith("#")]
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(prose))):
                parts.append((node.lineno, prose))
            case ast.FunctionDef() | ast.ClassDef():
                parts.append((node.lineno, node.name))
            case ast.arg():
                parts.append((node.lineno, node.arg))
            case ast.Name(id=stored, ctx=ast.Store()) | ast.Attribute(attr=stored, ctx=ast.Store()):
                parts.append((node.lineno, stored))
    for line, prose in parts:
        for pattern in (UNCLEAR, *read_terms()):
            yield from (f"{name}:{line}: {found[0]!r}" for found in pattern.finditer(prose))


def test_the_spelling_is_right() -> None:
    files = list_files(*FOLDERS, "tests")
    command = [sys.executable, "-m", "codespell_lib", f"--ignore-words={LISTS / 'words.txt'}", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_terms_that_the_project_does_not_use_are_absent() -> None:
    found = [problem for name in list_files(*FOLDERS) for problem in find_terms(name, (ROOT / name).read_text())]
    assert not found, "\n".join(found)


def test_tests_say_who_does_what() -> None:
    files = [name for name in list_files("tests") if name.endswith(".py") and (ROOT / name) != Path(__file__)]
    found = [problem for name in files for problem in find_unclear_words(name, (ROOT / name).read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("told = 1", 1), ("def f(asked: int, *, here: int = 1) -> None: ...", 2), ('"""It is told so."""', 1),
        ("# what is in the way", 1), ("x = 1  # as it is told", 1),
        ("x.here = y.here", 1), ('f("it was told here")', 0), ("there = 1", 0),
    ],
)  # fmt: skip
def test_an_unclear_word_is_found_in_names_comments_and_docstrings(text: str, count: int) -> None:
    assert len([*find_unclear_words("a.py", text)]) == count


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


@pytest.mark.parametrize("command", [["ruff", "format", "--check"], ["ruff", "check"], ["mypy"]], ids=" ".join)
def test_clean(command: list[str]) -> None:
    files = [] if command == ["mypy"] else [".", *list_programs()]
    done = subprocess.run(
        [sys.executable, "-m", *command, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def list_programs() -> list[str]:
    """Return the files without a suffix that pre-commit takes for Python by their first line, and passes to ruff."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in done.stdout.splitlines() if not Path(name).suffix]
    return [str(path) for path in paths if path.is_file() and "python" in tags_from_path(str(path))]


def test_a_type_checker_accepts_the_examples_of_the_api(tmp_path: Path) -> None:
    page = ROOT / "docs/reference/python-api.md"
    examples = [block.text for block in blocks(page) if block.language == "python"]
    for number, example in enumerate(examples):
        (tmp_path / f"example_{number}.py").write_text(example)
    command = [sys.executable, "-m", "mypy", *sorted(tmp_path.glob("*.py"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, len(examples)) == (0, 2), done.stdout


PAGES = ("CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "PULL_REQUEST_TEMPLATE.md", "SECURITY.md")
TOP_LEVEL = {
    *(
        ".ci",
        ".devcontainer",
        ".gitattributes",
        ".github",
        ".gitignore",
        ".gitlab",
        ".pre-commit-config.yaml",
        "LICENSE",
        "README.md",
    ),
    *("builder", "docs", "examples", "images", "matrix.yaml", "pyproject.toml", "tests"),
}
LINK = re.compile(r"\]\((?!https://)([^)#]+)")


def test_the_top_level_has_nothing_else() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name.partition("/")[0] for name in done.stdout.splitlines()} <= TOP_LEVEL


@pytest.mark.parametrize("name", PAGES)
def test_links_of_a_page_on_github_point_to_files(name: str) -> None:
    page = ROOT / ".github" / name
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).is_file()] == []


def test_the_security_page_names_the_threat_model_and_private_reports() -> None:
    text = (ROOT / ".github/SECURITY.md").read_text()
    assert "docs/concepts/trust.md" in LINK.findall(text)[0]
    assert "Report a vulnerability" in text


def test_the_changelog_has_a_section_of_this_version_first() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "docs/CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in (tfimg.__version__, "Unreleased")
    assert tfimg.__version__ in headings

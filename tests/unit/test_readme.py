"""README and the pages for contributors agree with the checkout beside them."""

from __future__ import annotations

import re

from support.shell_blocks import blocks
from tfimg.core.paths import Workspace
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.support import insert_table


def test_its_support_table_is_what_the_program_writes(workspace: Workspace) -> None:
    project = Project(services=Services(environ={"TFIMG_WORKSPACE": str(workspace.root)}))
    text = workspace.readme.read_text()
    assert insert_table(text, project.support) == text


def test_it_is_one_page_and_starts_with_the_problem(workspace: Workspace) -> None:
    text = workspace.readme.read_text()
    assert len(text.splitlines()) <= 150
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["The problem", "Start", "Use", "Images", "More"]
    assert len(re.findall(r"^tfimg is |^tfimg builds ", text, re.MULTILINE)) == 1


def test_no_example_under_use_has_more_than_five_lines(workspace: Workspace) -> None:
    examples = [block for block in blocks(workspace.readme) if block.language == "sh"]
    assert len(examples) >= 7
    assert max(len(block.text.splitlines()) for block in examples) <= 5


def test_it_names_no_file_that_is_missing(workspace: Workspace) -> None:
    text = workspace.readme.read_text()
    addresses = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    paths = {first or second for first, second in addresses}
    assert len(paths) > 20
    assert {path for path in paths if not (workspace.root / path).is_file()} == set()


def test_ci_runs_the_test_command_of_the_readme(workspace: Workspace) -> None:
    lines = (workspace.root / ".ci/run").read_text().splitlines()
    (command,) = [line for line in workspace.readme.read_text().splitlines() if line.endswith(".venv/bin/pytest")]
    assert any(line == command or line.startswith(f"{command} ") for line in lines)


def contributing(workspace: Workspace) -> str:
    return (workspace.root / ".github/CONTRIBUTING.md").read_text()


def test_contributing_is_short_and_starts_with_the_set_up(workspace: Workspace) -> None:
    text = contributing(workspace)
    assert len(text.split()) <= 1500
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["Set-up and tests", "Architecture", "How to add …", "Habits"]


def test_pages_for_contributors_name_files_and_classes_that_exist(workspace: Workspace) -> None:
    root = workspace.root
    pages = (root / "docs/contribute").glob("*.md")
    words = set(re.findall(r"`([^`\n]+)`", contributing(workspace) + "".join(page.read_text() for page in pages)))
    files = {word for word in words if re.fullmatch(r"[\w./-]*/[\w.-]+\.(?:py|yaml|yml|toml|txt|md|json)", word)}
    folders = [root, root / "builder/tfimg", root / "images", root / "images/validation", root / "tests"]
    assert {word for word in files if not any((folder / word).is_file() for folder in folders)} == set()
    names = {word for word in words if re.fullmatch(r"(?:[A-Z][a-z]+)+|_?[a-z]+(?:_[a-z]+)+", word)}
    names -= {file.stem for file in (root / "tests/support").glob("*.py")}
    code = [root / "builder/tfimg", root / "images/validation", root / "tests"]
    sources = "\n".join(file.read_text() for folder in code for file in folder.rglob("*.py"))
    assert {name for name in names if not re.search(rf"^\s*(?:class |def )?{name}\b", sources, re.MULTILINE)} == set()

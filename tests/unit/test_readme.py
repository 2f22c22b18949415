"""README and CONTRIBUTING agree with the checkout beside them."""

from __future__ import annotations

import re

from tfimg.core.paths import Workspace
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.support_table import insert_table


def test_its_support_table_is_what_the_program_writes(workspace: Workspace) -> None:
    project = Project(services=Services(environ={"TFIMG_WORKSPACE": str(workspace.root)}))
    text = workspace.readme.read_text()
    assert insert_table(text, project.support) == text


def test_ci_runs_the_test_command_of_the_readme(workspace: Workspace) -> None:
    lines = (workspace.root / ".ci/run").read_text().splitlines()
    (command,) = [line for line in workspace.readme.read_text().splitlines() if line.endswith(".venv/bin/pytest")]
    assert any(line == command or line.startswith(f"{command} ") for line in lines)


def test_contributing_names_modules_and_classes_that_exist(workspace: Workspace) -> None:
    root = workspace.root
    words = set(re.findall(r"`([^`\n]+)`", (root / ".github/CONTRIBUTING.md").read_text()))
    modules = {word for word in words if re.fullmatch(r"[a-z_/]+/[a-z_]+\.py", word)}
    folders = [root, root / "builder/tfimg", root / "images", root / "images/validation", root / "tests"]
    assert {word for word in modules if not any((folder / word).is_file() for folder in folders)} == set()
    names = {word for word in words if re.fullmatch(r"(?:[A-Z][a-z]+)+", word)}
    code = [root / "builder/tfimg", root / "images/validation", root / "tests/support"]
    sources = "\n".join(file.read_text() for folder in code for file in folder.rglob("*.py"))
    assert {name for name in names if not re.search(rf"^(?:class )?{name}\b", sources, re.MULTILINE)} == set()

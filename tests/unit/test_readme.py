"""The README says what is true of the checkout beside it."""

from __future__ import annotations

from tfimg.cli.app import parse
from tfimg.cli.context import Context
from tfimg.cli.matrix import support_rows
from tfimg.core.paths import Workspace
from tfimg.project.services import Services
from tfimg.recipe.support_table import insert_table


def test_its_support_table_is_what_the_program_writes(workspace: Workspace) -> None:
    context = Context(parse(["matrix"]), Services(environ={"TFIMG_WORKSPACE": str(workspace.root)}))
    text = workspace.readme.read_text()
    assert insert_table(text, support_rows(context)) == text


def test_ci_runs_the_test_command_of_the_readme(workspace: Workspace) -> None:
    lines = (workspace.root / ".ci/run").read_text().splitlines()
    (command,) = [line for line in workspace.readme.read_text().splitlines() if line.endswith(".venv/bin/pytest")]
    assert any(line == command or line.startswith(f"{command} ") for line in lines)

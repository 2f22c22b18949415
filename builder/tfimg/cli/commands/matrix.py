"""`tfimg matrix`: the table of what is compatible."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, RepositoryOptions, flag, output_option
from tfimg.cli.output.streams import fold
from tfimg.cli.output.tables import COLOURS, Table, print_table
from tfimg.core.errors import UsageError
from tfimg.core.files import write_atomically
from tfimg.project.project import Project
from tfimg.recipe import support

FORMS = {".json": "json", ".html": "html", ".md": "markdown"}
"""Ends of file names → the form that they ask for; any other end asks for the table."""


@dataclass(frozen=True)
class ShowMatrix(Command, RepositoryOptions):
    """Show which versions are compatible with each release, and what is proven.

    Examples:
      tfimg matrix --html --output matrix.html
    """

    markdown: bool = flag("print the support table as Markdown")
    html: bool = flag("print a searchable page that needs no network")
    output: str | None = output_option("write to a file; .html, .md and .json choose the form, as the options do")

    alternatives = (("--markdown", "markdown"), ("--html", "html"))

    def run(self, context: Context) -> int:
        if context.json and (self.html or self.markdown):
            raise UsageError("--json cannot be combined with another form.", next_step="Drop one of the two.")
        form = "json" if context.json else "html" if self.html else "markdown" if self.markdown else None
        form = form or FORMS.get(Path(self.output or "").suffix.lower())
        project = context.project(repository=self.repository)
        facts = project.matrix, project.specs, project.statuses
        if form == "json":
            text = json.dumps(support.make_matrix_document(*facts, repository=project.repository)) + "\n"
        elif form == "html":
            text = support.render_matrix(*facts, repository=project.repository, made=project.services.today)
        elif form == "markdown":
            text = support.render_markdown(project.support)
        elif self.output is not None:
            notes = "".join(f"{note}\n" for note in self._list_notes(project))
            text = f"{_support_table(project.support, support.FULL_COLUMNS).render()}\n{notes}"
        else:
            print_support(project.support)
            print()
            for note in self._list_notes(project):
                print(fold(note) if sys.stdout.isatty() else note)
            return 0
        if self.output is None:
            print(text, end="")
        else:
            write_atomically(Path(self.output), text)
            context.say(f"wrote {self.output}")
        return 0

    def _list_notes(self, project: Project) -> tuple[str, ...]:
        return support.list_notes(project.support) + support.list_exporters(project.matrix)


def print_support(rows: Sequence[support.Support]) -> None:
    print_table(_support_table(rows, columns) for columns in support.SUPPORT_FORMS)


def _support_table(rows: Sequence[support.Support], columns: support.Columns) -> Table:
    cells = [[text(row) for _, text in columns] for row in rows]
    return Table([name.upper() for name, _ in columns], cells, colours={"PROVEN": COLOURS}, gap=1)

"""`tfimg matrix`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, RepositoryOptions, flag, output_option
from tfimg.core.errors import UsageError

FORMS = {".json": "json", ".html": "html", ".md": "markdown"}
"""Ends of file names → the option whose form they ask for; any other end asks for the table."""


@dataclass(frozen=True, kw_only=True)
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
        from tfimg.cli.output.image_tables import print_notes, print_support, support_text
        from tfimg.core.files import write_atomically
        from tfimg.recipe.support import make_matrix_document, render_markdown, render_matrix

        if self.json and (self.html or self.markdown):
            raise UsageError("--json cannot be combined with another form.", next_step="Drop one of the two.")
        form = next((form for form in FORMS.values() if getattr(self, form)), None)
        form = form or FORMS.get(Path(self.output or "").suffix.lower())
        project = context.project
        facts = project.matrix, project.specs, project.statuses
        if form == "json":
            text = json.dumps(make_matrix_document(*facts, repository=project.repository)) + "\n"
        elif form == "html":
            text = render_matrix(*facts, repository=project.repository, made=project.services.today)
        elif form == "markdown":
            text = render_markdown(project.support)
        elif self.output is not None:
            text = support_text(project.support)
        else:
            print_support(project.support)
            print()
            print_notes(project.support)
            return 0
        if self.output is None:
            print(text, end="")
        else:
            write_atomically(Path(self.output), text)
            context.say(f"wrote {self.output}")
        return 0

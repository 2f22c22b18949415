"""`tfimg sync`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from functools import partial

from tfimg.cli.context import Context
from tfimg.cli.options import Command, flag
from tfimg.core.errors import StaleFiles


@dataclass(frozen=True, kw_only=True)
class Sync(Command):
    """Add releases that the package index has and the matrix lacks.

    Examples:
      tfimg sync --check
    """

    check: bool = flag("write nothing; fail if a release is missing")

    def run(self, context: Context) -> int:
        from tfimg.cli.output.transfers import render_count
        from tfimg.core.files import write_atomically
        from tfimg.matrix.propose import propose_rows
        from tfimg.matrix.survey import is_missing, survey_index

        path, lacks = context.project.workspace.matrix, partial(is_missing, context.project.matrix)
        with render_count(context, "wheels read") as on_progress:
            survey = survey_index(
                context.project.matrix, context.services.index(), is_selected=lacks, on_progress=on_progress
            )
        missing = sorted(filter(lacks, survey.releases))
        text = path.read_text(encoding="utf-8")
        proposed = propose_rows(text, survey, missing, today=context.services.today) if missing else text
        names = [str(version) for version in missing]
        lines = (text.splitlines(keepends=True), proposed.splitlines(keepends=True))
        difference = "".join(difflib.unified_diff(*lines, path.name, path.name))
        none_missing = "The matrix has every release of the package index."
        context.print_result({"missing": names, "difference": difference}, difference.rstrip("\n") or none_missing)
        if missing and self.check:
            raise StaleFiles(
                f"The matrix lacks {', '.join(names)}.", next_step="Run `tfimg sync`, and confirm what it marks."
            )
        if missing:
            write_atomically(path, proposed)
            context.say(f"{path.name} has {', '.join(names)} now: confirm what is marked, then run `tfimg lock`.")
            _ = replace(context.project).matrix  # read again, to report now what is still wrong with it
        return 0

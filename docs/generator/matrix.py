"""The searchable matrix, and a page for each committed validation report, to which it links."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from generator.program import project
from tfimg.project.project import read_record
from tfimg.recipe.support import render_matrix
from tfimg.validation.report import Report, format_page

REPORTS = "reports"
"""Folder of the site."""


def matrix() -> str:
    """Return the matrix as HTML in Markdown."""
    found = project()
    part = render_matrix(
        found.matrix,
        found.specs,
        found.statuses,
        repository=found.repository,
        made=found.services.today,
        reports=report_links(),
        is_part=True,
    )
    return f"````{{raw}} html\n{part}\n````\n"


def report_links() -> dict[str, str]:
    """Return the addresses of the reports' pages by identifier."""
    return {identifier: f"{REPORTS}/{identifier}.html" for identifier in _reports()}


def write_reports(folder: Path) -> None:
    """Write the committed reports as pages into a built site."""
    for identifier, report in _reports().items():
        target = folder / REPORTS / f"{identifier}.html"
        target.parent.mkdir(exist_ok=True)
        target.write_text(format_page(report), encoding="utf-8")


@cache
def _reports() -> Mapping[str, Report]:
    """Return the reports that count as records, by identifier."""
    found = project()
    proven = (identifier for identifier, status in found.statuses.items() if status.date)
    return {name: record.to_report() for name in proven if (record := read_record(found.workspace, name))}

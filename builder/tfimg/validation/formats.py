"""A report in the form that a file's name asks for: JSON for programs, JUnit XML for CI, a page for people."""

from __future__ import annotations

import json
from pathlib import Path

from tfimg.core.text import to_strict_json
from tfimg.validation.report import Report

REPORT_SUFFIXES = (".json", ".xml", ".html")
"""Of the files that a report can be written to."""


def format_report(report: Report, name: str) -> str:
    """The report in the form that the name of its file asks for. The heavy libraries load when they are needed."""
    suffix = Path(name).suffix.lower()
    if suffix == ".xml":
        from tfimg.validation.junit import junit

        return junit(report)
    if suffix == ".html":
        from tfimg.validation.page import page

        return page(report)
    return format_json(report)


def format_json(report: Report) -> str:
    """The report as JSON that every parser takes, as images/report.schema.json describes it."""
    return json.dumps(to_strict_json(report.to_json()), indent=2, allow_nan=False) + "\n"

"""A report in the format of its file: JSON, JUnit XML or HTML."""

from __future__ import annotations

import json
from pathlib import Path

from tfimg.core.text import to_strict_json
from tfimg.validation.report import Report

REPORT_SUFFIXES = (".json", ".xml", ".html")


def format_report(report: Report, name: str) -> str:
    """Return the report in the format of the file name's suffix. The libraries load when they are needed."""
    suffix = Path(name).suffix.lower()
    if suffix == ".xml":
        from tfimg.validation.junit import format_junit

        return format_junit(report)
    if suffix == ".html":
        from tfimg.validation.page import format_page

        return format_page(report)
    return format_json(report)


def format_json(report: Report) -> str:
    """Return the report as strict JSON (images/report.schema.json)."""
    return json.dumps(to_strict_json(report.to_json()), indent=2, allow_nan=False) + "\n"

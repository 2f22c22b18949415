"""`tfimg list`, `resolve` and `schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tfimg.matrix.schema import Matrix

if TYPE_CHECKING:
    from tfimg.cli.commands.schema import Schema


def schema(command: Schema) -> int:
    """`tfimg schema [matrix | report]`."""
    print(report_schema_text() if command.document == "report" else schema_text(), end="")
    return 0


def schema_text() -> str:
    """Return the JSON Schema of the matrix, as the committed file has it."""
    return json.dumps(Matrix.model_json_schema(), indent=2) + "\n"


def report_schema_text() -> str:
    """Return the JSON Schema of a report, as the committed file has it."""
    from tfimg.validation.schema import schema_text as text

    return text()

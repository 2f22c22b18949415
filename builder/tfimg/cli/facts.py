"""`tfimg list`, `resolve` and `schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.core.errors import UnsupportedPlatform
from tfimg.matrix.resolve.selection import select_specs
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

if TYPE_CHECKING:
    from tfimg.cli.commands.list_images import ListImages
    from tfimg.cli.commands.resolve import Resolve
    from tfimg.cli.commands.schema import Schema


def list_images(command: ListImages, context: Context) -> int:
    """`tfimg list [PATTERNS]`."""
    rows = [context.project.describe(spec) for spec in select_specs(context.project.specs, command.patterns)]
    if context.command.json:
        context.emit(rows)
    else:
        from tfimg.cli.output.image_tables import print_images

        print_images(rows)
    return 0


def resolve(command: Resolve, context: Context) -> int:
    """`tfimg resolve [--explain]`."""
    found = context.resolve(command)
    row = context.project.describe(found.spec)
    reasons = {"explanation": list(found.explanation)} if command.explain else {}
    notes = [*found.notes, *_explain_unbuildable(found.spec)]
    if context.command.json:
        context.emit({**row, "notes": notes, **reasons})
    else:
        from tfimg.cli.fields import print_fields

        print_fields({**row, "notes": notes or None, **reasons})
    return 0


def _explain_unbuildable(spec: ImageSpec) -> list[str]:
    from tfimg.recipe.describe import require_buildable

    try:
        require_buildable(spec)
    except UnsupportedPlatform as error:
        return [f"It cannot be built: {error.what}"]
    return []


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

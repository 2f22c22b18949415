"""`tfimg list`, `resolve` and `schema`."""

from __future__ import annotations

import json

from tfimg.cli.context import Context
from tfimg.core.errors import UnsupportedPlatform
from tfimg.matrix.resolve.selection import select_specs
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec


def list_images(context: Context) -> int:
    """`tfimg list [PATTERNS]`."""
    rows = [context.project.describe(spec) for spec in select_specs(context.project.specs, context.arguments.patterns)]
    if context.arguments.json:
        context.emit(rows)
    else:
        from tfimg.cli.show import print_images

        print_images(rows)
    return 0


def resolve(context: Context) -> int:
    """`tfimg resolve [--explain]`."""
    found = context.resolve()
    row = context.project.describe(found.spec)
    reasons = {"explanation": list(found.explanation)} if context.arguments.explain else {}
    notes = [*found.notes, *_explain_unbuildable(found.spec)]
    if context.arguments.json:
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


def schema(context: Context) -> int:
    """`tfimg schema [matrix | report]`."""
    print(report_schema_text() if context.arguments.document == "report" else schema_text(), end="")
    return 0


def schema_text() -> str:
    """Return the JSON Schema of the matrix, as the committed file has it."""
    return json.dumps(Matrix.model_json_schema(), indent=2) + "\n"


def report_schema_text() -> str:
    """Return the JSON Schema of a report, as the committed file has it."""
    from tfimg.validation.schema import schema_text as text

    return text()

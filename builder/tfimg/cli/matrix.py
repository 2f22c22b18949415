"""`tfimg matrix`: what goes together in each release, and what is proven, in four forms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfimg.cli.context import Context
from tfimg.cli.report_files import require_writable
from tfimg.core.errors import UsageError
from tfimg.core.files import write_atomically
from tfimg.core.levels import LEVELS
from tfimg.matrix.gpus import find_execution_mode
from tfimg.matrix.schema import Gpu, Matrix, minor_version
from tfimg.recipe.describe import describe_matrix_image, format_request
from tfimg.recipe.support import Support, format_capability, summarize_support
from tfimg.recipe.support_table import (
    FULL_COLUMNS,
    format_bounds,
    format_proven_levels,
    format_pythons,
    format_range,
    format_span,
    list_notes,
    make_issue_url,
    render_markdown,
)

if TYPE_CHECKING:
    from tfimg.cli.commands.matrix import ShowMatrix

CAPABILITIES = [f"sm_{major}{minor}" for major in range(1, 20) for minor in range(10)]
"""What may be typed into the page, with room for GPUs that are to come."""


def show(command: ShowMatrix, context: Context) -> int:
    """`tfimg matrix [--json | --markdown | --html] [--output FILE]`."""
    if command.json and (command.html or command.markdown):
        raise UsageError("--json and another form are asked for.", next_step="Drop one of the two.")
    if command.output is not None:
        require_writable("--output", command.output)
    text = _render_form(context, _choose_form(command))
    if command.output is not None:
        write_atomically(Path(command.output), text if text is not None else _plain_text(support_rows(context)))
        context.say(f"wrote {command.output}")
    elif text is not None:
        print(text, end="")
    else:
        _print_rows(support_rows(context))
    return 0


def support_rows(context: Context) -> tuple[Support, ...]:
    """Return what each row of the matrix supports, and what the evidence of the workspace proves."""
    return summarize_support(context.project.matrix, context.project.specs, context.project.statuses)


FORMS = {".json": "json", ".html": "html", ".md": "markdown"}
"""Ends of file names → the form that they ask for; any other asks for the table."""


def _choose_form(command: ShowMatrix) -> str | None:
    """Return the form that an option asks for, else the one of the file's name; None: the table for people."""
    named = next((form for form in FORMS.values() if getattr(command, form)), None)
    return named or FORMS.get(Path(command.output or "").suffix.lower())


def _render_form(context: Context, form: str | None) -> str | None:
    """Return a form's text; None for the table for people, which depends on where it goes."""
    if form == "json":
        return json.dumps(_make_document(context)) + "\n"
    if form == "html":
        return page(context)
    return render_markdown(support_rows(context)) if form == "markdown" else None


def _print_rows(rows: Sequence[Support]) -> None:
    from tfimg.cli.show import print_notes, print_support

    print_support(rows)
    print()
    print_notes(list_notes(rows))


def _plain_text(rows: Sequence[Support]) -> str:
    from tfimg.cli.show import support_table, table_text

    return table_text(support_table(rows, FULL_COLUMNS)) + "\n" + "".join(f"{note}\n" for note in list_notes(rows))


def _make_document(context: Context) -> dict[str, Any]:
    matrix, statuses = context.project.matrix, context.project.statuses
    return {
        "rows": [row.model_dump(mode="json") for row in support_rows(context)],
        "images": [
            describe_matrix_image(spec, repository=context.project.repository, status=statuses[spec.identifier])
            for spec in context.project.specs
        ],
        "gpus": {capability: list(names) for capability, names in matrix.gpus.items()},
        "gpu_drivers": {sm: known.model_dump() for sm, known in matrix.gpu_drivers.items()},
        "arm64_gpus": list(matrix.arm64_gpus),
        "ptx": matrix.ptx.model_dump(),
        "left_out": [one.model_dump() for one in matrix.left_out],
    }


def page(context: Context) -> str:
    """Return the matrix as one HTML page without external resources."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"issue_url": make_issue_url, "capability": format_capability, "range": format_range}
    environment.globals |= {
        "bounds": format_bounds,
        "pythons": format_pythons,
        "proven": format_proven_levels,
        "span": format_span,
    }
    template = environment.from_string(files("tfimg.cli").joinpath("matrix.html.j2").read_text("utf-8"))
    document_of_matrix = _make_document(context)
    requests = {spec.identifier: format_request(spec) for spec in context.project.specs}
    return template.render(
        matrix=context.project.matrix,
        rows=support_rows(context),
        images=document_of_matrix["images"],
        requests=requests,
        levels=LEVELS,
        facts=_filter_facts(context.project.matrix),
        choices=_filter_choices(document_of_matrix["images"]),
    )


def _filter_facts(matrix: Matrix) -> dict[str, Any]:
    """Return the facts that the filters of the page need beside its table."""
    return {
        "gpus": {sm: [name for name in names if name not in matrix.arm64_gpus] for sm, names in matrix.gpus.items()},
        "drivers": {sm: known.model_dump() for sm, known in matrix.gpu_drivers.items()},
        "ptx": matrix.ptx.model_dump(include={"reason", "note"}),
        "rows": [_gpu_facts(matrix, row.gpu) if row.gpu else None for row in matrix.rows],
    }


def _gpu_facts(matrix: Matrix, gpu: Gpu) -> dict[str, Any]:
    means = {sm: find_execution_mode(matrix, gpu, sm) for sm in CAPABILITIES}
    return {
        "runs": {way: [sm for sm in CAPABILITIES if means[sm] == way] for way in ("code", "ptx", "unproven")},
        "driver": matrix.toolkits[gpu.libraries.toolkit].driver,
        "ptx_driver": gpu.ptx_driver,
    }


def _filter_choices(images: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the values of each filter, newest first."""
    from packaging.version import Version

    def versions(key: str) -> list[str]:
        return sorted({image[key] for image in images if image[key]}, key=Version, reverse=True)

    return {
        "tensorflow": versions("tensorflow"),
        "minor": list(dict.fromkeys(map(minor_version, versions("tensorflow")))),
        "python": versions("python"),
        "cuda": versions("cuda"),
        "device": list(dict.fromkeys(image["device"] for image in images)),
        "platform": list(dict.fromkeys(image["platform"] for image in images)),
    }

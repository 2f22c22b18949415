"""The whole matrix as one JSON document, and as an HTML page to search in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from packaging.version import Version

from tfimg import __version__
from tfimg.core.levels import LEVEL_MEANINGS, LEVELS
from tfimg.matrix.gpus import find_execution_mode
from tfimg.matrix.schema import Gpu, Matrix, minor_version
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe import support_table as table
from tfimg.recipe.describe import Status, describe_matrix_image
from tfimg.recipe.support import format_capability, summarize_support

CAPABILITIES = [f"sm_{major}{minor}" for major in range(1, 20) for minor in range(10)]
"""What may be typed into the page, with room for GPUs that are to come."""


def make_matrix_document(
    matrix: Matrix, specs: Sequence[ImageSpec], statuses: Mapping[str, Status], *, repository: str
) -> dict[str, Any]:
    """Return what `tfimg matrix --json` prints: rows, images, and the facts about GPUs."""
    return {
        "rows": [row.model_dump(mode="json") for row in summarize_support(matrix, specs, statuses)],
        "images": [
            describe_matrix_image(spec, repository=repository, status=statuses[spec.identifier]) for spec in specs
        ],
        **matrix.model_dump(
            mode="json", include={"gpus", "gpu_drivers", "arm64_gpus", "ptx", "left_out", "end_of_life"}
        ),
    }


def render_matrix(
    matrix: Matrix,
    specs: Sequence[ImageSpec],
    statuses: Mapping[str, Status],
    *,
    repository: str,
    made: date,
    reports: Mapping[str, str] | None = None,
    is_part: bool = False,
) -> str:
    """Return the matrix as an HTML page without external resources; `is_part`: as a `div` with style and script.

    `made` is the day that the page shows; `reports` are addresses of validation reports by identifier.
    """
    folder = files("tfimg.recipe")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
    )
    environment.filters |= {
        "issue_url": table.make_issue_url,
        "capability": format_capability,
        "range": table.format_range,
    }
    images = [describe_matrix_image(spec, repository=repository, status=statuses[spec.identifier]) for spec in specs]
    return environment.get_template("matrix_body.html.j2" if is_part else "matrix.html.j2").render(
        matrix=matrix,
        table=table,
        rows=summarize_support(matrix, specs, statuses),
        images=images,
        reports=reports or {},
        repository=repository,
        made=made,
        version=__version__,
        levels=LEVELS,
        meanings=LEVEL_MEANINGS,
        facts=_filter_facts(matrix),
        choices=_filter_choices(images),
        style=folder.joinpath("matrix.css").read_text("utf-8"),
        script=folder.joinpath("matrix.js").read_text("utf-8"),
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
    modes = {sm: find_execution_mode(matrix, gpu, sm) for sm in CAPABILITIES}
    return {
        "runs": {mode: [sm for sm in CAPABILITIES if modes[sm] == mode] for mode in ("code", "ptx", "unproven")},
        "driver": matrix.toolkits[gpu.libraries.toolkit].driver,
        "ptx_driver": gpu.ptx_driver,
    }


def _filter_choices(images: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the values of each filter, newest first."""

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

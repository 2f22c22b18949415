"""`tfimg list` and `tfimg resolve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.options import Command, Patterns, RepositoryOptions, RequestOptions, flag, option
from tfimg.cli.output.tables import COLOURS, Table, print_rows, print_table
from tfimg.cli.values import complete_variants
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.support_ends import describe_ended, format_supported_until
from tfimg.recipe.shards import predict_unpacked_bytes


@dataclass(frozen=True)
class ListImages(Command, Patterns, RepositoryOptions):
    """List the images of the matrix.

    Examples:
      tfimg list '2.1[56]*-cpu-*'
      tfimg list 2.18 --variant slim --sizes
    """

    variant: str | None = option(
        "images of a variant: runtime (default), jupyter, dev, slim", "NAME", completer=complete_variants
    )

    sizes: bool = flag("predict the unpacked size of each, by that of 2.15.1; images share most of it")

    def run(self, context: Context) -> int:
        project = context.project(repository=self.repository)
        specs = project.select(self.patterns, self.variant)
        rows = project.describe_all(specs)
        if self.sizes:
            for spec, row in zip(specs, rows, strict=True):
                has_lock = any(project.workspace.locks(spec.runtime).glob("*.txt"))
                lock = project.locks.read_predictable(spec) if has_lock else None
                row["predicted_unpacked_bytes"] = predict_unpacked_bytes(spec, lock) if lock else None
            context.print_result(rows, lambda: print_sizes(specs, rows))
        else:
            context.print_result(rows, lambda: print_images(rows, context.services.today))
        return 0


IMAGE_FORMS = (
    ("IDENTIFIER", "CUDA", "CUDNN", "LIBTPU", "LEVEL", "PROVEN ON", "RELEASED", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "CUDA", "CUDNN", "LIBTPU", "LEVEL", "PROVEN ON", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "CUDA", "LEVEL", "PROVEN ON", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "LEVEL", "PROVEN ON", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "LEVEL", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "LEVEL", "TAGS"),
    ("IDENTIFIER", "LEVEL"),
    ("IDENTIFIER",),
)
"""Columns of `tfimg list`, from a wide terminal to a narrow one."""


def print_images(rows: Sequence[Mapping[str, Any]], today: date) -> None:
    """Print what `tfimg list` shows; only tags fold."""
    cells = [_image_cells(row, today) for row in rows]
    tables = (
        Table(columns, [[row[name] for name in columns] for row in cells], folding=["TAGS"], colours={"LEVEL": COLOURS})
        for columns in IMAGE_FORMS
    )
    print_table(tables)


def print_sizes(specs: Sequence[ImageSpec], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what `tfimg list --sizes` shows; a variant that removes files has less than predicted."""
    cells = (
        (
            row["identifier"],
            f"{'<' if spec.removed else '~'} {size / 1e9:.1f} GB" if size else "not known",
            ", ".join(tag.rpartition(":")[2] for tag in row["tags"][1:]) or "-",
        )
        for spec, row in zip(specs, rows, strict=True)
        for size in [row["predicted_unpacked_bytes"]]
    )
    print_rows(("IDENTIFIER", "UNPACKED", "TAGS"), cells, right=("UNPACKED",), folding=("TAGS",))


def _image_cells(row: Mapping[str, Any], today: date) -> dict[str, str]:
    notes = ("; emulated" if row["emulated"] else "") + ("; on the host" if row["host_machines"] else "")
    return {
        "IDENTIFIER": row["identifier"],
        **{name: row[name.lower()] or "-" for name in ("CUDA", "CUDNN", "LIBTPU")},
        "LEVEL": row["level"] + notes,
        "PROVEN ON": row["base_kind"] or "-",
        "RELEASED": row["released"],
        "SUPPORTED UNTIL": format_supported_until(row["supported_until"], today) or "-",
        "TAGS": ", ".join(tag.rpartition(":")[2] for tag in row["tags"][1:]) or "-",
    }


@dataclass(frozen=True)
class Resolve(Command, RequestOptions, RepositoryOptions):
    """Say which image a request means, or why none does.

    Examples:
      tfimg resolve --tf 2.15 --cuda 12 --json
      tfimg resolve --gpu 'RTX 4070' --driver 550 --explain
    """

    explain: bool = flag("explain the choice, and show every fact about the image")

    def run(self, context: Context) -> int:
        project = context.project(repository=self.repository)
        found = project.resolve(self.request())
        today = context.services.today
        notes = [*found.notes, *describe_ended(found.spec.support_ends, today)]
        row = project.describe(found.spec)
        ends = [end.describe(today) for end in found.spec.support_ends]
        reasons = {"explanation": list(found.explanation)} if self.explain else {}
        shown = row if self.explain else {name: row[name] for name in CHOICE}
        first = {"identifier": row["identifier"], "notes": notes or None}
        fields = {**first, **reasons, **shown, "end_of_life": ends or None}
        context.print_result({**row, "notes": notes, **reasons}, fields)
        return 0


CHOICE = ("identifier", "tags", "tensorflow", "python", "platform", "cuda", "cudnn", "libtpu", "level",
          "base_kind", "date", "host_machines", "released", "supported_until")  # fmt: skip
"""What `tfimg resolve` shows of an image; `--explain` and `--json` show the rest."""

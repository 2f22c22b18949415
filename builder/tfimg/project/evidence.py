"""The committed evidence of images in a workspace."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tfimg.core.errors import FileError
from tfimg.core.files import read_limited, write_atomically
from tfimg.core.levels import LEVELS
from tfimg.core.paths import Workspace

if TYPE_CHECKING:
    from tfimg.validation.record import ImageRecord, RecordedBase
    from tfimg.validation.report import Report


def read_evidence(workspace: Workspace, identifier: str) -> ImageRecord | None:
    """Return the committed evidence of an image, of whatever lock; None without. Raises `FileError`."""
    file = workspace.evidence(identifier)
    if not file.exists():
        return None
    from tfimg.validation.record import MAX_BYTES, read_image_record

    content = read_limited(str(file), MAX_BYTES, next_step="Write it again with `tfimg build --record`.")
    return read_image_record(content, source=str(file), identifier=identifier, where="container")


def read_host_records(workspace: Workspace, identifier: str) -> tuple[ImageRecord, ...]:
    """Return what hosts have proven of an image's wheels, of whatever lock. Raises `FileError`."""
    from tfimg.validation.record import MAX_BYTES, read_image_record

    step = "Write it again with `tfimg record`."
    return tuple(
        read_image_record(
            read_limited(file, MAX_BYTES, next_step=step), source=str(file), identifier=identifier, where="host"
        )
        for file in sorted(workspace.bare_evidence(identifier).glob("*.json"))
    )


def record_evidence(
    workspace: Workspace, report: Report, *, content: str | None, recipe: str | None, base: RecordedBase | None = None
) -> None:
    """Write evidence into the workspace if a report proves more than that the image was built.

    `content` and `recipe` are those of the image, as in `LocalImage` and its label. Evidence of a higher level for the
    same lock stays: a machine without a GPU does not replace what one with a GPU has proven. So does evidence of the
    same level on the official base, which most users have.
    """
    from tfimg.validation.record import format_image_record, make_image_record

    if report.level == "built":
        return
    record = make_image_record(report, content=content, recipe=recipe, base=base)
    with suppress(FileError):
        earlier = read_evidence(workspace, report.identifier)
        if earlier and earlier.lock == record.lock and _rank(earlier) > _rank(record):
            return
    write_atomically(workspace.evidence(report.identifier), format_image_record(record))


def _rank(record: ImageRecord) -> tuple[int, bool]:
    return LEVELS.index(record.level), record.base is not None and record.base.kind == "official"

"""Green reports and inventories of image contents, kept in the state folder."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from tfimg.core.documents import InvalidDocument, parse_document
from tfimg.core.errors import FileError
from tfimg.core.files import remove_oldest, write_atomically
from tfimg.engine.protocol import Engine
from tfimg.validation.formats import format_json
from tfimg.validation.inventory import Inventory, take_inventory
from tfimg.validation.report import Profile, Report
from tfimg.validation.schema import read_report

MAX_FILES = 1000
"""Files in each folder, the newest ones: the matrix has 258 images, and a new suite writes a report on each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportSubject:
    """What a report is about: an image's content, the suite, and the level to prove on an accelerator."""

    identifier: str
    content: str
    suite: str
    level: str
    profile: Profile
    accelerator: str

    @property
    def file_name(self) -> str:
        """The name of the subject's file."""
        return f"{hashlib.sha256(repr(astuple(self)).encode()).hexdigest()}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportCache:
    """A folder of green reports, by subject."""

    folder: Path

    def has(self, subject: ReportSubject) -> bool:
        """Return whether there is a report about a subject."""
        return (self.folder / subject.file_name).is_file()

    def read(self, subject: ReportSubject) -> Report | None:
        """Return the report about a subject; None if there is none that can be read."""
        file = self.folder / subject.file_name
        with suppress(FileError, OSError, UnicodeDecodeError):
            return read_report(file.read_text(encoding="utf-8"), source=str(file))
        return None

    def replace(self, subject: ReportSubject, report: Report) -> None:
        """Remove the earlier report about a subject, and keep the new one if it is green and complete."""
        (self.folder / subject.file_name).unlink(missing_ok=True)
        if report.level == report.aim:
            write_atomically(self.folder / subject.file_name, format_json(report))
            remove_oldest(self.folder, keep=MAX_FILES)


@dataclass(frozen=True, kw_only=True, slots=True)
class InventoryCache:
    """A folder of inventories, one for each image content and version of the script that takes them.

    Bills of materials and `inspect --local` read the same files.
    """

    folder: Path
    script: bytes

    def take(self, image: str, content: str | None, engine: Engine) -> Inventory:
        """Return the inventory of an image: the one kept since its build, else ask the image and keep the answer.

        `content` is as in `LocalImage`. Raises `ValidationAborted` if no inventory can be taken.
        """
        key = hashlib.sha256(f"{content} {hashlib.sha256(self.script).hexdigest()}".encode()).hexdigest()
        file = self.folder / f"{key}.json"
        with suppress(OSError, InvalidDocument):
            if content:
                return parse_document(Inventory, file.read_bytes())
        inventory = take_inventory(image, self.script, engine=engine, contents_only=True)
        if content:
            write_atomically(file, inventory.model_dump_json())
            remove_oldest(self.folder, keep=MAX_FILES)
        return inventory

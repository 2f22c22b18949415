"""Green reports and inventories of image contents, kept in the state folder."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import FileError
from tfimg.core.files import write_atomically
from tfimg.engine.protocol import Engine
from tfimg.host.survey import Host
from tfimg.host.target_level import TargetLevel
from tfimg.validation.formats import format_json
from tfimg.validation.inventory import parse_inventory, take_inventory
from tfimg.validation.report import Profile, Report
from tfimg.validation.schema import read_report


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What a report is about: an image's content, the suite, and what that was to show on which accelerator."""

    identifier: str
    content: str
    suite: str
    level: str
    profile: Profile
    accelerator: str

    @property
    def name(self) -> str:
        """A file's name: the same for the same subject alone."""
        return f"{hashlib.sha256(repr(astuple(self)).encode()).hexdigest()}.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A folder of reports, each of which is green."""

    folder: Path

    def has(self, subject: Subject) -> bool:
        """Whether it was shown."""
        return (self.folder / subject.name).is_file()

    def read(self, subject: Subject) -> Report | None:
        """What was shown, or None; one that cannot be read is none."""
        file = self.folder / subject.name
        with suppress(FileError, OSError, UnicodeDecodeError):
            return read_report(file.read_text(encoding="utf-8"), source=str(file))
        return None

    def keep(self, subject: Subject, report: Report) -> None:
        """Keep a report, if it is green and complete."""
        if report.level == report.aim:
            write_atomically(self.folder / subject.name, format_json(report))

    def forget(self, subject: Subject) -> None:
        """Keep it no longer."""
        (self.folder / subject.name).unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventories:
    """A folder of inventories, one for each image content and version of the script that takes them.

    The bill of materials that publishing attaches is written from the same file that `inspect --local` reads.
    """

    folder: Path
    script: bytes

    def take(self, image: str, content: str | None, engine: Engine) -> dict[str, Any]:
        """Return the inventory of an image: the one kept since its build, else ask the image and keep the answer.

        `content` is as in `LocalImage`. Raises `ValidationAborted` when no inventory can be taken.
        """
        about = hashlib.sha256(f"{content} {hashlib.sha256(self.script).hexdigest()}".encode()).hexdigest()
        file = self.folder / f"{about}.json"
        with suppress(OSError, InvalidDocument):
            if content:
                return parse_inventory(file.read_bytes())
        inventory = take_inventory(image, self.script, engine=engine, contents_only=True)
        if content:
            write_atomically(file, json.dumps(inventory))
        return inventory


def accelerator(aim: TargetLevel, host: Host) -> str:
    """The accelerator that a validation runs on, with its driver, in words; `none` where it needs none."""
    if aim.access == "none":
        return "none"
    if aim.access == "tpu":
        return " ".join(host.tpus)
    if isinstance(host.smi, Exception):  # an engine on another machine, whose GPUs cannot be seen from here
        return "not known"
    return f"{', '.join(gpu.name for gpu in host.smi.gpus)}; driver {host.smi.driver}"

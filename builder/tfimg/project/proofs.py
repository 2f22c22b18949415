"""What the records of images prove, without pydantic for those that an earlier run has read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tfimg.core import paths
from tfimg.core.cache import make_cache_key, read_cache, write_cache
from tfimg.core.files import read_limited
from tfimg.core.levels import Level
from tfimg.core.paths import Workspace
from tfimg.recipe.labels import MAX_RECORD_BYTES, REWRITE_RECORD, HostMachine, Status

if TYPE_CHECKING:
    from tfimg.validation.record import ImageRecord

MAX_KEPT = 2000
"""Records of which the cache keeps what they prove. The project has 180."""

MODULES = tuple(str(Path(paths.__file__).parents[1] / name) for name in ("validation/record.py", "recipe/labels.py"))
"""Modules that decide what a record proves."""


@dataclass(frozen=True, kw_only=True)
class RecordFile:
    """A record, as it was read: of an image in a container, or of its wheels on a host."""

    path: Path
    identifier: str
    where: Literal["container", "host"]
    content: bytes

    def parse(self) -> ImageRecord:
        """Return the record. Raises `FileError`."""
        from tfimg.validation.record import read_image_record

        return read_image_record(self.content, source=str(self.path), identifier=self.identifier, where=self.where)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a record proves of the wheels of a lock: a status of the image, or a host."""

    lock: str
    status: Status | None = None
    machine: HostMachine | None = None


def list_record_files(workspace: Workspace, identifier: str) -> Iterator[RecordFile]:
    """Yield the records of an image, of whatever lock: the one in a container first. Raises `FileError`."""
    path, folder = workspace.record(identifier), workspace.host_records(identifier)
    if path.exists():
        content = read_limited(path, MAX_RECORD_BYTES, next_step=REWRITE_RECORD)
        yield RecordFile(path=path, identifier=identifier, where="container", content=content)
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        content = read_limited(path, MAX_RECORD_BYTES, next_step=REWRITE_RECORD)
        yield RecordFile(path=path, identifier=identifier, where="host", content=content)


def read_proofs(workspace: Workspace, identifiers: Iterable[str], cache: Path) -> dict[str, list[Proof]]:
    """Return what records prove of images; `cache` is the folder of what earlier runs have read. Raises `FileError`."""
    file, key = cache / "records.json", make_cache_key(modules=MODULES)
    kept: dict[str, Any] = read_cache(file, key) or {}
    used: dict[str, Any] = {}
    found: dict[str, list[Proof]] = {identifier: [] for identifier in identifiers}
    for identifier, proofs in found.items():
        for record in list_record_files(workspace, identifier):
            name = f"{identifier} {record.where} {sha256(record.content).hexdigest()}"
            used[name] = kept.get(name) or asdict(_prove(record.parse()))
            proofs.append(_make_proof(**used[name]))
    if not used.keys() <= kept.keys():
        both = kept | used
        write_cache(file, key, both if len(both) <= MAX_KEPT else used)
    return found


def _prove(record: ImageRecord) -> Proof:
    if record.where == "container":
        return Proof(lock=record.lock, status=record.status)
    machine = HostMachine(machine=record.machine, driver=record.driver, date=record.date[:10])
    return Proof(lock=record.lock, machine=machine)


def _make_proof(lock: str, status: dict[str, Any] | None, machine: dict[str, Any] | None) -> Proof:
    return Proof(
        lock=lock,
        status=Status(**{**status, "level": Level(status["level"]), "host_machines": ()}) if status else None,
        machine=HostMachine(**machine) if machine else None,
    )

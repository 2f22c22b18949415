"""Evidence of bare machines: the file that images/bare/run.py writes, and the record of what it proves.

It proves the locked wheels of a release on a machine, without an image, and raises no image's level.
"""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from tfimg.core.documents import Digest, InvalidDocument, StrictDocument, parse_document
from tfimg.core.errors import FileError
from tfimg.core.text import to_plain_text
from tfimg.matrix.schema import Device
from tfimg.recipe.describe import BareMachine
from tfimg.validation.event_stream import MAX_CHECKS
from tfimg.validation.report import Report

KIND = "tfimg bare machine"
SCHEMA = 1

MAX_BYTES = 64 << 20
"""Bytes of a file; a run has 0.2 MB."""

MAX_RUNS, MAX_WHEELS = 200, 1000
"""The matrix has fewer than 200 GPU images of one Python; a lock has 60 packages."""

MAX_NAME = 100
"""Characters of the name of a GPU, driver or processor."""

NOTE = "The locked wheels, in a virtual environment on this machine, without an image: it raises no image's level."

Text = Annotated[str, StringConstraints(max_length=4096)]
Variables = Annotated[dict[Text, Text], Field(max_length=20)]
Wheels = Annotated[
    dict[Text, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]], Field(max_length=MAX_WHEELS)
]
Time = Annotated[str, StringConstraints(pattern=r"^20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d\+00:00$")]
Seconds = Annotated[float, Field(ge=0, lt=1e6)]


class _Release(StrictDocument):
    """What a machine states of one release, in its evidence and in the record."""

    identifier: Text
    tensorflow: Text
    python: Text
    lock: Digest
    wheels: Wheels
    variables: Variables
    date: Time
    seconds: Seconds


class BareRun(_Release):
    """The run of one release; `problem` is why the suite was not run."""

    nonce: Text
    status: int | None
    problem: Text | None
    events: Annotated[tuple[dict[str, Any], ...], Field(max_length=2 * MAX_CHECKS)]


class BareFile(StrictDocument):
    """The file that run.py writes; `suite` is the digest of the suite that ran."""

    schema_: Literal[1] = Field(alias="schema")
    kind: Literal["tfimg bare machine"]
    suite: Digest
    tfimg: Text
    runs: Annotated[tuple[BareRun, ...], Field(min_length=1, max_length=MAX_RUNS)]


class _Gpu(StrictDocument):
    name: Text
    capability: Text


class _Result(StrictDocument):
    check: Text
    outcome: Text
    reason: Text | None
    seconds: Seconds
    evidence: dict[str, Any]


class BareRecord(_Release):
    """The committed record of a run that proves its release."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    kind: Literal["tfimg bare machine"] = "tfimg bare machine"
    note: Text = NOTE
    device: Device
    level: Literal["validated"] = "validated"
    suite: Digest
    tfimg: Text
    gpus: tuple[_Gpu, ...]
    driver: Text | None
    environment: dict[str, Any]
    required: tuple[Text, ...]
    waived: dict[Text, Text]
    results: tuple[_Result, ...]

    @property
    def machine(self) -> str:
        """The GPUs by name, else the processor, for people."""
        if self.gpus:
            name = self.gpus[0].name
            return name if len(self.gpus) == 1 else f"{len(self.gpus)} x {name}"
        return str(self.environment.get("processor") or self.environment.get("machine") or "an unknown processor")

    @property
    def file_name(self) -> str:
        """The same for the same kind of machine, so that a newer record replaces an older one."""
        words = re.sub(r"[^a-z0-9]+", "-", self.machine.lower() if self.gpus else "cpu").strip("-")
        return f"{words[:64] or 'unknown'}.json"


def parse_evidence(content: bytes, *, source: str) -> BareFile:
    """Parse the output of run.py. Raises `FileError`."""
    try:
        return parse_document(BareFile, content, max_bytes=MAX_BYTES)
    except InvalidDocument as error:
        raise FileError(
            f"{source} is not evidence of a bare machine: {to_plain_text(str(error))}.",
            next_step="Name the file that run.py of a folder of `tfimg bare` has written, unchanged.",
        ) from None


def make_record(run: BareRun, report: Report, file: BareFile) -> BareRecord:
    """Return the record of a run whose report proves its release."""
    return BareRecord(
        **run.model_dump(include=set(_Release.model_fields)),
        device=report.device,
        suite=file.suite,
        tfimg=shorten(file.tfimg),
        gpus=tuple(_Gpu(name=shorten(name), capability=shorten(capability)) for name, capability in report.gpus),
        driver=shorten(report.driver) if report.driver else None,
        environment=dict(report.environment),
        required=report.required,
        waived=dict(report.waived),
        results=tuple(
            _Result.model_validate({name: getattr(result, name) for name in _Result.model_fields})
            for result in report.results
        ),
    )


def format_record(record: BareRecord) -> str:
    """Return a record as ASCII JSON."""
    return json.dumps(record.model_dump(by_alias=True, mode="json"), indent=2, allow_nan=False) + "\n"


def read_record(content: bytes, *, identifier: str, lock_digest: str, source: str) -> BareMachine | None:
    """Return the machine of a committed record; None if it is about another lock. Raises `FileError`."""
    try:
        record = parse_document(BareRecord, content)
        if record.identifier != identifier:
            raise InvalidDocument(f"it is about {record.identifier}")
        day = date.fromisoformat(record.date[:10]).isoformat()
    except ValueError as error:  # of this family is `InvalidDocument`
        raise FileError(
            f"{source} is not a record of a bare machine: {to_plain_text(str(error))}.",
            next_step="Write it again with `tfimg record`.",
        ) from None
    if record.lock != lock_digest:
        return None
    return BareMachine(machine=record.machine, driver=record.driver, date=day)


def shorten(text: str, length: int = MAX_NAME) -> str:
    """Return the beginning of a text from outside, without control characters."""
    return to_plain_text(text)[:length]

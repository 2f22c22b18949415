"""Evidence of bare machines, written by images/bare/run.py: verify it, and record what it proves.

It proves the locked wheels of a release on a machine, without an image, and raises no image's level. Files of
contributors are untrusted: every claim is computed again, or compared with the matrix and the locks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from tfimg.core.documents import Digest, Document, InvalidDocument, parse_document
from tfimg.core.errors import FileError
from tfimg.core.text import to_plain_text
from tfimg.engine.protocol import Exit, Line
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.describe import BareMachine
from tfimg.recipe.facts import collect_bare_facts
from tfimg.recipe.lockfile import Lock, hash_lock, read_packages
from tfimg.validation.event_stream import MAX_CHECKS, EventStream
from tfimg.validation.explain import import_suite_module
from tfimg.validation.report import GPU_CHECK, Report
from tfimg.validation.run import suite_digest, suite_files

KIND = "tfimg bare machine"
SCHEMA = 1

MAX_BYTES = 64 << 20
"""Bytes of a file; a run has 0.2 MB."""

MAX_RUNS, MAX_WHEELS = 200, 1000
"""The matrix has fewer than 200 GPU images of one Python; a lock has 60 packages."""

MAX_NAME = 100
"""Characters of the name of a GPU, driver or processor."""

MAX_REASON = 300
"""Characters of a reason in a message."""

NOTE = "The locked wheels, in a virtual environment on this machine, without an image: it raises no image's level."

Text = Annotated[str, StringConstraints(max_length=4096)]
Variables = Annotated[dict[Text, Text], Field(max_length=20)]
Wheels = Annotated[
    dict[Text, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]], Field(max_length=MAX_WHEELS)
]
Time = Annotated[str, StringConstraints(pattern=r"^20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d\+00:00$")]
Seconds = Annotated[float, Field(ge=0, lt=1e6)]


class _Strict(Document):
    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="forbid")


class _Release(_Strict):
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


class BareFile(_Strict):
    """The file that run.py writes; `suite` is the digest of the suite that ran."""

    schema_: Literal[1] = Field(alias="schema")
    kind: Literal["tfimg bare machine"]
    suite: Digest
    tfimg: Text
    runs: Annotated[tuple[BareRun, ...], Field(min_length=1, max_length=MAX_RUNS)]


class _Gpu(_Strict):
    name: Text
    capability: Text


class _Result(_Strict):
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """A release to prove: an image of the matrix, and its lock."""

    spec: ImageSpec
    lock: Lock


def parse_evidence(content: bytes, *, source: str) -> BareFile:
    """Parse the output of run.py. Raises `FileError`."""
    try:
        return parse_document(BareFile, content, max_bytes=MAX_BYTES)
    except InvalidDocument as error:
        raise FileError(
            f"{source} is not evidence of a bare machine: {to_plain_text(str(error))}.",
            next_step="Name the file that run.py of a folder of `tfimg bare` has written, unchanged.",
        ) from None


def verify_run(run: BareRun, file: BareFile, release: Release, suite: Path) -> BareRecord | tuple[str, ...]:
    """Return the record of a run, or every reason why it does not prove its release.

    `suite` is the folder of the suite (`Workspace.validation`).
    """
    if reasons := tuple(_mismatches(run, file.suite, release, suite_digest(suite_files(suite)))):
        return reasons
    report = _replay(run, file.suite, release, suite)
    if reasons := tuple(_failures(run, report, release.spec)):
        return reasons
    return BareRecord(
        **run.model_dump(include=set(_Release.model_fields)),
        device=release.spec.device,
        suite=file.suite,
        tfimg=_shorten(file.tfimg),
        gpus=tuple(_Gpu(name=_shorten(name), capability=_shorten(capability)) for name, capability in report.gpus),
        driver=_shorten(report.driver) if report.driver else None,
        environment=dict(report.environment),
        required=report.required,
        waived=collect_bare_facts(release.spec, release.lock)["waived"],
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


def _shorten(text: str, length: int = MAX_NAME) -> str:
    return to_plain_text(text)[:length]


def _mismatches(run: BareRun, suite: str, release: Release, own_suite: str) -> Iterator[str]:
    """Yield the differences from the image's lock and the suite of this checkout."""
    spec, lock = release.spec, hash_lock(release.lock)
    if run.problem is not None:
        yield f"the suite was not run: {_shorten(run.problem, MAX_REASON)}"
    if suite != own_suite:
        yield f"it ran the suite {suite}, and that of this checkout is {own_suite}"
    if run.lock != lock:
        yield f"it is of the lock {run.lock}, and that of {spec.identifier} is {lock}"
    locked = {package.sha256 for package in read_packages(release.lock)}
    if set(run.wheels.values()) != locked or len(run.wheels) != len(locked):
        yield f"its {len(run.wheels)} wheels are not the {len(locked)} that {spec.identifier} locks"
    if run.tensorflow != spec.tensorflow:
        yield f"it is of TensorFlow {_shorten(run.tensorflow)}, and {spec.identifier} has {spec.tensorflow}"
    if run.python != spec.python:
        yield f"it is of Python {_shorten(run.python)}, and {spec.identifier} has {spec.python}"


def _replay(run: BareRun, digest: str, release: Release, suite: Path) -> Report:
    """Return the report of a run's events; the required checks are those of this checkout, not of the file."""
    stream = EventStream(nonce=run.nonce)
    for event in run.events:
        list(stream.feed(Line(stream="stdout", text=json.dumps(event))))
    list(stream.feed(Exit(status=-1 if run.status is None else run.status, out_of_memory=False)))
    list(stream.finish())
    report = Report(
        identifier=run.identifier,
        device=release.spec.device,
        digest="",
        lock=run.lock,
        suite=digest,
        date=run.date,
        seconds=run.seconds,
        results=tuple(stream.results),
        problem=stream.problem,
        aim="validated",
        environment=stream.plan.environment,
    )
    contract, selection, checks = (import_suite_module(suite, name) for name in ("contract", "selection", "checks"))
    facts = contract.Facts(**collect_bare_facts(release.spec, release.lock))
    plan = selection.select(checks.CHECKS, facts, accelerators=max(1, len(report.gpus)))
    return replace(report, required=tuple(plan.required))


def _failures(run: BareRun, report: Report, spec: ImageSpec) -> Iterator[str]:
    """Yield the reasons why a run does not prove level `validated`."""
    first = run.events[0] if run.events else {}
    for name, required in (("level", "validated"), ("device", spec.device)):
        if (found := first.get(name)) != required:
            yield f"the suite ran for {name} {_shorten(str(found))}, not {required}"
    if not str(report.environment.get("python", "")).startswith(f"{spec.python}."):
        yield f"the suite ran on another Python than {spec.python}"
    if report.problem:
        yield _shorten(report.problem, MAX_REASON)
    for result in report.unsuccessful:
        yield _shorten(f"{result.check} {result.outcome}: {result.reason}", MAX_REASON)
    ended = {result.check for result in report.results}
    yield from (f"{check} is required, and was not run" for check in report.missing if check not in ended)
    if spec.device == "gpu" and not (report.gpus and report.driver):
        yield f"{GPU_CHECK} names no GPU with its driver"

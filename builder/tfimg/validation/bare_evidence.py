"""Evidence of bare machines: what images/bare/run.py wrote, judged anew from its events, and what is kept of it.

It proves the locked wheels of a release on a machine, without an image, and raises no image's level. What a contributor
sends is hostile: everything that it says of itself is computed again, or compared with the matrix and the locks.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from tfimg.core.documents import Digest, Document, InvalidDocument, parse_document
from tfimg.core.errors import FileError
from tfimg.core.text import to_plain_text, to_strict_json
from tfimg.engine.protocol import Exit, Line
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.describe import BareMachine
from tfimg.recipe.facts import collect_bare_facts
from tfimg.recipe.lockfile import Lock, hash_lock, read_packages
from tfimg.validation.event_stream import MAX_CHECKS, EventStream
from tfimg.validation.report import GPU_CHECK, Report

KIND = "tfimg bare machine"
SCHEMA = 1

MAX_BYTES = 64 << 20
"""Bytes of a file. A run has 0.2 MB."""

MAX_RUNS, MAX_WHEELS = 200, 1000
"""The matrix has fewer than 200 GPU images of one Python; a lock has 60 packages."""

MAX_NAME = 100
"""Characters of a GPU's, driver's or processor's name that are kept."""

MAX_REASON = 300
"""Characters of a check's reason that a refusal quotes."""

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


class BareRun(_Strict):
    """What run.py tells of one release; `problem` is why the suite was not run."""

    identifier: Text
    tensorflow: Text
    python: Text
    lock: Digest
    wheels: Wheels
    variables: Variables
    nonce: Text
    date: Time
    seconds: Seconds
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


class BareRecord(_Strict):
    """What is committed of a run that proves its release."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    kind: Literal["tfimg bare machine"] = "tfimg bare machine"
    note: Text = NOTE
    identifier: Text
    tensorflow: Text
    python: Text
    device: Device
    level: Literal["validated"]
    lock: Digest
    suite: Digest
    tfimg: Text
    date: Time
    seconds: Seconds
    gpus: tuple[_Gpu, ...]
    driver: Text | None
    environment: dict[str, Any]
    variables: Variables
    wheels: Wheels
    required: tuple[Text, ...]
    waived: dict[Text, Text]
    results: tuple[_Result, ...]

    @property
    def machine(self) -> str:
        """What it ran on, for people: GPUs by name, else the processor."""
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
class Basis:
    """What a run is compared with: an image of the matrix, its lock, and the suite with its digest."""

    spec: ImageSpec
    lock: Lock
    suite: Path
    suite_digest: str


def read_file(content: bytes, *, source: str) -> BareFile:
    """Parse what run.py wrote. Raises `FileError`, which says where it is malformed."""
    try:
        return parse_document(BareFile, content, max_bytes=MAX_BYTES)
    except InvalidDocument as error:
        raise FileError(
            f"{source} is not evidence of a bare machine: {to_plain_text(str(error))}.",
            next_step="Name the file that run.py of a folder of `tfimg bare` has written, as it is.",
        ) from None


def judge(run: BareRun, suite: str, version: str, basis: Basis) -> BareRecord | tuple[str, ...]:
    """Return what a run proves, or every reason why it does not. `suite` is the digest that the file states."""
    reasons = list(_differences(run, suite, basis))
    if reasons:
        return tuple(reasons)
    report = _report(run, basis)
    reasons = list(_failings(run, report, basis.spec))
    if reasons:
        return tuple(reasons)
    return BareRecord(
        identifier=run.identifier,
        tensorflow=run.tensorflow,
        python=run.python,
        device=basis.spec.device,
        level="validated",
        lock=run.lock,
        suite=suite,
        tfimg=_short(version),
        date=run.date,
        seconds=run.seconds,
        gpus=tuple(_Gpu(name=_short(name), capability=_short(capability)) for name, capability in report.gpus),
        driver=_short(report.driver) if report.driver else None,
        environment=dict(to_strict_json(report.environment)),
        variables=run.variables,
        wheels=run.wheels,
        required=report.required,
        waived=collect_bare_facts(basis.spec, basis.lock)["waived"],
        results=tuple(
            _Result(
                check=one.check,
                outcome=one.outcome,
                reason=one.reason,
                seconds=one.seconds,
                evidence=dict(to_strict_json(one.evidence)),
            )
            for one in report.results
        ),
    )


def record_text(record: BareRecord) -> str:
    """A record as JSON, with everything that is not ASCII escaped."""
    return json.dumps(record.model_dump(by_alias=True, mode="json"), indent=2, allow_nan=False) + "\n"


def read_record(content: bytes, *, identifier: str, lock_digest: str, source: str) -> BareMachine | None:
    """Return what a committed record proves; None where it is about another lock. Raises `FileError`."""
    try:
        record = parse_document(BareRecord, content)
        if record.identifier != identifier:
            raise InvalidDocument(f"it is about {record.identifier}")
        day = date.fromisoformat(record.date[:10]).isoformat()
    except ValueError as error:  # of this family is `InvalidDocument`
        raise FileError(
            f"{source} is not a record of a bare machine: {to_plain_text(str(error))}.",
            next_step="Write it anew with `tfimg record`.",
        ) from None
    if record.lock != lock_digest:
        return None
    return BareMachine(machine=record.machine, driver=record.driver, date=day)


def _short(text: str) -> str:
    return to_plain_text(text)[:MAX_NAME]


def _differences(run: BareRun, suite: str, basis: Basis) -> Iterator[str]:
    """Where a run is of something else than the image's lock and the suite of this checkout."""
    spec, lock = basis.spec, hash_lock(basis.lock)
    if run.problem is not None:
        yield f"the suite was not run: {to_plain_text(run.problem)[:MAX_REASON]}"
    if suite != basis.suite_digest:
        yield f"it ran the suite {suite}, and that of this checkout is {basis.suite_digest}"
    if run.lock != lock:
        yield f"it is of the lock {run.lock}, and that of {spec.identifier} is {lock}"
    locked = {package.sha256 for package in read_packages(basis.lock)}
    if set(run.wheels.values()) != locked or len(run.wheels) != len(locked):
        yield f"its {len(run.wheels)} wheels are not the {len(locked)} that {spec.identifier} locks"
    for what, found, expected in (
        ("TensorFlow", run.tensorflow, spec.tensorflow),
        ("Python", run.python, spec.python),
    ):
        if found != expected:
            yield f"it is of {what} {to_plain_text(found)[:MAX_NAME]}, and {spec.identifier} has {expected}"


def _report(run: BareRun, basis: Basis) -> Report:
    """The report that a run's events amount to. What must pass is this checkout's word, not the file's."""
    stream = EventStream(nonce=run.nonce)
    output: list[Line | Exit] = [Line(stream="stdout", text=json.dumps(event)) for event in run.events]
    output.append(Exit(status=-1 if run.status is None else run.status, out_of_memory=False))
    for item in output:
        list(stream.feed(item))
    list(stream.finish())
    report = Report(
        identifier=run.identifier,
        device=basis.spec.device,
        digest="",
        lock=run.lock,
        suite=basis.suite_digest,
        date=run.date,
        seconds=run.seconds,
        results=tuple(stream.results),
        problem=stream.problem,
        aim="validated",
        environment=stream.environment,
    )
    return replace(report, required=required_checks(basis, max(1, len(report.gpus))))


def _failings(run: BareRun, report: Report, spec: ImageSpec) -> Iterator[str]:
    """Why a run does not show level `validated`."""
    first = run.events[0] if run.events else {}
    for name, expected in (("level", "validated"), ("device", spec.device)):
        if (found := first.get(name)) != expected:
            yield f"the suite ran for {name} {to_plain_text(str(found))[:MAX_NAME]}, not {expected}"
    if not str(report.environment.get("python", "")).startswith(f"{spec.python}."):
        yield f"the suite ran on another Python than {spec.python}"
    if report.problem:
        yield to_plain_text(report.problem)[:MAX_REASON]
    ended = {result.check for result in report.results}
    for result in report.unsuccessful:
        yield to_plain_text(f"{result.check} {result.outcome}: {result.reason}")[:MAX_REASON]
    for check in report.missing:
        if check not in ended:
            yield f"{check} is required, and was not run"
    if spec.device == "gpu" and not (report.gpus and report.driver):
        yield f"{GPU_CHECK} names no GPU with its driver"


def required_checks(basis: Basis, accelerators: int) -> tuple[str, ...]:
    """Checks that must pass on a machine with so many GPUs, from the suite's own table."""
    contract, selection, checks = (_module(basis.suite, name) for name in ("contract", "selection", "checks"))
    claims = contract.Facts(**collect_bare_facts(basis.spec, basis.lock))
    return tuple(selection.select(checks.CHECKS, claims, accelerators=accelerators).required)


@cache
def _module(suite: Path, name: str) -> ModuleType:
    # The suite's modules import each other by their bare names, as files beside each other do.
    sys.path.insert(0, str(suite))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(suite))

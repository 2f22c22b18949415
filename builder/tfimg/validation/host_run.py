"""Judge the file of images/on_host/run.py: a run of the suite on the host, with the wheels of an image.

Files of contributors are untrusted: every claim is computed again, or compared with the matrix and the locks. A green
run proves the wheels and raises no image's level.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tfimg.core import documents, errors, files
from tfimg.core.levels import Level
from tfimg.core.text import to_plain_text
from tfimg.engine.interface import Exit, Line
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_host_facts
from tfimg.recipe.lock import Lock, hash_lock
from tfimg.validation.record import MAX_NAME, Name, Seconds, Time
from tfimg.validation.report import GPU_CHECK, Report
from tfimg.validation.run import MAX_CHECKS, EventStream, import_suite_module
from tfimg.validation.suite import suite_files

MAX_BYTES = 64 << 20  # bytes of a file; a run has 0.2 MB
MAX_LISTED, MAX_REASON = 5, 300  # how many reasons a refusal lists, and characters of each


class HostRun(documents.StrictDocument):
    """The file that run.py writes; `suite` is the digest of the suite that ran."""

    schema_: Annotated[Literal[1], documents.WHOLE] = Field(alias="schema")
    kind: Literal["tfimg host run"]
    identifier: Name
    lock: documents.Digest
    suite: documents.Digest
    nonce: Name
    date: Time
    seconds: Seconds
    status: int
    events: Annotated[tuple[dict[str, Any], ...], Field(max_length=2 * MAX_CHECKS)]


def parse_host_run(content: bytes, *, source: str) -> HostRun:
    """Parse the output of run.py. Raises `FileError`."""
    try:
        return documents.parse_document(HostRun, content, max_bytes=MAX_BYTES)
    except documents.InvalidDocument as error:
        raise errors.FileError(
            f"{source} is not a run of images/on_host/run.py: {to_plain_text(str(error))}.",
            next_step="Name the file that run.py has written, unchanged.",
        ) from None


def judge_host_run(run: HostRun, spec: ImageSpec, lock: Lock, *, suite: Path, source: str) -> Report:
    """Return the report of a run that proves the wheels of an image at level `validated`.

    `suite` is the folder of the suite (`Workspace.validation`). Raises `InsufficientRecord` with all reasons if it
    does not prove them.
    """
    stream = EventStream(nonce=run.nonce)
    for event in run.events:
        list(stream.feed(Line(stream="stdout", text=json.dumps(event))))
    list(stream.feed(Exit(status=run.status, out_of_memory=False)))
    list(stream.finish())
    report = Report(
        identifier=spec.identifier,
        device=spec.device,
        digest="",
        lock=run.lock,
        suite=run.suite,
        date=run.date,
        seconds=run.seconds,
        results=tuple(stream.results),
        problem=stream.problem,
        aim=Level.VALIDATED,
        environment=stream.plan.environment,
    )
    # The required checks are those of this checkout, not of the file.
    facts = collect_host_facts(spec, lock)
    contract, selection, checks = (import_suite_module(suite, name) for name in ("contract", "selection", "checks"))
    plan = selection.select(checks.CHECKS, contract.Facts(**facts), accelerators=max(1, len(report.gpus)))
    report = replace(report, required=tuple(plan.required), waived=facts["waived"])
    if reasons := [to_plain_text(reason)[:MAX_REASON] for reason in _find_failures(run, report, spec, lock, suite)]:
        more = f"; and {len(reasons) - MAX_LISTED} more" if len(reasons) > MAX_LISTED else ""
        raise errors.InsufficientRecord(
            f"{source} does not prove the wheels of {spec.identifier}: {'; '.join(reasons[:MAX_LISTED])}{more}.",
            next_step="Run images/on_host/run.py of this checkout again, on a machine where every check can pass.",
        )
    return report


def _find_failures(run: HostRun, report: Report, spec: ImageSpec, lock: Lock, suite: Path) -> Iterator[str]:
    first: Mapping[str, Any] = run.events[0] if run.events else {}
    for name, found, required in (
        ("lock", run.lock, hash_lock(lock)),
        ("suite", run.suite, files.hash_files(suite_files(suite))),
        ("level", first.get("level"), Level.VALIDATED),
        ("device", first.get("device"), spec.device),
    ):
        if found != required:
            yield f"its {name} is {to_plain_text(str(found))[:MAX_NAME]}, not {required}"
    if not str(report.environment.get("python", "")).startswith(f"{spec.python}."):
        yield f"the suite ran on another Python than {spec.python}"
    if report.problem:
        yield report.problem
    for result in report.unsuccessful:
        yield f"{result.check} {result.outcome}: {result.reason}"
    ended = {result.check for result in report.results}
    yield from (f"{check} is required, and was not run" for check in report.missing if check not in ended)
    if DEVICES[spec.device].is_reported and not (report.gpus and report.driver):
        yield f"{GPU_CHECK} names no GPU with its driver"

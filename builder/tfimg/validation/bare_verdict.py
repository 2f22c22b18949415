"""Judge the file that run.py of a bare machine has written.

Files of contributors are untrusted: every claim is computed again, or compared with the matrix and the locks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfimg.core.errors import InsufficientEvidence
from tfimg.core.files import hash_files
from tfimg.core.text import to_plain_text
from tfimg.engine.protocol import Exit, Line
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_bare_facts
from tfimg.recipe.lockfile import Lock, hash_lock, read_packages
from tfimg.validation.bare_evidence import BareFile, BareRecord, BareRun, make_record, shorten
from tfimg.validation.event_stream import EventStream
from tfimg.validation.explain import import_suite_module
from tfimg.validation.report import GPU_CHECK, Report
from tfimg.validation.run import suite_files

MAX_LISTED = 5
"""How many reasons a refusal lists for each release."""

MAX_REASON = 300
"""Characters of a reason in a message."""


def verify_file(
    file: BareFile, specs: Mapping[str, ImageSpec], *, suite: Path, read_lock: Callable[[str], Lock]
) -> Iterator[tuple[str, BareRecord | tuple[str, ...]]]:
    """Yield each run's identifier with its record, or with every reason why it does not prove its release.

    `suite` is the folder of the suite (`Workspace.validation`).
    """
    own_suite = hash_files(suite_files(suite))
    seen: set[str] = set()
    for run in file.runs:
        identifier = to_plain_text(run.identifier)
        if run.identifier in seen:
            yield identifier, ("it is there twice",)
        elif spec := specs.get(run.identifier):
            lock = read_lock(spec.identifier)
            mismatches = tuple(_find_mismatches(run, spec, lock, file.suite, own_suite))
            yield identifier, mismatches or _judge(run, spec, lock, file, suite)
        else:
            yield identifier, ("the matrix has no such image",)
        seen.add(run.identifier)


def raise_for_rejected(rejected: Mapping[str, Sequence[str]], *, source: str, total: int) -> None:
    """Raise `InsufficientEvidence` if some of the runs of a file do not prove their releases."""
    if not rejected:
        return
    lines = []
    for identifier, reasons in rejected.items():
        more = f"; and {len(reasons) - MAX_LISTED} more" if len(reasons) > MAX_LISTED else ""
        lines.append(f"\n  {identifier}: {'; '.join(reasons[:MAX_LISTED])}{more}")
    raise InsufficientEvidence(
        f"{source} does not prove {len(rejected)} of its {total} release{'' if total == 1 else 's'}:{''.join(lines)}\n",
        next_step="Run run.py again, in a folder that `tfimg bare` of this checkout has made, where every check can "
        "pass.",
    )


def _find_mismatches(run: BareRun, spec: ImageSpec, lock: Lock, suite: str, own_suite: str) -> Iterator[str]:
    """Yield the differences from the image's lock and the suite of this checkout."""
    if run.problem is not None:
        yield f"the suite was not run: {shorten(run.problem, MAX_REASON)}"
    if suite != own_suite:
        yield f"it ran the suite {suite}, and that of this checkout is {own_suite}"
    if run.lock != (digest := hash_lock(lock)):
        yield f"it is of the lock {run.lock}, and that of {spec.identifier} is {digest}"
    locked = {package.sha256 for package in read_packages(lock)}
    if set(run.wheels.values()) != locked or len(run.wheels) != len(locked):
        yield f"its {len(run.wheels)} wheels are not the {len(locked)} that {spec.identifier} locks"
    for name, found, required in (
        ("TensorFlow", run.tensorflow, spec.tensorflow),
        ("Python", run.python, spec.python),
    ):
        if found != required:
            yield f"it is of {name} {shorten(found)}, and {spec.identifier} has {required}"


def _judge(run: BareRun, spec: ImageSpec, lock: Lock, file: BareFile, suite: Path) -> BareRecord | tuple[str, ...]:
    """Return the record of a run's events, or every reason why they do not prove level `validated`."""
    stream = EventStream(nonce=run.nonce)
    for event in run.events:
        list(stream.feed(Line(stream="stdout", text=json.dumps(event))))
    list(stream.feed(Exit(status=-1 if run.status is None else run.status, out_of_memory=False)))
    list(stream.finish())
    report = Report(
        identifier=run.identifier,
        device=spec.device,
        digest="",
        lock=run.lock,
        suite=file.suite,
        date=run.date,
        seconds=run.seconds,
        results=tuple(stream.results),
        problem=stream.problem,
        aim="validated",
        environment=stream.plan.environment,
    )
    # The required checks are those of this checkout, not of the file.
    facts = collect_bare_facts(spec, lock)
    contract, selection, checks = (import_suite_module(suite, name) for name in ("contract", "selection", "checks"))
    accelerators = max(1, len(report.gpus))
    plan = selection.select(checks.CHECKS, contract.Facts(**facts), accelerators=accelerators)
    report = replace(report, required=tuple(plan.required), waived=facts["waived"])
    return tuple(_find_failures(run, report, spec)) or make_record(run, report, file)


def _find_failures(run: BareRun, report: Report, spec: ImageSpec) -> Iterator[str]:
    """Yield the reasons why a run does not prove level `validated`."""
    first = run.events[0] if run.events else {}
    for name, required in (("level", "validated"), ("device", spec.device)):
        if (found := first.get(name)) != required:
            yield f"the suite ran for {name} {shorten(str(found))}, not {required}"
    if not str(report.environment.get("python", "")).startswith(f"{spec.python}."):
        yield f"the suite ran on another Python than {spec.python}"
    if report.problem:
        yield shorten(report.problem, MAX_REASON)
    for result in report.unsuccessful:
        yield shorten(f"{result.check} {result.outcome}: {result.reason}", MAX_REASON)
    ended = {result.check for result in report.results}
    yield from (f"{check} is required, and was not run" for check in report.missing if check not in ended)
    if spec.device == "gpu" and not (report.gpus and report.driver):
        yield f"{GPU_CHECK} names no GPU with its driver"

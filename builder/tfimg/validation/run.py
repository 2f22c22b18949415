"""Run the suite in a container or on the host, and judge what it reports."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, TypeAdapter

from tfimg.core import documents, errors
from tfimg.core.events import ChecksPlanned, CheckStarted
from tfimg.core.files import hash_files, remove_oldest, write_atomically
from tfimg.core.levels import Level
from tfimg.core.text import list_first, read_clock
from tfimg.engine.interface import ContainerRunner, DeviceAccess, Engine, Exit, Line, RunRequest
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_facts
from tfimg.recipe.lock import Lock, hash_lock
from tfimg.validation.report import (
    CheckResult,
    Explanation,
    Inventory,
    Outcome,
    Report,
    Verdict,
    run_program,
    take_inventory,
)
from tfimg.validation.suite import ALL_CHECKS, MAX_FILES, CheckSelection

SUITE_SECONDS = 4 * 3600.0
"""Limit of the whole suite, for an engine that hangs: the suite itself limits each check.

Minutes are usual; but compiling TensorFlow's PTX for a newer GPU takes half an hour, more than once without a cache.
"""

SIGKILL_STATUS = 128 + 9  # status of a container whose process got SIGKILL: from `docker kill`, or from the kernel
MAX_OUTPUT = 600  # characters of a process's last lines in the reason of a crash
MAX_UNFINISHED = 10  # checks without a result that a problem names
FAILURES = ("failed", "crashed", "timed-out")

MAX_ERROR_LINES, MAX_ERROR_LINE = 40, 10_000
"""Last lines of stderr that are kept for the reason of a crash, and characters of each."""

MAX_CHECKS = 1000  # checks that a suite may plan, as many as records keep; the full profile of ours has 140
MAX_CHARACTERS = 64 << 20  # characters of all events; those of the whole suite have less than a million
Name = Annotated[str, Field(max_length=1000)]
Names = Annotated[tuple[Name, ...], Field(max_length=MAX_CHECKS)]

SuiteEvent = ChecksPlanned | CheckStarted | CheckResult  # what a caller learns of a running suite


class SuitePlan(documents.Document):
    """The suite's first event: its checks, and the machine as it sees it."""

    checks: Names
    required: Names
    unproven: Names
    waived: dict[Name, str]
    environment: dict[str, Any]
    nonce: str = ""


class Done(documents.Document):
    """The suite's last event."""

    code: int
    problem: str | None


StreamedEvent = (
    Annotated[SuitePlan, Tag("suite")]
    | Annotated[CheckStarted, Tag("start")]
    | Annotated[CheckResult, Tag("end")]
    | Annotated[Done, Tag("done")]
)


@cache
def _event_adapter() -> TypeAdapter[StreamedEvent]:
    return TypeAdapter(
        Annotated[StreamedEvent, Discriminator(lambda value: value.get("event") if isinstance(value, dict) else None)]
    )


@dataclass(kw_only=True, slots=True)
class EventStream:
    """State of one run of the suite, from the events so far.

    `nonce` was given to this run alone: a recorded stream of another run does not have it.
    """

    nonce: str = ""
    plan: SuitePlan = field(
        default_factory=lambda: SuitePlan(checks=(), required=(), unproven=(), waived={}, environment={})
    )
    running: str | None = None
    results: list[CheckResult] = field(default_factory=list)
    done: Done | None = None
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_ERROR_LINES))
    exit: Exit | None = None
    timed_out: bool = False
    unfinished: list[str] = field(default_factory=list)
    characters: int = 0

    def feed(self, item: Line | Exit) -> Iterator[SuiteEvent]:
        """Process one line or the end of the process, and yield the event that it completes.

        An event counts when it can come: one plan, then start and end of each planned check, then one end.
        """
        if isinstance(item, Exit):
            self.exit = item
            return
        is_idle = self.running is None and self.done is None
        match self._parse(item.text) if item.stream == "stdout" else None:
            case SuitePlan() as plan if not self.plan.checks and plan.nonce == self.nonce:
                self.plan = plan
                yield ChecksPlanned(checks=plan.checks)
            case CheckStarted() as start if is_idle and start.check in self._pending():
                self.running = start.check
                yield start
            case CheckResult() as result if result.check == self.running:
                self.running = None
                self.results.append(result)
                yield result
            case Done() as done if is_idle and self.plan.checks:
                self.done = done
            case _:
                self.errors.append(item.text[-MAX_ERROR_LINE:])

    def _parse(self, line: str) -> StreamedEvent | None:
        self.characters += len(line)
        if self.characters > MAX_CHARACTERS:
            return None
        try:
            documents.parse_json(line.encode())
            return _event_adapter().validate_json(line, strict=True)
        except ValueError:  # of this family are `InvalidDocument` and pydantic's errors
            return None

    def _pending(self) -> list[str]:
        ended = {result.check for result in self.results}
        return [check for check in self.plan.checks if check not in ended]

    def finish(self) -> Iterator[CheckResult]:
        """Yield results for the checks that did not end: the running one, and those after it."""
        self.unfinished = list(dict.fromkeys(self._pending()))
        for check in self.unfinished:
            outcome: Outcome = "skipped"
            reason = "the suite ended before it"
            if check == self.running:
                outcome = "timed-out" if self.timed_out else "crashed"
                reason = (
                    f"it did not end within {SUITE_SECONDS:.0f} s"
                    if self.timed_out
                    else describe_exit(self.exit, self.errors)
                )
            result = CheckResult(check=check, outcome=outcome, reason=reason, seconds=0.0, measured={})
            self.results.append(result)
            yield result

    @property
    def problem(self) -> str | None:
        """Reason why the suite is incomplete or contradicts itself; None if it ran to its end."""
        if self.timed_out:
            return f"the suite did not end within {SUITE_SECONDS:.0f} s"
        if not self.plan.checks:
            return f"the suite did not start: {describe_exit(self.exit, self.errors)}"
        if self.done is None:
            return f"the suite did not reach its end: {describe_exit(self.exit, self.errors)}"
        if self.exit is None or self.exit.status != self.done.code:
            return f"the suite reported its end, and then {describe_exit(self.exit, self.errors)}"
        if self.unfinished:
            return f"the suite reported its end without having run {list_first(self.unfinished, MAX_UNFINISHED)}"
        if self.done.code == 0 and any(result.outcome in FAILURES for result in self.results):
            return "the suite reported success in spite of failed checks"
        return self.done.problem


def describe_exit(end: Exit | None, errors: Iterable[str]) -> str:
    """Return how a program ended, with the last lines of its errors."""
    if end and end.out_of_memory:
        return "the kernel killed it for lack of memory"
    status = f"the process ended with status {end.status}" if end else "the process ended"
    if end and end.status == SIGKILL_STATUS:
        status += ", killed from outside"
    output = " ".join(list(errors)[-3:]).strip()
    return f"{status}: {output[-MAX_OUTPUT:] or 'no output'}"


ERRORS: Mapping[Verdict, type[errors.TfimgError]] = {
    "failed": errors.ValidationFailed,
    "crashed": errors.ValidationCrashed,
    "timed-out": errors.ValidationTimedOut,
    "skipped": errors.ValidationIncomplete,
    "broken": errors.ValidationAborted,
}

MAX_LISTED, MAX_REASON = 3, 300
"""Checks that the message names, and characters of each reason; each check was reported when it ended."""


def raise_for_verdict(
    report: Report, *, subject: str, consequence: str, details: str = "--report FILE keeps all that was measured."
) -> None:
    """Raise the verdict's error if an image is not green; `UnsuitableHost` where the machine is at fault.

    `subject` begins the message, `consequence` says what the failure means for the image's tags, `details` where the
    whole report is.
    """
    if report.passed:
        return
    known = {one.issue: one for result in report.unsuccessful for one in result.explained}
    words = []
    for result in report.unsuccessful[:MAX_LISTED]:
        reason = " ".join((result.reason or "").split())  # a traceback has lines
        reason = reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 1]}…"
        words.append(f"{result.check} {result.outcome}: {reason}")
    more = len(report.unsuccessful) - MAX_LISTED
    checks = "; ".join(words) + (f"; and {more} more, see above" if more > 0 else "")
    if report.problem:
        found = f", but {report.problem}" + (f". {checks}" if checks else "")
        next_step = "Look inside with `docker run --rm -it --entrypoint sh IMAGE`."
        if report.results:
            next_step = "Try again; if it breaks at the same check, the image is at fault."
    else:
        found = f", and {len(report.unsuccessful)} of {len(report.results)} checks did not pass. {checks}"
        next_step = " ".join(one.fix for one in known.values()) or details
    causes = "".join(f" Known cause ({one.fault}): {one.cause}" for one in known.values())
    error = errors.UnsuitableHost if report.fault == "host" else ERRORS[report.verdict]
    raise error(f"{subject}{found}{causes}", next_step=f"{consequence} {next_step}")


HARMLESS = "harmless"  # the fault of a message that is not a failure

FAULT_NAMES = {
    "image": "the image",
    "host": "the machine",
    "request": "what was asked for",
    HARMLESS: "nothing: it is harmless",
}


def explain(text: str, *, suite: Path) -> tuple[Explanation, ...]:
    """Return the known failures in a text, the likeliest root cause first, harmless ones last.

    `suite` is the folder of the suite (`Workspace.validation`).
    """
    return tuple(Explanation(**known.to_json()) for known in import_suite_module(suite, "explain").explain(text))


def find_cause(text: str, *, suite: Path) -> Explanation | None:
    """Return the likeliest root cause in a text; None if nothing known is in it, or only harmless messages."""
    return next((known for known in explain(text, suite=suite) if known.fault != HARMLESS), None)


@contextmanager
def explain_errors(suite: Path) -> Iterator[None]:
    """Add the cause and the fix to errors of the build or the engine for which they are known."""
    try:
        yield
    except (errors.BuildError, errors.EngineError, errors.NetworkError) as error:
        known = find_cause(error.what, suite=suite)
        if known is None:
            raise
        # Who asked a server says which option names another one.
        own = error.next_step if isinstance(error, errors.NetworkError) else None
        raise type(error)(error.what, next_step=" ".join(filter(None, (known.cause, known.fix, own)))) from None


_IMPORT_LOCK = threading.Lock()


@cache
def import_suite_module(suite: Path, name: str) -> ModuleType:
    """Import a module of the suite. Its modules import each other by their bare names."""
    with _IMPORT_LOCK:
        sys.path.insert(0, str(suite))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(suite))


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
        with suppress(OSError, documents.InvalidDocument):
            if content:
                return documents.parse_document(Inventory, file.read_bytes())
        inventory = take_inventory(image, self.script, engine=engine, contents_only=True)
        if content:
            write_atomically(file, inventory.model_dump_json())
            remove_oldest(self.folder, keep=MAX_FILES)
        return inventory


FOLDER = "/tfimg-validation"  # folder of the suite in a container

TFIMG_PYTHON = ["/usr/bin/tini", "--", "/opt/tensorflow/bin/python", "-I"]
"""Starts the suite in an image of tfimg: with its own interpreter, whatever PATH, PYTHON* variables, or the entry point
of a derived image say. The checks run in a process that sees the variables."""

ANY_PYTHON = ["sh", "-c", 'exec "$(command -v python || command -v python3)" -I "$@"', "sh"]
"""Starts the suite in an image of another publisher."""

EMULATED_PROCESSOR = {"QEMU_CPU": "cortex-a72"}
"""The processor that QEMU emulates: one of ARMv8.0, which wheels are compiled for. On QEMU's own choice, which has SVE,
TensorFlow 2.15's Cholesky factor is wrong (QEMU 7.2); without SVE it is right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationRequest:
    """An image to validate, its claims, and the level to prove.

    `access` is how the container gets the accelerator that level `validated` needs. `from_lock` is false for an image
    that was not built from `lock`, which is then not compared with it; `may_be_derived`: of one that was, or of one
    made of that, only what the image fixes is compared, and the rest is told. `emulated` gives each check more time.
    """

    spec: ImageSpec
    lock: Lock
    image: str
    digest: str
    suite: Mapping[str, bytes]
    target_level: Level
    access: DeviceAccess = "none"
    from_lock: bool = True
    may_be_derived: bool = False
    selection: CheckSelection = ALL_CHECKS
    emulated: bool = False


def validate(
    request: ValidationRequest,
    engine: ContainerRunner,
    *,
    on_event: Callable[[SuiteEvent], None] = lambda _: None,
    now: Callable[[], datetime] = read_clock,
) -> Report:
    """Run the suite in a container without network, as the image's own user.

    Raises `UsageError` if the selection names a check that the suite does not have, or leaves none,
    `ValidationAborted` where the image has no interpreter, and `KeyboardInterrupt` with a text for users.
    """
    start, stream = time.monotonic(), EventStream(nonce=secrets.token_hex(8))
    container = _container(request, stream.nonce)
    try:
        with closing(run_program(engine, container, timeout=SUITE_SECONDS)) as output:
            for item in output:
                for event in stream.feed(item):
                    on_event(event)
    except TimeoutError:
        stream.timed_out = True
    except errors.EngineError as error:  # as engines report an image without the interpreter
        if re.search(r"executable file .*not found|no such file or directory", error.what, re.IGNORECASE):
            program = (container.entrypoint or container.command)[0]
            raise errors.ValidationAborted(
                f"{request.image} cannot be validated: it has no {program} to start the suite with.",
                next_step="Check its identifier; --as names another one.",
            ) from None
        raise
    except KeyboardInterrupt:
        count = len(stream.results)
        raise KeyboardInterrupt(
            f"Stopped the suite of {request.spec.identifier} after {count} check{'' if count == 1 else 's'}."
        ) from None
    if request.selection != ALL_CHECKS and not stream.plan.checks:
        said = re.search(r"no check (of this image is named|is selected).*", " ".join(stream.errors))
        if said:
            next_step = "The suite takes names of checks, and patterns such as 'numerics.*'."
            raise errors.UsageError(f"No check was run: {said[0].rstrip()}", next_step=next_step)
    for result in stream.finish():
        on_event(result)
    return Report(
        identifier=request.spec.identifier,
        device=request.spec.device,
        digest=request.digest,
        lock=hash_lock(request.lock),
        suite=hash_files(request.suite),
        date=now().isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - start, 2),
        results=tuple(stream.results),
        problem=stream.problem,
        aim=request.target_level,
        profile=request.selection.profile,
        required=stream.plan.required,
        waived=stream.plan.waived,
        unproven=stream.plan.unproven,
        environment=stream.plan.environment,
    )


def _container(request: ValidationRequest, nonce: str) -> RunRequest:
    claims = collect_facts(
        request.spec,
        request.lock,
        level=request.target_level,
        from_lock=request.from_lock,
        may_be_derived=request.may_be_derived,
    )
    files = {f"{FOLDER}/suite/{name}": (content, 0o444) for name, content in request.suite.items()}
    files[f"{FOLDER}/facts.json"] = (json.dumps(claims).encode(), 0o444)
    suite = [f"{FOLDER}/suite", "--json", "--facts", f"{FOLDER}/facts.json"]
    emulated = ["--emulated"] if request.emulated else []
    return RunRequest(
        image=request.image,
        command=[*suite, *request.selection.arguments, *emulated, "--nonce", nonce],
        files=files,
        access=request.access,
        environment=EMULATED_PROCESSOR if request.emulated else {},
        entrypoint=TFIMG_PYTHON if request.from_lock else ANY_PYTHON,
    )

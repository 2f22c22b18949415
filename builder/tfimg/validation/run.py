"""Run the suite in a container of an image, and return the report."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfimg.core.errors import EngineError, UsageError, ValidationAborted
from tfimg.core.files import hash_files
from tfimg.engine.protocol import ContainerRunner, DeviceAccess, Exit, Line, RunRequest
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_facts
from tfimg.recipe.lock import Lock, hash_lock
from tfimg.validation.event_stream import SUITE_SECONDS, EventStream, SuiteEvent
from tfimg.validation.report import Profile, ProvableLevel, Report

FOLDER = "/tfimg-validation"
"""Folder of the suite in a container."""

TFIMG_PYTHON = ["/usr/bin/tini", "--", "/opt/tensorflow/bin/python", "-I"]
"""Starts the suite in an image of tfimg: with its own interpreter, whatever PATH, PYTHON* variables, or the entry point
of a derived image say. The checks run in a process that sees the variables."""

ANY_PYTHON = ["sh", "-c", 'exec "$(command -v python || command -v python3)" -I "$@"', "sh"]
"""Starts the suite in an image of another publisher."""


EMULATED_PROCESSOR = {"QEMU_CPU": "cortex-a72"}
"""The processor that QEMU emulates: one of ARMv8.0, which wheels are compiled for. On QEMU's own choice, which has SVE,
TensorFlow 2.15's Cholesky factor is wrong (QEMU 7.2); without SVE it is right."""


def suite_files(folder: Path) -> dict[str, bytes]:
    """Return the suite's source files by relative path."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*.py"))
        if "__pycache__" not in file.parts
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckSelection:
    """Part of the suite to run; `only` and `skip` are patterns of check names."""

    profile: Profile = "standard"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """Arguments of the suite's program."""
        arguments = ["--profile", self.profile]
        for option, patterns in (("--only", self.only), ("--skip", self.skip)):
            arguments += [option, *patterns] if patterns else []
        return arguments


ALL_CHECKS = CheckSelection()
"""All checks that a level requires."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationRequest:
    """An image to validate, its claims, and the level to prove.

    `access` is how the container gets the accelerator that level `validated` needs. `from_lock` is false for an image
    that was not built from `lock`, which is then not compared with it. `emulated` gives each check more time.
    """

    spec: ImageSpec
    lock: Lock
    image: str
    digest: str
    suite: Mapping[str, bytes]
    target_level: ProvableLevel
    access: DeviceAccess = "none"
    from_lock: bool = True
    selection: CheckSelection = ALL_CHECKS
    emulated: bool = False


def validate(
    request: ValidationRequest,
    engine: ContainerRunner,
    *,
    on_event: Callable[[SuiteEvent], None] = lambda _: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Report:
    """Run the suite in a container without network, as the image's own user.

    Raises `UsageError` if the selection names a check that the suite does not have, or leaves none.
    """
    start, stream = time.monotonic(), EventStream(nonce=secrets.token_hex(8))
    with closing(_run(engine, _container(request, stream.nonce))) as output:
        try:
            for item in output:
                for event in stream.feed(item):
                    on_event(event)
        except TimeoutError:
            stream.timed_out = True
    if request.selection != ALL_CHECKS:
        _require_selected(stream)
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


def _require_selected(stream: EventStream) -> None:
    """Raise `UsageError` if the suite did not start because no check is selected."""
    said = re.search(r"no check (of this image is named|is selected).*", " ".join(stream.errors))
    if said and not stream.plan.checks:
        next_step = "The suite takes names of checks, and patterns such as 'numerics.*'."
        raise UsageError(f"No check was run: {said[0].rstrip()}", next_step=next_step)


def _container(request: ValidationRequest, nonce: str) -> RunRequest:
    claims = collect_facts(request.spec, request.lock, level=request.target_level, from_lock=request.from_lock)
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


def _run(engine: ContainerRunner, request: RunRequest) -> Generator[Line | Exit, None, None]:
    """Run the suite. Raises `ValidationAborted` where the image has no interpreter, which engines report as refusal."""
    try:
        yield from engine.run(request, timeout=SUITE_SECONDS)
    except EngineError as error:
        if re.search(r"executable file .*not found|no such file or directory", error.what, re.IGNORECASE):
            program = (request.entrypoint or request.command)[0]
            raise ValidationAborted(
                f"{request.image} cannot be validated: it has no {program} to start the suite with.",
                next_step="Check its identifier; --as names another one.",
            ) from None
        raise

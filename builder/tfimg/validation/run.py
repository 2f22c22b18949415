"""BuiltImage → Report: run the suite inside, follow its stream, judge what it said and what it left unsaid."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfimg.core.errors import EngineRefused, ValidationBroken
from tfimg.engine.protocol import Access, Engine, Exit, Line, RunOrder
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_facts
from tfimg.recipe.lockfile import Lock, hash_lock
from tfimg.validation.report import CheckResult, Profile, Provable, Report
from tfimg.validation.story import SECONDS, Story

FOLDER = "tfimg-validation"
"""Where the suite lies in a container, below `/`."""

OWN_PYTHON = ["/usr/bin/tini", "--", "/opt/tensorflow/bin/python", "-I"]
"""What starts the suite in an image of tfimg: its own interpreter, whatever PATH, PYTHON* variables, or the entry point
of an image that was made from it say. The checks run in a process that sees the variables."""

ANY_PYTHON = ["sh", "-c", 'exec "$(command -v python || command -v python3)" -I "$@"', "sh"]
"""What starts the suite in an image that somebody else built."""


def suite_files(folder: Path) -> dict[str, bytes]:
    """The suite's source, by path relative to its folder."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*.py"))
        if "__pycache__" not in file.parts
    }


def suite_digest(files: Mapping[str, bytes]) -> str:
    """`sha256:…` of a suite: a report is about one suite."""
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\n{len(files[name])}\n".encode() + files[name])
    return f"sha256:{whole.hexdigest()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """How much of the suite to run; `only` and `skip` are patterns of checks' names."""

    profile: Profile = "standard"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


EVERYTHING = Asking()
"""All that a level requires."""


def _arguments(asking: Asking) -> list[str]:
    chosen = [f"/{FOLDER}/suite", "--json", "--facts", f"/{FOLDER}/facts.json", "--profile", asking.profile]
    for option, patterns in (("--only", asking.only), ("--skip", asking.skip)):
        chosen += [option, *patterns] if patterns else []
    return chosen


def _started(engine: Engine, order: RunOrder) -> Generator[Line | Exit, None, None]:
    """The run. Raises `ValidationBroken` where the image lacks what starts it, which engines tell as a refusal."""
    try:
        yield from engine.run(order, timeout=SECONDS)
    except EngineRefused as error:
        if re.search(r"executable file not found|no such file or directory", error.what):
            program = (order.entrypoint or order.command)[0]
            raise ValidationBroken(
                f"{order.image} was to be validated, but it has no {program} to start the suite with.",
                next_step="It is not what it is said to be; see --as.",
            ) from None
        raise


def validate(
    spec: ImageSpec,
    lock: Lock,
    *,
    image: str,
    image_digest: str,
    suite: Mapping[str, bytes],
    engine: Engine,
    level: Provable,
    access: Access = "none",
    ours: bool = True,
    asking: Asking = EVERYTHING,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    on_result: Callable[[CheckResult], None] = lambda _: None,
    on_plan: Callable[[Sequence[str]], None] = lambda _: None,
    on_start: Callable[[str], None] = lambda _: None,
) -> Report:
    """Run the suite in a container of the image that has no network, as the image's own user.

    `level` is what is to be shown; for `validated`, `access` is how the container gets at the accelerator. `ours`
    says that the image was built from the lock.
    """
    start, nonce = time.monotonic(), secrets.token_hex(8)
    files = {f"/{FOLDER}/suite/{name}": (content, 0o444) for name, content in suite.items()}
    files[f"/{FOLDER}/facts.json"] = (json.dumps(collect_facts(spec, lock, level=level, ours=ours)).encode(), 0o444)
    order = RunOrder(
        image=image,
        command=[*_arguments(asking), "--nonce", nonce],
        files=files,
        access=access,
        entrypoint=OWN_PYTHON if ours else ANY_PYTHON,
    )
    story = Story(nonce=nonce)
    with closing(_started(engine, order)) as output:
        try:
            for said in output:
                for result in story.tell(said, on_start, on_plan):
                    on_result(result)
        except TimeoutError:
            story.timed_out = True
    for result in story.unfinished():
        on_result(result)
    return Report(
        identifier=spec.identifier,
        device=spec.device,
        digest=image_digest,
        lock=hash_lock(lock),
        suite=suite_digest(suite),
        date=now().isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - start, 2),
        results=tuple(story.results),
        problem=story.problem,
        aim=level,
        profile=asking.profile,
        required=tuple(story.required),
        waived=story.waived,
        unproven=tuple(story.unproven),
        environment=story.environment,
    )

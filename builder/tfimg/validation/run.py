"""BuiltImage → Report: run the suite inside, follow its stream, judge what it said and what it left unsaid."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tfimg.engine.protocol import Access, Engine, RunOrder
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Layers, digest, read_packages
from tfimg.validation.report import CheckResult, Provable, Report
from tfimg.validation.story import SECONDS, Story

FOLDER = "tfimg-validation"
"""Where the suite lies in a container, below `/`."""


def facts(spec: ImageSpec, lock: Layers, level: Provable) -> dict[str, Any]:
    """What an image claims to be, in the words of the suite (images/validation/contract.py)."""
    return {
        "identifier": spec.identifier,
        "tensorflow": spec.tensorflow,
        "python": spec.python,
        "device": spec.device,
        "cuda": spec.gpu.cuda if spec.gpu else None,
        "cudnn": spec.gpu.cudnn if spec.gpu else None,
        "architectures": list(spec.gpu.architectures) if spec.gpu else [],
        "libtpu": spec.libtpu,
        "level": level,
        "packages": {package.name: package.version for package in read_packages(lock)},
        "user": "non-root",
    }


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


def validate(
    spec: ImageSpec,
    lock: Layers,
    *,
    image: str,
    image_digest: str,
    suite: Mapping[str, bytes],
    engine: Engine,
    level: Provable,
    access: Access = "none",
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    on_result: Callable[[CheckResult], None] = lambda _: None,
    on_start: Callable[[str], None] = lambda _: None,
) -> Report:
    """Run the suite in a container of the image that has no network, as the image's own user.

    `level` is what is to be shown; for `validated`, `access` is how the container gets at the accelerator.
    """
    start = time.monotonic()
    files = {f"/{FOLDER}/suite/{name}": (content, 0o444) for name, content in suite.items()}
    files[f"/{FOLDER}/facts.json"] = (json.dumps(facts(spec, lock, level)).encode(), 0o444)
    order = RunOrder(
        image=image,
        command=["python", f"/{FOLDER}/suite", "--facts", f"/{FOLDER}/facts.json"],
        files=files,
        access=access,
    )
    story = Story()
    with closing(engine.run(order, timeout=SECONDS)) as output:
        try:
            for said in output:
                for result in story.tell(said, on_start):
                    on_result(result)
        except TimeoutError:
            story.timed_out = True
    for result in story.unfinished():
        on_result(result)
    return Report(
        identifier=spec.identifier, device=spec.device, digest=image_digest, lock=digest(lock),
        suite=suite_digest(suite), date=now().isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - start, 2), results=tuple(story.results), problem=story.problem,
        aim=level, unproven=tuple(story.unproven),
    )  # fmt: skip

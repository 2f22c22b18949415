"""What an image is to a reader: its JSON object, the status that evidence proves, and whether it can be built."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfimg.core.errors import FileError, UnsupportedPlatform
from tfimg.core.levels import LEVELS, Level
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.tags import list_tags


@dataclass(frozen=True, kw_only=True, slots=True)
class BareMachine:
    """A machine on which an image's wheels were proven without the image, its driver, and the day."""

    machine: str
    driver: str | None
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """What is proven of an image: the level, the day, and the accelerator and driver that it was proven on.

    `bare_machines` have proven its wheels without the image, which raises no level.
    """

    level: Level
    date: str | None = None
    gpu: str | None = None
    driver: str | None = None
    bare_machines: tuple[BareMachine, ...] = ()


DECLARED = Status(level="declared")
"""Of an image that only the matrix speaks of."""


def read_status(evidence: str, *, lock_digest: str, source: str) -> Status:
    """The status that committed evidence proves; nothing else can raise it.

    Evidence is a validation report. One about another lock is about another image and proves nothing; one about a
    GPU or TPU image that does not name the accelerator proves no more than `linked`. Raises `FileError`, naming
    `source`, for a text that is no report.
    """
    try:
        report = json.loads(evidence)
        about, passed, found, device = (report[key] for key in ("lock", "passed", "level", "device"))
        day = str(report["date"])[:10]
    except (ValueError, TypeError, KeyError):
        found = None
    if found not in LEVELS:
        raise FileError(f"{source} is no validation report.", next_step="Write it anew with `tfimg build --record`.")
    if not passed or about != lock_digest:
        return DECLARED
    level: Level = found
    gpu, driver = report.get("gpu"), report.get("driver")
    if level == "validated" and device != "cpu" and not gpu:
        level = "linked"
    return Status(level=level, date=day, gpu=gpu, driver=driver)


def describe_image(spec: ImageSpec, *, repository: str, status: Status) -> dict[str, Any]:
    """What an image is, with null where its device has no such thing."""
    return {
        "identifier": spec.identifier,
        "tensorflow": spec.tensorflow,
        "python": spec.python,
        "device": spec.device,
        "platform": spec.platform,
        "package": spec.package,
        "cuda": spec.gpu.cuda if spec.gpu else None,
        "cudnn": spec.gpu.cudnn if spec.gpu else None,
        "driver_floor": spec.driver,
        "architectures": list(spec.gpu.architectures) if spec.gpu else None,
        "libraries": dict(spec.libraries) or None,
        "libtpu": spec.libtpu,
        "numpy": spec.numpy,
        "keras": spec.keras,
        "constraints": [constraint.model_dump() for constraint in spec.constraints],
        "tags": list(list_tags(spec, repository=repository)),
        **asdict(status),
        "bare_machines": [asdict(one) for one in status.bare_machines] or None,
        "base": spec.base.image,
        "released": spec.released.isoformat(),
        "cutoff": spec.cutoff.isoformat(),
    }


def require_buildable(spec: ImageSpec) -> None:
    """Raises `UnsupportedPlatform` for an image that this version cannot build."""
    if spec.platform != PLATFORMS[0]:
        raise UnsupportedPlatform(
            f"{spec.identifier} is for {spec.platform}, and this version of tfimg builds for {PLATFORMS[0]} only.",
            next_step=f"`tfimg resolve` has its facts, images/locks/{spec.identifier} its lock; for an image, ask for "
            f"--platform {PLATFORMS[0]}.",
        )


def select_buildable(specs: Sequence[ImageSpec]) -> tuple[ImageSpec, ...]:
    """Those that this version can build. Raises `UnsupportedPlatform` where it can build none of them."""
    found = tuple(spec for spec in specs if spec.platform == PLATFORMS[0])
    if specs and not found:
        require_buildable(specs[0])
    return found

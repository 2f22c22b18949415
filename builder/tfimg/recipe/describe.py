"""Describe images: as JSON, by the status that evidence proves; select them by platform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfimg.core.levels import Level
from tfimg.matrix.schema import DEVICES, PLATFORMS, RUNTIME
from tfimg.matrix.spec import ImageSpec, OwnPackages
from tfimg.matrix.support_ends import SupportEnd
from tfimg.recipe.labels import BaseKind
from tfimg.recipe.lockfile import read_packages
from tfimg.recipe.tags import list_tags


@dataclass(frozen=True, kw_only=True, slots=True)
class BareMachine:
    """A machine on which an image's wheels were proven without the image."""

    machine: str
    driver: str | None
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The proven level of an image, and the day, accelerator, driver and kind of base of the proof.

    `emulated`: an emulator ran the image's programs. `bare_machines` have proven its wheels without the image, which
    raises no level.
    """

    level: Level
    date: str | None = None
    gpu: str | None = None
    driver: str | None = None
    emulated: bool = False
    base_kind: BaseKind | None = None
    bare_machines: tuple[BareMachine, ...] = ()


DECLARED = Status(level="declared")
"""Status of an image without evidence."""


def describe_image(spec: ImageSpec, *, repository: str, status: Status) -> dict[str, Any]:
    """Return an image as the JSON object that `resolve` and `list` print."""
    return {
        "identifier": spec.identifier,
        "flavor": spec.flavor,
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
        "bare_machines": [asdict(machine) for machine in status.bare_machines] or None,
        "base": spec.base.image,
        "supported_until": spec.support_ends[0].ends.isoformat() if spec.support_ends else None,
        "end_of_life": [describe_support_end(end) for end in spec.support_ends],
        "released": spec.released.isoformat(),
        "cutoff": spec.cutoff.isoformat(),
    }


def describe_own_packages(own: OwnPackages, debian: Mapping[str, str] | None = None) -> str:
    """Return packages of a user in words: the requirements, what they resolved to, Debian packages with versions."""
    locked = [f"{package.name} {package.version}" for package in read_packages({"own": own.lock})]
    names = (one.partition("=") for one in own.system_packages)
    system = [f"{name} {(debian or {}).get(name) or version}".strip() for name, _, version in names]
    lists = {"asked": own.requirements, "Python": locked, "Debian": system}
    return "; ".join(f"{title}: {', '.join(found)}" for title, found in lists.items() if found) or "nothing"


def describe_support_end(end: SupportEnd) -> dict[str, str]:
    """Return the end of a version's security fixes as a JSON object."""
    return {"subject": end.subject, "ends": end.ends.isoformat(), "source": end.source}


def describe_matrix_image(spec: ImageSpec, *, repository: str, status: Status) -> dict[str, Any]:
    """Return an image as `matrix` and `which` print it: with row and build command."""
    described = describe_image(spec, repository=repository, status=status)
    return {"row": spec.row, **described, "build": f"tfimg build {format_request(spec)}"}


def format_request(spec: ImageSpec) -> str:
    """Return the options that request exactly this image."""
    device = "" if spec.device == DEVICES[0] else f" --device {spec.device}"
    platform = "" if spec.platform == PLATFORMS[0] else f" --platform {spec.platform}"
    flavor = "" if spec.flavor == RUNTIME else f" --flavor {spec.flavor}"
    return f"--tf {spec.tensorflow} --python {spec.python}{device}{platform}{flavor}"


def select_platforms(specs: Sequence[ImageSpec], patterns: Sequence[str] = ()) -> tuple[ImageSpec, ...]:
    """Return the images for the first platform, and those for others where a pattern names a platform, or matches only
    them: few want to build every image twice."""
    others = [platform.partition("/")[2] for platform in PLATFORMS[1:]]
    first = tuple(spec for spec in specs if spec.platform == PLATFORMS[0])
    if not first or any(other in pattern for pattern in patterns for other in others):
        return tuple(specs)
    return first

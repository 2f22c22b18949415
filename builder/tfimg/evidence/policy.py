"""What evidence has to show, in one value: from `--require`, or from a policy file that says the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Literal

from packaging.specifiers import SpecifierSet

from tfimg.errors import UsageError
from tfimg.matrix.schema import Device
from tfimg.recipe.describe import Level

Required = Literal["built", "linked", "validated"]
"""Levels that evidence can show: `declared` is nothing but a line of the matrix."""

REQUIRED: tuple[Required, ...] = ("built", "linked", "validated")

ACCELERATORS: tuple[Device, ...] = ("gpu", "tpu")

UNITS: Mapping[str, str] = {"h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """The level that tags promise: `tags` is a glob, `reason` says why they promise so much or so little."""

    tags: str
    level: Required
    reason: str


PROMISES = (
    Promise(tags="*-gpu", level="validated", reason="it works on a GPU, and has been seen to"),
    Promise(tags="*-gpu-*", level="validated", reason="it works on a GPU, and has been seen to"),
    Promise(tags="*", level="linked", reason="whatever shows without its accelerator has been seen"),
)
"""What tags promise where a policy says nothing else; the first that fits holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is required; None where nothing is. `level` None: what the image's tag promises.

    `gpu` is the compute capability of a GPU that it ran on, sm_90; `driver` a range of that GPU's driver; `max_age` how
    long ago the validation may have ended. `promises` hold before those that hold anyway.
    """

    level: Required | None = None
    gpu: str | None = None
    driver: SpecifierSet | None = None
    max_age: timedelta | None = None
    promises: tuple[Promise, ...] = ()

    def promise(self, tag: str) -> Promise:
        """What a tag promises, and why."""
        return next(one for one in (*self.promises, *PROMISES) if fnmatchcase(tag, one.tags))

    def alias_level(self, alias: str) -> Level:
        """The lowest level that an image may have to be given a tag."""
        return self.promise(alias).level


def named_device(tag: str) -> Device | None:
    """The accelerator that a tag names, as `2.15-gpu-py3.11` does; None where it names none."""
    return next((device for device in ACCELERATORS if device in tag.split("-")[1:]), None)


def parse_requirements(text: str, *, policy: Policy) -> Policy:
    """`validated,gpu=sm_90,driver>=535,max-age=30d` over what a policy says already. Raises `UsageError`."""
    said: dict[str, str] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, value = _requirement(word)
        if name in said and name != "driver":
            raise _refused(word, f"{name} is required twice")
        said[name] = f"{said[name]},{value}" if name in said else value
    if not said:
        raise _refused(text, "it is empty")
    return replace(
        policy,
        level=_level(said["level"]) if "level" in said else policy.level,
        gpu=said.get("gpu", policy.gpu),
        driver=_range(said["driver"]) if "driver" in said else policy.driver,
        max_age=_age(said["max-age"]) if "max-age" in said else policy.max_age,
    )


def age(text: str) -> timedelta:
    """`30d`, `12h`, `4w` → how long that is. Raises `ValueError`."""
    count, unit = text[:-1], text[-1:]
    if unit not in UNITS or not count.isdecimal() or not 0 < int(count) < 100_000:
        raise ValueError(f"{text!r} is no age such as 30d, 12h or 4w")
    return timedelta(**{UNITS[unit]: int(count)})


def _requirement(word: str) -> tuple[str, str]:
    if word in REQUIRED:
        return "level", word
    if word.startswith("driver") and word[6:7] in tuple("<>=!~"):
        return "driver", word[6:]
    name, equal, value = word.partition("=")
    if name == "gpu" and equal and value.startswith("sm_") and value[3:].isdecimal():
        return "gpu", value
    if name == "max-age" and equal:
        return "max-age", value
    raise _refused(word, "nothing of that kind can be required")


def _level(text: str) -> Required:
    return next(level for level in REQUIRED if level == text)


def _range(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except ValueError:
        raise _refused(f"driver{text}", "it is no range of versions") from None


def _age(text: str) -> timedelta:
    try:
        return age(text)
    except ValueError as error:
        raise _refused(f"max-age={text}", str(error)) from None


def _refused(word: str, why: str) -> UsageError:
    return UsageError(
        f"--require {word!r} cannot be understood: {why}.",
        next_step=f"Write one of {', '.join(REQUIRED)}, gpu=sm_90, driver>=535 and max-age=30d, with commas between.",
    )

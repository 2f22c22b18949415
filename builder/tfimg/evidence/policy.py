"""Policies: what evidence has to show, from `--require` or from a policy file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Literal

from packaging.specifiers import SpecifierSet

from tfimg.core.documents import InvalidDocument, validate
from tfimg.core.errors import InvalidKey, UsageError
from tfimg.core.levels import Level
from tfimg.evidence.keys import VerifyingKey, fingerprints
from tfimg.matrix.schema import Device, RangeText

EvidenceLevel = Literal["built", "linked", "validated"]
"""Levels that evidence can show: `declared` is nothing but a line of the matrix."""

EVIDENCE_LEVELS: tuple[EvidenceLevel, ...] = ("built", "linked", "validated")

ACCELERATORS: tuple[Device, ...] = ("gpu", "tpu")

DEFAULT_MAX_AGE = timedelta(days=90)
"""How old evidence may be where a policy says nothing else. Statements can be deleted from a registry, or old ones put
back: this bounds how long that hides a newer failure or withdrawal."""

UNLIMITED = "unlimited"

UNITS: Mapping[str, str] = {"h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TagPromise:
    """The level that tags promise: `tags` is a glob, `reason` says why they promise so much or so little."""

    tags: str
    level: EvidenceLevel
    reason: str


PROMISES = (
    TagPromise(tags="*-gpu", level="validated", reason="it works on a GPU, and has been seen to"),
    TagPromise(tags="*-gpu-*", level="validated", reason="it works on a GPU, and has been seen to"),
    TagPromise(tags="*", level="linked", reason="whatever shows without its accelerator has been seen"),
)
"""What tags promise where a policy says nothing else; the first that matches counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is required; None where nothing is. `level` None: what the image's tag promises.

    `gpu` is the compute capability of a GPU that it ran on, sm_90; `driver` a range of that GPU's driver; `max_age` how
    long ago the validation may have ended. `promises` hold before those that hold anyway. `trusted_keys` are keys that
    a policy file brings; `refused_keys` are fingerprints of keys that count for nothing, also where they are trusted.
    """

    level: EvidenceLevel | None = None
    gpu: str | None = None
    driver: SpecifierSet | None = None
    max_age: timedelta | None = DEFAULT_MAX_AGE
    promises: tuple[TagPromise, ...] = ()
    trusted_keys: tuple[VerifyingKey, ...] = ()
    refused_keys: frozenset[str] = frozenset()

    def find_promise(self, tag: str) -> TagPromise:
        """Return what a tag promises, and why."""
        return next(one for one in (*self.promises, *PROMISES) if fnmatchcase(tag, one.tags))

    def accepted_keys(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        """Return the keys that are not refused. Raises `InvalidKey` where none is left."""
        accepted = tuple(key for key in keys if key.identifier not in self.refused_keys)
        if not accepted:
            raise InvalidKey(
                f"Nothing can be verified: the policy refuses {fingerprints(keys)}, and no other key is trusted.",
                next_step="Name the publisher's new public key with --public-key.",
            )
        return accepted

    def required_level(self, alias: str) -> Level:
        """Return the lowest level that an image may have to be given a tag."""
        return self.find_promise(alias).level


def device_in_tag(tag: str) -> Device | None:
    """Return the accelerator that a tag names, as `2.15-gpu-py3.11` does; None where it names none."""
    return next((device for device in ACCELERATORS if device in tag.split("-")[1:]), None)


def parse_requirements(text: str, *, policy: Policy) -> Policy:
    """Return a policy changed by words such as `validated,gpu=sm_90,driver>=535,max-age=30d`. Raises `UsageError`."""
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


def parse_age(text: str) -> timedelta | None:
    """Return the duration of `30d`, `12h` or `4w`; None for `unlimited`. Raises `ValueError`."""
    if text == UNLIMITED:
        return None
    count, unit = text[:-1], text[-1:]
    if unit not in UNITS or not re.fullmatch("[0-9]{1,5}", count) or not int(count):
        raise ValueError(f"{text!r} is not an age such as 30d, 12h, 4w or unlimited")
    return timedelta(**{UNITS[unit]: int(count)})


def _requirement(word: str) -> tuple[str, str]:
    if word in EVIDENCE_LEVELS:
        return "level", word
    if word.startswith("driver") and word[6:7] in tuple("<>=!~"):
        return "driver", word[6:]
    name, equal, value = word.partition("=")
    if name == "gpu" and equal and value.startswith("sm_") and value[3:].isdecimal():
        return "gpu", value
    if name == "max-age" and equal:
        return "max-age", value
    raise _refused(word, "nothing of that kind can be required")


def _level(text: str) -> EvidenceLevel:
    return next(level for level in EVIDENCE_LEVELS if level == text)


def _range(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(validate(RangeText, text))
    except InvalidDocument:
        raise _refused(f"driver{text}", "it is not a range of versions") from None


def _age(text: str) -> timedelta | None:
    try:
        return parse_age(text)
    except ValueError as error:
        raise _refused(f"max-age={text}", str(error)) from None


def _refused(word: str, why: str) -> UsageError:
    return UsageError(
        f"--require {word!r} cannot be understood: {why}.",
        next_step=f"Write one of {', '.join(EVIDENCE_LEVELS)}, gpu=sm_90, driver>=535 and max-age=30d, with commas "
        "between.",
    )

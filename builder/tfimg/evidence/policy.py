"""Policies: requirements of evidence, from `--require` or from a policy file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal

from packaging.specifiers import SpecifierSet

from tfimg.core.documents import InvalidDocument, validate
from tfimg.core.errors import InvalidKey, UsageError
from tfimg.core.text import quote_value
from tfimg.evidence.keys import VerifyingKey, fingerprints
from tfimg.matrix.schema import RangeText
from tfimg.matrix.support_ends import SupportEnd

EvidenceLevel = Literal["built", "linked", "validated"]
"""Levels that evidence can prove; `declared` is only a line of the matrix."""

EVIDENCE_LEVELS: tuple[EvidenceLevel, ...] = ("built", "linked", "validated")

DEFAULT_MAX_AGE = timedelta(days=90)
"""Default of the age of evidence. Statements can be deleted from a registry, or old ones restored: this bounds how long
that hides a newer failure or withdrawal."""

UNLIMITED = "unlimited"

UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}

WORD = re.compile(
    rf"(?P<level>{'|'.join(EVIDENCE_LEVELS)})|(?P<supported>supported)|gpu=(?P<gpu>sm_[0-9]+)|driver(?P<driver>[<>=!~].*)|max-age=(?P<age>.*)"
)
"""A word of --require."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TagPromise:
    """The level that tags promise, with the reason: `tags` is a glob."""

    tags: str
    level: EvidenceLevel
    reason: str


PROMISES = (
    TagPromise(tags="*-gpu", level="validated", reason="it has been validated on a GPU"),
    TagPromise(tags="*-gpu-*", level="validated", reason="it has been validated on a GPU"),
    TagPromise(tags="*", level="linked", reason="all checks without its accelerator have passed"),
)
"""Default promises; the first that matches counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is required; None where nothing is. `level` None: what the image's tag promises.

    `gpu` is the compute capability of a GPU that it ran on, sm_90; `driver` a range of that GPU's driver; `max_age` how
    long ago the validation may have ended. `promises` hold before those that hold anyway. `trusted_keys` are keys that
    a policy file brings; `refused_keys` are fingerprints of keys that count for nothing, also where they are trusted.
    `refuse_end_of_life`: its Python, Debian release and TensorFlow minor get security fixes, as `find_support_ends`
    tells by its identifier (None: it cannot be told). `origin` is the publisher's repository, which promotions name, if
    the image is in a mirror.
    """

    level: EvidenceLevel | None = None
    gpu: str | None = None
    driver: SpecifierSet | None = None
    max_age: timedelta | None = DEFAULT_MAX_AGE
    promises: tuple[TagPromise, ...] = ()
    trusted_keys: tuple[VerifyingKey, ...] = ()
    refused_keys: frozenset[str] = frozenset()
    refuse_end_of_life: bool = False
    find_support_ends: Callable[[str], Sequence[SupportEnd] | None] = lambda _: None
    origin: str | None = None
    allow_withdrawn: bool = False

    def find_promise(self, tag: str) -> TagPromise:
        """Return the promise of a tag."""
        return next(promise for promise in (*self.promises, *PROMISES) if fnmatchcase(tag, promise.tags))

    def accepted_keys(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        """Return the keys that are not refused. Raises `InvalidKey` if none is left."""
        accepted = tuple(key for key in keys if key.identifier not in self.refused_keys)
        if not accepted:
            raise InvalidKey(
                f"Nothing can be verified: the policy refuses {fingerprints(keys)}, and no other key is trusted.",
                next_step="Name the publisher's new public key with --public-key.",
            )
        return accepted


def parse_requirements(text: str, *, policy: Policy) -> Policy:
    """Return a policy changed by words such as `validated,supported,gpu=sm_90,max-age=30d`. Raises `UsageError`."""
    required: dict[str, str] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        found = WORD.fullmatch(word)
        if not found or not found.lastgroup:
            raise _invalid(word, "this cannot be required")
        name, value = found.lastgroup, found[found.lastgroup]
        if name in required and name != "driver":
            raise _invalid(word, f"{'max-age' if name == 'age' else name} is required twice")
        required[name] = f"{required[name]},{value}" if name in required else value
    if not required:
        raise _invalid(text, "it is empty")
    changes: dict[str, Any] = {name: required[name] for name in ("level", "gpu") if name in required}
    if "supported" in required:
        changes["refuse_end_of_life"] = True
    if "driver" in required:
        try:
            changes["driver"] = SpecifierSet(validate(RangeText, required["driver"]))
        except InvalidDocument:
            raise _invalid(f"driver{required['driver']}", "it is not a range of versions") from None
    if "age" in required:
        try:
            changes["max_age"] = parse_age(required["age"])
        except ValueError as error:
            raise _invalid(f"max-age={required['age']}", str(error)) from None
    return replace(policy, **changes)


def parse_age(text: object) -> timedelta | None:
    """Return the duration of `30d`, `12h` or `4w`; None for `unlimited`. Raises `ValueError`."""
    if text == UNLIMITED:
        return None
    found = re.fullmatch("([0-9]{1,5})([hdw])", text) if isinstance(text, str) else None
    if not found or not int(found[1]):
        raise ValueError(f"{quote_value(text)} is not an age such as 30d, 12h, 4w or unlimited")
    return int(found[1]) * UNITS[found[2]]


def _invalid(word: str, reason: str) -> UsageError:
    levels = ", ".join(EVIDENCE_LEVELS)
    return UsageError(
        f"--require {word!r} is not a valid requirement: {reason}.",
        next_step=f"Write one of {levels}, supported, gpu=sm_90, driver>=535 and max-age=30d, with commas between.",
    )

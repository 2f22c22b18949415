"""What a user demands of attestations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from packaging.specifiers import SpecifierSet
from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, ValidationError

from tfimg.attestations.keys import FINGERPRINT, VerifyingKey, fingerprints, read_verifying_key
from tfimg.core import documents, errors, files
from tfimg.core.levels import AttestedLevel, Level
from tfimg.core.text import quote_value
from tfimg.matrix.load import describe_schema_errors, read_yaml
from tfimg.matrix.schema import Capability, RangeText, Sentence
from tfimg.matrix.support_ends import SupportEnd

ATTESTED_LEVELS = tuple(level for level in Level if level > Level.DECLARED)

DEFAULT_MAX_AGE = timedelta(days=90)
"""Default of the age of attestations. Statements can be deleted from a registry, or old ones restored: this bounds how
long that hides a newer failure or withdrawal."""

UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}

WORD = re.compile(
    rf"(?P<level>{'|'.join(ATTESTED_LEVELS)})|(?P<supported>supported)|gpu=(?P<gpu>sm_[0-9]+)|driver(?P<driver>[<>=!~].*)|max-age=(?P<age>.*)"
)
"""A word of --require."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TagPromise:
    """The level that tags promise, with the reason: `tags` is a glob."""

    tags: str
    level: Level
    reason: str


PROMISES = (
    TagPromise(tags="*-gpu", level=Level.VALIDATED, reason="it has been validated on a GPU"),
    TagPromise(tags="*-gpu-*", level=Level.VALIDATED, reason="it has been validated on a GPU"),
    TagPromise(tags="*", level=Level.LINKED, reason="all checks without its accelerator have passed"),
)
"""Default promises; the first that matches counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is required; None where nothing is. `level` None: what the image's tag promises.

    `gpu` is the compute capability of a GPU that it ran on, sm_90; `driver` a range of that GPU's driver; `max_age` how
    long ago the validation may have ended. `promises` hold before those that hold anyway. `trusted_keys` are keys that
    a policy file brings; `refused_keys` are fingerprints of keys that count for nothing, also where they are trusted.
    `refuse_end_of_life`: its Python, Debian release, TensorFlow and CUDA minor get security fixes, as
    `find_support_ends` tells by its identifier (None: it cannot be told). `origin` is the publisher's repository, which
    promotions name, if the image is in a mirror.
    """

    level: Level | None = None
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
            raise errors.InvalidKey(
                f"Nothing can be verified: the policy refuses {fingerprints(keys)}, and no other key is trusted.",
                next_step="Name the publisher's new public key with --public-key.",
            )
        return accepted


def parse_conditions(text: str, *, policy: Policy) -> Policy:
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
    changes: dict[str, Any] = {
        name: make(required[name]) for name, make in (("level", Level), ("gpu", str)) if name in required
    }
    if "supported" in required:
        changes["refuse_end_of_life"] = True
    if "driver" in required:
        try:
            changes["driver"] = SpecifierSet(documents.validate_model(RangeText, required["driver"]))
        except documents.InvalidDocument:
            raise _invalid(f"driver{required['driver']}", "it is not a range of versions") from None
    if "age" in required:
        try:
            changes["max_age"] = parse_age(required["age"])
        except ValueError as error:
            raise _invalid(f"max-age={required['age']}", str(error)) from None
    return replace(policy, **changes)


def parse_age(text: object) -> timedelta | None:
    """Return the duration of `30d`, `12h` or `4w`; None for `unlimited`. Raises `ValueError`."""
    if text == "unlimited":
        return None
    found = re.fullmatch("([0-9]{1,5})([hdw])", text) if isinstance(text, str) else None
    if not found or not int(found[1]):
        raise ValueError(f"{quote_value(text)} is not an age such as 30d, 12h, 4w or unlimited")
    return int(found[1]) * UNITS[found[2]]


def _invalid(word: str, reason: str) -> errors.UsageError:
    levels = ", ".join(ATTESTED_LEVELS)
    return errors.UsageError(
        f"--require {word!r} is not a valid requirement: {reason}.",
        next_step=f"Write one of {levels}, supported, gpu=sm_90, driver>=535 and max-age=30d, with commas between.",
    )


AgeText = Annotated[timedelta | None, BeforeValidator(parse_age, json_schema_input_type=str)]
# At most 200 characters: Python takes n² steps for n brackets that nothing closes.
GlobText = Annotated[str, Field(pattern=r"^[\w.*?\[\]-]{1,200}$")]

MAX_BYTES = 1 << 16
"""Size of a policy file: 600 aliases with reasons. Hostile YAML of this size takes three seconds to parse."""

MAX_KEYS = 100


def _parse_key(text: object) -> VerifyingKey:
    try:
        return read_verifying_key(str(text).encode(), source="it")
    except errors.InvalidKey as error:
        raise ValueError(error.what) from None


KeyText = Annotated[VerifyingKey, PlainValidator(_parse_key, json_schema_input_type=str)]
Fingerprint = Annotated[str, Field(pattern=FINGERPRINT)]


class PolicyRequirements(BaseModel, frozen=True, extra="forbid"):
    """What attestations have to show; what is left out is not required."""

    level: AttestedLevel | None = Field(default=None, description="Lowest level; none: what the tag promises")
    gpu: Capability | None = Field(default=None, description="Compute capability of a GPU on which it was validated")
    driver: RangeText | None = Field(default=None, description="Driver of that GPU")
    refuse_end_of_life: bool = Field(
        default=False,
        alias="refuse-end-of-life",
        description="Refuse images whose Python, Debian release, TensorFlow or CUDA minor gets no more security fixes",
    )
    max_age: AgeText = Field(
        default=DEFAULT_MAX_AGE, alias="max-age", description="Highest age: 12h, 30d, 8w or unlimited"
    )


class PolicyPromise(BaseModel, frozen=True, extra="forbid"):
    """What tags promise instead of the default."""

    level: AttestedLevel = Field(description="Level that images of these tags must have")
    reason: Sentence = Field(description="Why; publishing shows it")


class PolicyFile(BaseModel, frozen=True, extra="forbid"):
    """A policy for many images, in writing."""

    version: Annotated[Literal[1], documents.WHOLE] = Field(description="Version of this format")
    require: PolicyRequirements = Field(default=PolicyRequirements(), description="For every image")
    aliases: dict[GlobText, PolicyPromise] = Field(
        default_factory=dict, description="By pattern of tags; the first counts"
    )
    trusted_keys: tuple[KeyText, ...] = Field(
        default=(), alias="trusted-keys", max_length=MAX_KEYS, description="In addition to those of the command line"
    )
    refused_keys: tuple[Fingerprint, ...] = Field(
        default=(), alias="refused-keys", max_length=MAX_KEYS, description="Never count, even if trusted"
    )


def read_policy_file(file: str) -> Policy:
    """Read a policy file. Raises `FileError`."""
    return parse_policy(files.read_limited(file, MAX_BYTES, next_step="Name the policy's file.").decode(), source=file)


def parse_policy(text: str, *, source: str) -> Policy:
    """Parse a policy file; every alias has a written reason. Raises `FileError` with all problems at once."""
    try:
        file = PolicyFile.model_validate(read_yaml(text, max_characters=MAX_BYTES))
    except (documents.InvalidDocument, ValidationError) as error:
        problems = describe_schema_errors(error) if isinstance(error, ValidationError) else [str(error)]
        listed = "".join(f"  {problem}\n" for problem in problems)
        message = f"{source} is not a valid policy:\n{listed}"
        raise errors.FileError(message, next_step="Correct each path named above.") from None
    require = file.require
    return Policy(
        level=require.level,
        gpu=require.gpu,
        driver=SpecifierSet(require.driver) if require.driver else None,
        max_age=require.max_age,
        refuse_end_of_life=require.refuse_end_of_life,
        promises=tuple(
            TagPromise(tags=tags, level=alias.level, reason=alias.reason) for tags, alias in file.aliases.items()
        ),
        trusted_keys=file.trusted_keys,
        refused_keys=frozenset(file.refused_keys),
    )

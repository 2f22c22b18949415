"""Policy files, with every problem by its path."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from packaging.specifiers import SpecifierSet
from pydantic import BeforeValidator, Field, PlainValidator, ValidationError

from tfimg.core.errors import FileError, InvalidKey
from tfimg.core.files import read_limited
from tfimg.evidence.keys import FINGERPRINT, VerifyingKey, read_verifying_key
from tfimg.evidence.policy import DEFAULT_MAX_AGE, EvidenceLevel, Policy, TagPromise, parse_age
from tfimg.matrix.load import InvalidYaml, describe_schema_errors, read_yaml
from tfimg.matrix.schema import Capability, MatrixModel, RangeText, Sentence

AgeText = Annotated[timedelta | None, BeforeValidator(parse_age, json_schema_input_type=str)]
GlobText = Annotated[str, Field(pattern=r"^[\w.*?\[\]-]+$")]

MAX_BYTES = 1 << 16
"""Size of a policy file: 600 aliases with reasons. Hostile YAML of this size takes three seconds to parse."""

MAX_KEYS = 100


def _parse_key(text: object) -> VerifyingKey:
    try:
        return read_verifying_key(str(text).encode(), source="it")
    except InvalidKey as error:
        raise ValueError(error.what) from None


KeyText = Annotated[VerifyingKey, PlainValidator(_parse_key, json_schema_input_type=str)]
Fingerprint = Annotated[str, Field(pattern=FINGERPRINT)]


class PolicyRequirements(MatrixModel):
    """What evidence has to show; what is left out is not required."""

    level: EvidenceLevel | None = Field(default=None, description="Lowest level; none: what the tag promises")
    gpu: Capability | None = Field(default=None, description="Compute capability of a GPU on which it was validated")
    driver: RangeText | None = Field(default=None, description="Driver of that GPU")
    refuse_end_of_life: bool = Field(
        default=False,
        alias="refuse-end-of-life",
        description="Refuse images whose Python, Debian release or TensorFlow minor gets no more security fixes",
    )
    max_age: AgeText = Field(
        default=DEFAULT_MAX_AGE, alias="max-age", description="Highest age: 12h, 30d, 8w or unlimited"
    )


class PolicyPromise(MatrixModel):
    """What tags promise instead of the default."""

    level: EvidenceLevel = Field(description="Level that images of these tags must have")
    reason: Sentence = Field(description="Why; publishing shows it")


class PolicyFile(MatrixModel):
    """A policy for many images, in writing."""

    version: Literal[1] = Field(description="Version of this format")
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
    return parse_policy(read_limited(file, MAX_BYTES, next_step="Name the policy's file.").decode(), source=file)


def parse_policy(text: str, *, source: str) -> Policy:
    """Parse a policy file; every alias has a written reason. Raises `FileError` with all problems at once."""
    try:
        file = PolicyFile.model_validate(read_yaml(text, max_characters=MAX_BYTES))
    except (InvalidYaml, ValidationError) as error:
        problems = describe_schema_errors(error) if isinstance(error, ValidationError) else [str(error)]
        listed = "".join(f"  {problem}\n" for problem in problems)
        message = f"{source} is not a valid policy:\n{listed}"
        raise FileError(message, next_step="Correct each path named above.") from None
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

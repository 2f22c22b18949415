"""A genuine test result, understood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from tfimg.errors import TamperedError
from tfimg.evidence.policy import Required
from tfimg.evidence.tested import Result
from tfimg.matrix.schema import Device


class _Told(BaseModel):
    """What a later version adds is left alone."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class Gpu(_Told):
    """A GPU that it ran on."""

    name: str
    capability: str


class Skipped(_Told):
    """A check that gave no answer."""

    name: str
    reason: str | None = None
    required: bool


class Without(_Told):
    """A check that a level did without, and why."""

    name: str
    reason: str


class Where(_Told):
    """The machine that it ran on."""

    host: str
    engine: str
    kernel: str | None = None
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None


class Outcome(_Told):
    """A test result, as `tfimg.evidence.tested` writes them."""

    result: Result
    identifier: str
    device: Device
    level: Required
    failed: tuple[str, ...] = Field(alias="failedTests")
    skipped: tuple[Skipped, ...] = Field(alias="skippedTests")
    waived: tuple[Without, ...] = Field(alias="waivedTests")
    unproven: tuple[Without, ...] = Field(alias="unprovenTests")
    began: AwareDatetime = Field(alias="startedOn")
    ended: AwareDatetime = Field(alias="finishedOn")
    environment: Where

    @property
    def shown(self) -> Required:
        """The level that it shows: a GPU that nobody can name was not there."""
        return (
            "linked"
            if self.level == "validated" and self.device == "gpu" and not self.environment.gpus
            else self.level
        )


def read_outcome(predicate: Mapping[str, Any], *, image: str) -> Outcome:
    """Understand what was signed. Raises `TamperedError` for what tfimg cannot have written."""
    try:
        return Outcome.model_validate(predicate)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise TamperedError(
            f"The test result of {image} has another form than tfimg gives it: {where}.",
            next_step="Read it with a newer tfimg, or have the image validated and published anew.",
        ) from None

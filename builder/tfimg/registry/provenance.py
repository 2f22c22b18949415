"""How an image came to be → SLSA provenance v1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tfimg.registry.statement import Statement, Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class Making:
    """One build. `locks` are digests of the lock's files by layer; `labels` are the image's.

    `recipe` is the recipe's digest, `revision` the git commit of the checkout, `invocation` names the run where a
    platform gives it a name (a CI job's address), `engine` is the container engine with its version.
    """

    identifier: str
    base: str
    base_digest: str | None
    locks: Mapping[str, str]
    recipe: str | None
    revision: str | None
    engine: str
    version: str
    began: datetime
    ended: datetime
    invocation: str | None = None


def provenance(making: Making, *, subject: Subject) -> Statement:
    """SLSA provenance v1 of build level 1: signed by whoever built, not by a platform that keeps them apart."""
    raise NotImplementedError

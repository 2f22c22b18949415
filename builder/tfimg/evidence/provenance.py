"""How an image came to be → SLSA provenance v1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tfimg.evidence.statement import PROVENANCE, Statement, Subject, digest_set, format_time, make_statement

BUILD_TYPE = "urn:tfimg:build:1"
"""Says how the parameters are meant: an identifier of the matrix, built from its lock on a base."""

SELF_SIGNED = "urn:tfimg:builder:slsa-build-l1"
"""The builder that vouches for itself: level 1 of SLSA's build track, which asks for provenance and for no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """One build. `locks` are digests of the lock's files by layer, `recipe` is the recipe's digest.

    `revision` is the git commit of the checkout, `engine` the container engine with its version, `invocation` the
    run's address where a platform gives it one; `began` is None where nobody noted it. `platform` is the identity of a
    hosted platform that signs the provenance itself; without one, whoever built also signed.
    """

    identifier: str
    base: str
    base_digest: str | None
    locks: Mapping[str, str]
    recipe: str | None
    revision: str | None
    engine: str
    version: str
    began: datetime | None
    ended: datetime
    invocation: str | None = None
    platform: str | None = None

    @property
    def level(self) -> int:
        """Level of SLSA's build track that may be claimed: 2 needs a platform that signs in the builder's stead."""
        return 2 if self.platform else 1


def make_provenance(making: BuildRecord, *, subject: Subject) -> Statement:
    """SLSA provenance v1. The level that is claimed is in the builder's name and in the metadata."""
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"identifier": making.identifier},
            "internalParameters": {"engine": making.engine, "tfimg": making.version},
            "resolvedDependencies": list(_dependencies(making)),
        },
        "runDetails": {
            "builder": {
                "id": making.platform or SELF_SIGNED,
                "version": {"tfimg": making.version, "engine": making.engine},
            },
            "metadata": {
                **({"invocationId": making.invocation} if making.invocation else {}),
                **({"startedOn": format_time(making.began)} if making.began else {}),
                "finishedOn": format_time(making.ended),
                "slsaBuildLevel": making.level,
            },
        },
    }
    return make_statement(subject, PROVENANCE, predicate)


def _dependencies(making: BuildRecord) -> Iterator[dict[str, Any]]:
    base = {"name": "base", "uri": making.base}
    yield base | ({"digest": digest_set(making.base_digest)} if making.base_digest else {})
    for layer in sorted(making.locks):
        yield {"name": f"lock/{layer}", "digest": digest_set(making.locks[layer])}
    if making.recipe:
        yield {"name": "recipe", "digest": digest_set(making.recipe)}
    if making.revision:
        commit, _, dirty = making.revision.partition("-")
        changed = {"annotations": {"uncommittedChanges": True}} if dirty else {}
        yield {"name": "tfimg", "digest": {"gitCommit": commit}} | changed

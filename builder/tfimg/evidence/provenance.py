"""SLSA provenance v1 of an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tfimg.evidence.statement import PROVENANCE, Statement, Subject, digest_set, format_time, make_statement

BUILD_TYPE = "urn:tfimg:build:1"
"""Meaning of the parameters: an identifier of the matrix, built from its lock on a base."""

SELF_SIGNED = "urn:tfimg:builder:slsa-build-l1"
"""A builder that attests itself: level 1 of SLSA's build track, which requires provenance only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """One build. `locks` are digests of the lock's files by layer, `recipe` is the recipe's digest, `wheel` that of a
    supplied TensorFlow.

    `revision` is the git commit of the checkout, `engine` the container engine with its version.
    """

    identifier: str
    base: str
    base_digest: str | None
    locks: Mapping[str, str]
    recipe: str | None
    revision: str | None
    engine: str
    version: str
    ended: datetime
    wheel: str | None = None


def make_provenance(build: BuildRecord, *, subject: Subject) -> Statement:
    """Return the provenance statement; the claimed level is in the builder's name and in the metadata."""
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"identifier": build.identifier},
            "internalParameters": {"engine": build.engine, "tfimg": build.version},
            "resolvedDependencies": list(_dependencies(build)),
        },
        "runDetails": {
            "builder": {"id": SELF_SIGNED, "version": {"tfimg": build.version, "engine": build.engine}},
            "metadata": {"finishedOn": format_time(build.ended), "slsaBuildLevel": 1},
        },
    }
    return make_statement(subject, PROVENANCE, predicate)


def _dependencies(build: BuildRecord) -> Iterator[dict[str, Any]]:
    base = {"name": "base", "uri": build.base}
    yield base | ({"digest": digest_set(build.base_digest)} if build.base_digest else {})
    for layer in sorted(build.locks):
        yield {"name": f"lock/{layer}", "digest": digest_set(build.locks[layer])}
    if build.wheel:
        yield {"name": "wheel", "digest": digest_set(build.wheel)}
    if build.recipe:
        yield {"name": "recipe", "digest": digest_set(build.recipe)}
    if build.revision:
        commit, _, dirty = build.revision.partition("-")
        changed = {"annotations": {"uncommittedChanges": True}} if dirty else {}
        yield {"name": "tfimg", "digest": {"gitCommit": commit}} | changed

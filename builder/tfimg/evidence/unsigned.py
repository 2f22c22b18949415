"""Evidence that nobody signed: it says what was seen, and proves nothing. No alias is moved for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tfimg.errors import NotInRegistry, PolicyUnmet, UnsignedError
from tfimg.evidence.outcome import Outcome, read_outcome
from tfimg.evidence.statement import TEST_RESULT, Statement, compact
from tfimg.recipe.describe import LEVELS, Level
from tfimg.registry.protocol import EMPTY, OCI_MANIFEST, Descriptor, Manifest, Registry

IN_TOTO = "application/vnd.in-toto+json"
"""Media type of a statement without an envelope (in-toto attestation framework, spec/v1/README.md)."""


def attach_unsigned(registry: Registry, digest: str, statements: Sequence[Statement]) -> Descriptor:
    """Put statements beside a manifest as they are. Done already, it is not again."""
    found = registry.find(digest)
    if found is None:
        raise NotInRegistry(
            f"{registry.repository}@{digest} is not there.", next_step="Push the image first."
        )
    subject = Descriptor(media_type=found.media_type, digest=found.digest, size=len(found.content))
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": IN_TOTO,
        "config": replace(registry.put_blob(b"{}"), media_type=EMPTY).document(),
        "layers": [
            replace(registry.put_blob(one.content), media_type=IN_TOTO).document() for one in statements
        ],
        "subject": subject.document(),
    }
    manifest = Manifest(media_type=OCI_MANIFEST, content=compact(document))
    return registry.refer(manifest, subject=digest, artifact_type=IN_TOTO)


def level_unsigned(registry: Registry, digest: str, least: Level) -> Level:
    """The level that unsigned evidence speaks of.

    Raises `UnsignedError` where there is none, `PolicyUnmet` where it is below `least`.
    """
    image = f"{registry.repository}@{digest}"
    shown = [one.shown for one in _outcomes(registry, digest, image) if one.result != "FAILED"]
    if not shown:
        raise UnsignedError(f"{image} has no evidence.", next_step="Publish it.")
    best = max(shown, key=LEVELS.index)
    if LEVELS.index(best) < LEVELS.index(least):
        raise PolicyUnmet(f"{image} is {best}, and not {least}.", next_step="Validate it on its device.")
    return best


def _outcomes(registry: Registry, digest: str, image: str) -> Iterator[Outcome]:
    for referrer in registry.referrers(digest):
        manifest = registry.find(referrer.digest)
        document = manifest.document if manifest else {}
        if document.get("artifactType") != IN_TOTO:
            continue
        for layer in document["layers"]:
            told = json.loads(b"".join(registry.blob(layer["digest"])))
            if told["predicateType"] == TEST_RESULT:
                yield read_outcome(told["predicate"], image=image)

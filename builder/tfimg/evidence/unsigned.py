"""Unsigned evidence: it proves nothing, and no alias is moved for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tfimg.documents import MAX_BYTES, InvalidDocument
from tfimg.errors import PolicyUnmet, TamperedError, UnsignedError
from tfimg.evidence.outcome import Outcome, read_outcome
from tfimg.evidence.statement import IN_TOTO, TEST_RESULT, Statement, compact, read_statement
from tfimg.recipe.describe import LEVELS, Level
from tfimg.registry.protocol import EMPTY, OCI_MANIFEST, Descriptor, Manifest, Registry, require_manifest

MAX_STATEMENTS = 2_000
"""Unsigned statements that are read of one image."""


def attach_unsigned(registry: Registry, digest: str, statements: Sequence[Statement]) -> Descriptor:
    """Attach statements to a manifest unsigned. Repeating it changes nothing."""
    subject = require_manifest(registry, digest, next_step="Push the image first.").descriptor
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
    """Return the highest level that the passes among unsigned test results claim.

    Raises `UnsignedError` where there is none, `PolicyUnmet` where it is below `least`, `TamperedError` for evidence
    that cannot be read.
    """
    image = f"{registry.repository}@{digest}"
    shown = [one.shown for one in _outcomes(registry, digest, image) if one.is_pass]
    if not shown:
        raise UnsignedError(f"{image} has no evidence.", next_step="Publish it.")
    best = max(shown, key=LEVELS.index)
    if LEVELS.index(best) < LEVELS.index(least):
        raise PolicyUnmet(f"{image} is {best}, and not {least}.", next_step="Validate it on its device.")
    return best


def _outcomes(registry: Registry, digest: str, image: str) -> Iterator[Outcome]:
    count = 0
    for referrer in registry.referrers(digest):
        manifest = registry.find(referrer.digest)
        try:
            if manifest is None or manifest.document.get("artifactType") != IN_TOTO:
                continue
            for layer in manifest.image.layers:
                count += 1
                statement = read_statement(_content(registry, layer, count))
                if digest not in statement.digests:
                    raise InvalidDocument("it is about another image")
                if statement.predicate_type == TEST_RESULT:
                    yield read_outcome(statement.predicate, image=image)
        except InvalidDocument as error:
            raise TamperedError(
                f"The unsigned evidence at {registry.repository}@{referrer.digest} is invalid: {error}.",
                next_step="Remove it from the registry, or publish the image again.",
            ) from None


def _content(registry: Registry, layer: Descriptor, count: int) -> bytes:
    """Read one statement. Raises `InvalidDocument` for one beyond the limits."""
    if count > MAX_STATEMENTS:
        raise InvalidDocument(f"the image has more than {MAX_STATEMENTS} statements")
    if layer.size > MAX_BYTES:
        raise InvalidDocument(f"it has {layer.size} bytes, and at most {MAX_BYTES} are read")
    content = bytearray()
    for piece in registry.blob(layer.digest):
        content += piece
        if len(content) > layer.size:
            raise InvalidDocument(f"it has more than the {layer.size} bytes that its manifest states")
    return bytes(content)

"""What refers to a manifest: from the registry's own list, else from the tag that stands in for it.

The OCI distribution specification 1.1 has both ("Listing Referrers", "Pushing Manifests with Subject"). The tag is an
index that everybody who attaches something rewrites, so that an entry is lost where two do at once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from tfimg.core.documents import Digest, Document, InvalidDocument, parse_document, validate
from tfimg.core.errors import NetworkError, RegistryError, TagConflict, TamperedError
from tfimg.core.files import wait_for_lock
from tfimg.registry.protocol import OCI_INDEX, Annotations, Descriptor, ImageIndex, Manifest
from tfimg.registry.retry import RetryPolicy, TransientError

SETTLE_SECONDS = 0.5
"""How long after an entry was written it is looked at again. A publisher on another machine does not know our lock: one
that had read the tag before we wrote has written it by then, in several times the two requests that it needs. Two
publishers of four entries each lost one or two without this when tried against distribution 2.8, and none with it."""

TURN_SECONDS = 120.0
"""How long to wait for others on this machine, each of whom needs about a second."""


class Tagged(Protocol):
    """What is needed of a registry."""

    @property
    def repository(self) -> str:
        """HOST[:PORT]/PATH."""

    def find(self, reference: str) -> Manifest | None:
        """See `Registry`."""

    def put(self, reference: str, manifest: Manifest) -> None:
        """See `Registry`."""


def fallback_tag(digest: str) -> str:
    """The tag that stands in for the list ("Referrers Tag Schema")."""
    return digest.replace(":", "-", 1)[:128]


class Subject(Document):
    """The field of a descriptor that says which manifest is referred to."""

    digest: Digest


class Config(Document):
    """The field of a descriptor that says what kind of artifact a manifest without `artifactType` is."""

    media_type: str | None = Field(default=None, alias="mediaType")


class ReferringManifest(Document):
    """The fields of a manifest that a list of referrers repeats."""

    subject: Subject
    artifact_type: str | None = Field(default=None, alias="artifactType")
    config: Config | None = None
    annotations: Annotations = Field(default_factory=dict)


def entry(manifest: Manifest, subject: str, artifact_type: str = "") -> Descriptor:
    """Return how a list names a manifest: with its annotations and what kind of thing it is.

    Raises `TamperedError` for a manifest that does not refer to the subject.
    """
    try:
        read = parse_document(ReferringManifest, manifest.content)
        if read.subject.digest != subject:
            raise InvalidDocument(f"it refers to {read.subject.digest}")
        kind = artifact_type or read.artifact_type or (read.config.media_type if read.config else None)
        described = {
            "mediaType": manifest.media_type,
            "digest": manifest.digest,
            "size": len(manifest.content),
            "annotations": read.annotations,
            "artifactType": kind,
        }
        return validate(Descriptor, described)
    except InvalidDocument as error:
        raise TamperedError(
            f"The manifest {manifest.digest} does not refer to {subject}: {error}.",
            next_step="Do not use it, and find out where it comes from.",
        ) from None


def read_fallback(registry: Tagged, subject: str) -> tuple[Descriptor, ...]:
    """Return the entries under the tag; none without it. Raises `RegistryError` when it is not an index."""
    return validate(ImageIndex, _index(registry, subject)).manifests


def enter(
    registry: Tagged,
    new: Descriptor,
    subject: str,
    *,
    locks: Path,
    retry_policy: RetryPolicy,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Enter a referrer under the tag, and look until it stays there. Raises `NetworkError` where it does not."""
    deadline = clock() + TURN_SECONDS
    name = hashlib.sha256(f"{registry.repository}@{subject}".encode()).hexdigest()

    def go_on() -> None:
        if clock() > deadline:
            raise NetworkError(
                f"Others on this machine have been writing to {fallback_tag(subject)} of {registry.repository} for "
                f"{TURN_SECONDS:g} s.",
                next_step="Wait for their end, and run it again.",
            )

    def attempt() -> None:
        with wait_for_lock(locks / name, go_on):
            _write(registry, new, subject)
        # Outside: those who wait on this machine need not wait for this.
        retry_policy.sleep(SETTLE_SECONDS)
        if new not in read_fallback(registry, subject):
            raise TransientError(_lost(registry, subject))

    retry_policy.retry_transient(attempt)


def _write(registry: Tagged, new: Descriptor, subject: str) -> None:
    """Add the entry to what is there, leaving every other as it is."""
    index = _index(registry, subject)
    present = index["manifests"] or []
    others = [one for one in present if one["digest"] != new.digest]
    if new.to_document() in present:
        return
    index["manifests"] = [*others, new.to_document()]
    content = json.dumps(index, separators=(",", ":")).encode()
    try:
        registry.put(fallback_tag(subject), Manifest(media_type=OCI_INDEX, content=content))
    except TagConflict:
        raise TransientError(_lost(registry, subject)) from None


def _index(registry: Tagged, subject: str) -> dict[str, Any]:
    tag = fallback_tag(subject)
    found = registry.find(tag)
    if found is None:
        return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    try:
        document = found.document
        validate(ImageIndex, document)
        if found.media_type != OCI_INDEX:
            raise InvalidDocument(f"it is {found.media_type}")
    except InvalidDocument as error:
        raise RegistryError(
            f"{registry.repository}:{tag} should list what refers to {subject}, and is no such list: {error}.",
            next_step="Somebody else put it there; look at it, and remove it.",
        ) from None
    return document


def _lost(registry: Tagged, subject: str) -> NetworkError:
    return NetworkError(
        f"Others keep overwriting {fallback_tag(subject)} of {registry.repository}, which lists what refers to an "
        "image, and what we entered does not stay there.",
        next_step="Let one publish at a time, and run it again.",
    )

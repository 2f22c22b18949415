"""The referrers tag: an index that lists a manifest's referrers where the registry keeps no list.

The OCI distribution specification 1.1 has both ("Listing Referrers", "Pushing Manifests with Subject"). Every publisher
rewrites the index, so that simultaneous writers lose entries.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from pydantic import AliasPath, Field

from tfimg.core.documents import Digest, Document, InvalidDocument, parse_document, validate
from tfimg.core.errors import NetworkError, RegistryError, TagConflict, TamperedError
from tfimg.core.files import wait_for_lock
from tfimg.core.retry import RetryPolicy, TransientError
from tfimg.registry.protocol import OCI_INDEX, Annotations, Descriptor, ImageIndex, Manifest, Registry

SETTLE_SECONDS = 0.5
"""Wait before an entry is checked. A publisher on another machine, who read the tag before our write, has written it by
then: that takes two requests. Without this, two publishers of four entries each lost one or two with distribution
2.8."""

LOCK_SECONDS = 120.0
"""Longest wait for other publishers on this machine, each of which needs about a second."""


def fallback_tag(digest: str) -> str:
    """Return the tag that replaces the list ("Referrers Tag Schema")."""
    return digest.replace(":", "-", 1)[:128]


class _ReferringManifest(Document):
    """The fields of a manifest that a list of referrers repeats."""

    subject: Digest = Field(validation_alias=AliasPath("subject", "digest"))
    artifact_type: str | None = Field(default=None, alias="artifactType")
    config_type: str | None = Field(default=None, validation_alias=AliasPath("config", "mediaType"))
    annotations: Annotations = Field(default_factory=dict)


def describe_referrer(manifest: Manifest, subject: str, artifact_type: str = "") -> Descriptor:
    """Return a manifest's entry in a list of referrers. Raises `TamperedError` if it does not refer to the subject."""
    try:
        document = parse_document(_ReferringManifest, manifest.content)
        if document.subject != subject:
            raise InvalidDocument(f"it refers to {document.subject}")
        fields = {
            "annotations": document.annotations,
            "artifactType": artifact_type or document.artifact_type or document.config_type,
        }
        return validate(Descriptor, {**manifest.descriptor.to_document(), **fields})
    except InvalidDocument as error:
        raise TamperedError(
            f"The manifest {manifest.digest} does not refer to {subject}: {error}.",
            next_step="Do not use it, and find out where it comes from.",
        ) from None


def read_fallback(registry: Registry, subject: str) -> tuple[Descriptor, ...]:
    """Return the entries under the tag. Raises `RegistryError` if it is not an index."""
    return validate(ImageIndex, _read_index(registry, subject)).manifests


def add_referrer(
    registry: Registry, entry: Descriptor, subject: str, *, locks: Path, retry_policy: RetryPolicy
) -> None:
    """Add an entry under the tag until it stays there, and leave all others. Raises `NetworkError` if it does not."""
    tag, deadline = fallback_tag(subject), time.monotonic() + LOCK_SECONDS
    lock = locks / hashlib.sha256(f"{registry.repository}@{subject}".encode()).hexdigest()
    lost_entry = TransientError(
        NetworkError(
            f"Other publishers keep overwriting {tag} of {registry.repository}, the list of an image's referrers, and "
            "our entry is lost.",
            next_step="Publish from one machine at a time, and run it again.",
        )
    )

    def check_deadline() -> None:
        if time.monotonic() > deadline:
            raise NetworkError(
                f"Other publishers on this machine have been writing to {tag} of {registry.repository} for "
                f"{LOCK_SECONDS:g} s.",
                next_step="Wait until they have finished, and run it again.",
            )

    def attempt() -> None:
        with wait_for_lock(lock, check_deadline):
            index = _read_index(registry, subject)
            present, new = index["manifests"] or [], entry.to_document()
            if new not in present:
                index["manifests"] = [*(other for other in present if other["digest"] != entry.digest), new]
                content = json.dumps(index, separators=(",", ":")).encode()
                try:
                    registry.put(tag, Manifest(media_type=OCI_INDEX, content=content))
                except TagConflict:
                    raise lost_entry from None
        retry_policy.sleep(SETTLE_SECONDS)  # without the lock: publishers on this machine need not wait for this
        if entry not in read_fallback(registry, subject):
            raise lost_entry

    retry_policy.retry_transient(attempt)


def _read_index(registry: Registry, subject: str) -> dict[str, Any]:
    tag = fallback_tag(subject)
    manifest = registry.find(tag)
    if manifest is None:
        return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    try:
        document = manifest.document
        validate(ImageIndex, document)
        if manifest.media_type != OCI_INDEX:
            raise InvalidDocument(f"it is {manifest.media_type}")
    except InvalidDocument as error:
        raise RegistryError(
            f"{registry.repository}:{tag} is not a list of the referrers of {subject}: {error}.",
            next_step="Another program wrote it; look at it, and remove it.",
        ) from None
    return document

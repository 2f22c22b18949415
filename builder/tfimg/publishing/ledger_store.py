"""The ledger in its registry: one artifact under a tag, whose layers are all entries.

Registries know no compare-and-swap, so whoever writes the tag last would undo what another has just added. Therefore
an entry first gets a tag of its own, and goes into the artifact then; whoever reads takes both, and whoever writes
brings in what was lost. A tag of its own is taken away once the entry is in the artifact and a day old: no writer takes
that long from reading to writing. As layers, entries are kept by registries that remove what has no tag, and
`oras pull` has them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tfimg.errors import PublicationIncomplete, TagMoved, TamperedError
from tfimg.evidence.dsse import ENVELOPE, opened, sealed
from tfimg.evidence.keys import SigningKey
from tfimg.publishing.ledger import Draft, Entry, Ledger, document, ordered, understood
from tfimg.registry.protocol import EMPTY, OCI_MANIFEST, Descriptor, Manifest, Registry

TAG = "tfimg-ledger"

OWN = f"{TAG}-"
"""Beginning of an entry's own tag; twelve digits of its digest follow."""

ARTIFACT = "application/vnd.tfimg.ledger.v1+json"
ENTRY = "application/vnd.tfimg.ledger.entry.v1+json"
"""An entry without a signature, and the payload of one that is signed."""

GRACE = timedelta(days=1)
"""How long an entry's own tag stays, by the clock of whoever wrote it: far more than two clocks differ, and than a
writer takes."""

ATTEMPTS = 8
"""How often the artifact is written where others write it too. With each round one of them comes through."""

TITLE = "org.opencontainers.image.title"


Known = dict[str, Entry]
"""Entries that were read before, by digest: they never change, and are not fetched again."""


def read(registry: Registry, known: Known | None = None) -> Ledger:
    """All entries. Raises `TamperedError` where one is missing or is none."""
    known = {} if known is None else known
    found = _everything(registry)
    for digest, descriptor in found.items():
        if digest not in known:
            known[digest] = _entry(registry, descriptor)
    return ordered(known[digest] for digest in found)


def append(
    registry: Registry, draft: Draft, *, key: SigningKey | None, now: datetime, known: Known | None = None
) -> Ledger:
    """Write an entry after all that are there, and return the ledger with it. Written already, it is not again.

    Raises `PublicationIncomplete` where others write all the time; the entry is in the registry nevertheless.
    """
    known = {} if known is None else known
    before = read(registry, known)
    if not before.has(draft):
        text = json.dumps(document(draft, before.ends), sort_keys=True, separators=(",", ":")).encode()
        blob = registry.put_blob(sealed(text, ENTRY, key) if key else text)
        descriptor = _described(blob, ENVELOPE if key else ENTRY, draft.time)
        registry.put(own_tag(descriptor.digest), _artifact(registry, [descriptor]))
    for _ in range(ATTEMPTS):
        if _gathered(registry):
            break
    else:
        raise PublicationIncomplete(
            f"Others write the ledger of {registry.repository} all the time.",
            next_step="The entry is there under a tag of its own; whoever writes next brings it in.",
        )
    ledger = read(registry, known)
    _tidy(registry, ledger, now)
    return ledger


def own_tag(digest: str) -> str:
    """The tag that an entry has while it is young."""
    return f"{OWN}{digest.removeprefix('sha256:')[:12]}"


def is_ours(tag: str) -> bool:
    """Whether a tag is the ledger's."""
    return tag == TAG or tag.startswith(OWN)


def _gathered(registry: Registry) -> bool:
    """Bring every young entry into the artifact; whether it has them all afterwards."""
    found = _everything(registry)
    if found.keys() == {one.digest for one in _layers(registry, TAG)}:
        return True
    try:
        registry.put(TAG, _artifact(registry, list(found.values())))
    except TagMoved:
        return False
    return found.keys() <= {one.digest for one in _layers(registry, TAG)}


def _everything(registry: Registry) -> dict[str, Descriptor]:
    """The artifact's entries and the young ones that it lacks, by digest.

    The tags are listed before the artifact is read: what is in neither was not there when this began.
    """
    for _ in range(ATTEMPTS):
        tags = [tag for tag in registry.tags() if tag.startswith(OWN)]
        found = {one.digest: one for one in _layers(registry, TAG)}
        there = {own_tag(digest) for digest in found}
        young = [_layers(registry, tag) for tag in tags if tag not in there]
        if all(young):
            return found | {one.digest: one for layers in young for one in layers}
    # One that is gone was tidied away since: then the artifact has it.
    raise TagMoved(
        f"Young entries of the ledger of {registry.repository} vanish all the time.",
        next_step="Find out who takes tags away that begin with tfimg-ledger-, and run it again.",
    )


def _tidy(registry: Registry, ledger: Ledger, now: datetime) -> None:
    """Take the own tags of entries away that are old, and safe in the artifact."""
    there = {one.digest for one in _layers(registry, TAG)}
    tags = set(registry.tags())
    for entry in ledger.entries:
        old = now - datetime.fromisoformat(entry.draft.time) > GRACE
        if old and entry.digest in there and own_tag(entry.digest) in tags:
            registry.untag(own_tag(entry.digest))


def _layers(registry: Registry, tag: str) -> Sequence[Descriptor]:
    manifest = registry.find(tag)
    if manifest is None:
        return ()
    told = manifest.document
    if told.get("artifactType") != ARTIFACT:
        raise TamperedError(
            f"{registry.repository}:{tag} is not tfimg's ledger, but {told.get('artifactType') or 'something else'}.",
            next_step="Take that tag away, or publish to another repository.",
        )
    return [
        Descriptor(
            media_type=layer["mediaType"], digest=layer["digest"], size=layer["size"],
            annotations=layer.get("annotations", {}),
        )
        for layer in told["layers"]
    ]  # fmt: skip


def _entry(registry: Registry, descriptor: Descriptor) -> Entry:
    content = b"".join(registry.blob(descriptor.digest))
    envelope = opened(content) if descriptor.media_type == ENVELOPE else None
    try:
        told = json.loads(envelope.payload if envelope else content)
    except ValueError:
        told = {}
    return understood(told, digest=descriptor.digest, envelope=envelope)


def _described(blob: Descriptor, media_type: str, time: str) -> Descriptor:
    name = f"{time.replace(':', '')}-{blob.digest.removeprefix('sha256:')[:12]}.json"
    return replace(blob, media_type=media_type, annotations={TITLE: name})


def _artifact(registry: Registry, layers: Sequence[Descriptor]) -> Manifest:
    nothing = replace(registry.put_blob(b"{}"), media_type=EMPTY)
    told = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": ARTIFACT,
        "config": nothing.document(),
        "layers": [layer.document() for layer in layers],
    }
    return Manifest(media_type=OCI_MANIFEST, content=json.dumps(told, separators=(",", ":")).encode())

"""The `Registry` protocol over HTTP, as the OCI distribution specification 1.1 has it."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, StringConstraints
from requests.utils import parse_header_links

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import RegistryError, TagConflict, TamperedError
from tfimg.core.process import CompletedCommand, run
from tfimg.registry import referrers
from tfimg.registry.connection import Connection, ConnectionSettings
from tfimg.registry.credentials import HELPER_SECONDS, config_file, find_credentials
from tfimg.registry.download import MAX_BYTES, download
from tfimg.registry.error_mapping import Response, limit_error, timeout_error, truncate
from tfimg.registry.protocol import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    EMPTY,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    ImageIndex,
    Manifest,
    digest_of,
)
from tfimg.registry.reference import DIGEST, TAG, Reference
from tfimg.registry.retry import RetryPolicy
from tfimg.registry.upload import upload

ACCEPT = ", ".join((OCI_INDEX, OCI_MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST))
"""Without all of them, a registry may make another manifest of the one that it has, whose digest is another."""

CANNOT_UNTAG = frozenset({400, 401, 403, 405, 501})
"""How registries say that tags cannot be deleted, or not by us, or that they know only digests here. A manifest must
not be deleted in place of a tag: its other tags would go with it."""

KNOWS_DIGESTS = frozenset({400, 405})
"""Those of them that distribution 2.8 has for a tag; a manifest it deletes with all its tags, where that is enabled."""

NO_LIST = (400, 404, 405, 501)
"""How registries without a list of referrers say so; the specification has 404."""

NOTHING = "application/vnd.tfimg.nothing.v1"
"""The kind of artifact to which a tag leads while it is taken away."""

MAX_PAGES = 1000
"""Pages of one list. Registries that page have 50 to 1,000 entries on each."""

MAX_LISTED = 100_000
"""Entries of one list: 1,000 images with their tags and evidence have 10,000."""

MAX_LIST_BYTES = 16 << 20
"""Bytes of all pages of one list: 100,000 tags of 160 bytes, or 20,000 referrers."""

MAX_MEDIA_TYPE = 255
"""Characters of a media type (RFC 6838, section 4.2, has 127 for each of its two names)."""

Entry = TypeVar("Entry")

TransferCallback = Callable[[str, int, int], None]
"""Is told a blob's digest, how many of its bytes have been moved, and of how many; 0 where that is not known."""


def ignore_transfer(digest: str, current: int, total: int) -> None:
    """Nobody is to be told."""


class TagList(Document):
    """A page of tags; `null` means none."""

    tags: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=rf"^{TAG.pattern}$")], ...],
        BeforeValidator(lambda value: () if value is None else value),
    ]


class HttpRegistry:
    """See `Registry`. `locks` is a folder that everybody who publishes from this machine shares."""

    def __init__(self, connection: Connection, *, locks: Path, on_transfer: TransferCallback = ignore_transfer) -> None:
        self._connection = connection
        self._locks = locks
        self._on_transfer = on_transfer
        self._sizes: dict[str, int] = {}

    @property
    def repository(self) -> str:
        """See `Registry`."""
        return self._connection.repository

    def find(self, reference: str) -> Manifest | None:
        """See `Registry`. A tag whose taking away was cut off leads nowhere, whatever stands there in the meantime."""
        found = self._find(reference)
        return None if found and _is_nothing(found) else found

    def _find(self, reference: str) -> Manifest | None:
        place = f"manifests/{self._checked(reference)}"
        answer = self._connection.ask("GET", place, expected=(200, 404), headers={"Accept": ACCEPT})
        if answer.status == 404:
            return None
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        if len(kind) > MAX_MEDIA_TYPE:
            raise limit_error(self._connection.host, f"a media type of {len(kind)} characters")
        found = Manifest(media_type=kind, content=answer.content)
        # Of a tag, the registry's own word for what it meant to send.
        said = reference if ":" in reference else answer.headers.get("Docker-Content-Digest", "")
        if said not in ("", found.digest):
            raise TamperedError(
                f"The registry {self._connection.host} says that {reference} of {self.repository} is {truncate(said)}, "
                f"and sends {found.digest}.",
                next_step="Do not use it, and tell the registry's owner.",
            )
        self._remember_sizes(found)
        return found

    def put(self, reference: str, manifest: Manifest) -> None:
        """See `Registry`."""
        self._put(reference, manifest)

    def _put(self, reference: str, manifest: Manifest) -> Response:
        """Put a manifest and read it back; returns what the registry said."""
        answer = self._connection.ask(
            "PUT",
            f"manifests/{self._checked(reference)}",
            expected=(201, 202),
            content=manifest.content,
            headers={"Content-Type": manifest.media_type},
        )
        there = self._find(reference)
        if there is None:
            raise RegistryError(
                f"The registry {self._connection.host} took {reference} of {self.repository}, and does not have it.",
                next_step="Run it again; the registry's own log may say more.",
            )
        if there.digest != manifest.digest:
            raise TagConflict(
                f"{self.repository}:{reference} was put to {manifest.digest}, and leads to {there.digest}: somebody "
                "else moved it at the same moment.",
                next_step="Find out who publishes there too, and run it again.",
            )
        return answer

    def list_tags(self) -> Sequence[str]:
        """See `Registry`."""
        answer = self._connection.ask("GET", "tags/list", expected=(200, 404))
        return self._entries(answer, "tags", _tags) if answer.status == 200 else ()

    def delete_tag(self, tag: str) -> bool:
        """See `Registry`."""
        answer = self._connection.ask(
            "DELETE", f"manifests/{self._checked(tag)}", expected=(200, 202, 204, 404, *CANNOT_UNTAG)
        )
        if answer.status in KNOWS_DIGESTS:
            return self._untag_by_digest(tag)
        return answer.status not in CANNOT_UNTAG

    def _untag_by_digest(self, tag: str) -> bool:
        """Where manifests can be deleted and tags cannot: the tag goes with a manifest that it alone leads to."""
        before = self._find(tag)
        if before is None:
            return True
        nobodys = before
        if not _is_nothing(before):
            nobodys = _nothing(f"{self.repository}:{tag} {secrets.token_hex(8)}")
            self.put_blob(b"{}")
            self.put(tag, nobodys)
        answer = self._connection.ask(
            "DELETE", f"manifests/{nobodys.digest}", expected=(200, 202, 204, 404, *CANNOT_UNTAG)
        )
        if answer.status in CANNOT_UNTAG:
            self.put(tag, before)
            return False
        return self._find(tag) is None

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """See `Registry`."""
        self._checked(digest, DIGEST)
        limit = self._sizes.get(digest, MAX_BYTES)
        return download(self._connection, digest, came=partial(self._on_transfer, digest), limit=limit)

    def _remember_sizes(self, manifest: Manifest) -> None:
        """Note the sizes that a manifest states; the largest of a blob counts where manifests disagree."""
        with suppress(InvalidDocument):
            image = manifest.image
            for blob in (image.config, *image.layers):
                if blob:
                    self._sizes[blob.digest] = max(blob.size, self._sizes.get(blob.digest, 0))

    def put_blob(self, content: bytes) -> Descriptor:
        """See `Registry`."""
        digest = digest_of(content)
        self.put_stream(digest, len(content), [content])
        return Descriptor(media_type="application/octet-stream", digest=digest, size=len(content))

    def put_stream(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """See `Registry`."""
        self._checked(digest, DIGEST)
        upload(self._connection, digest, pieces, sent=lambda sent: self._on_transfer(digest, sent, size))

    def list_referrers(self, digest: str) -> Sequence[Descriptor]:
        """See `Registry`."""
        found = self._native(digest)
        return referrers.read_fallback(self, digest) if found is None else found

    def _native(self, digest: str) -> tuple[Descriptor, ...] | None:
        """The registry's own list; None where it keeps none."""
        place = f"referrers/{self._checked(digest, DIGEST)}"
        answer = self._connection.ask("GET", place, expected=(200, *NO_LIST))
        # Some that know no such list answer every address with a page for people.
        if answer.status != 200 or OCI_INDEX not in answer.headers.get("Content-Type", ""):
            return None
        return self._entries(answer, "referrers", _referrers)

    def put_referrer(self, manifest: Manifest, *, subject: str, artifact_type: str) -> Descriptor:
        """See `Registry`."""
        new = referrers.entry(manifest, subject, artifact_type)
        answer = self._put(manifest.digest, manifest)
        if "OCI-Subject" not in answer.headers:
            referrers.enter(self, new, subject, locks=self._locks, retry_policy=self._connection.retry_policy)
        return new

    def _checked(self, reference: str, grammar: re.Pattern[str] | None = None) -> str:
        """Return a reference that may become part of an address: it may come from a document of others."""
        allowed = (grammar,) if grammar else (TAG, DIGEST)
        if not any(pattern.fullmatch(str(reference)) for pattern in allowed):
            raise RegistryError(
                f"{truncate(str(reference))!r} is {'not a digest' if grammar else 'neither a tag nor a digest'}; "
                f"{self.repository} was not asked for it.",
                next_step="The document that names it is damaged or forged.",
            )
        return reference

    def _entries(self, answer: Response, name: str, parse: Callable[[bytes], Mapping[str, Entry]]) -> tuple[Entry, ...]:
        """Return the entries of all pages of a list. A page without a new entry is the last."""
        found: dict[str, Entry] = {}
        for content in self._pages(answer, name):
            try:
                page = parse(content)
            except InvalidDocument as error:
                raise RegistryError(
                    f"The registry {self._connection.host} answered the question for {name} of {self.repository} with "
                    f"something else: {error}.",
                    next_step="Check that it is a registry.",
                ) from None
            if page.keys() <= found.keys():
                break
            found |= {key: entry for key, entry in page.items() if key not in found}
            if len(found) > MAX_LISTED:
                raise limit_error(self._connection.host, f"more than {MAX_LISTED} {name}")
        return tuple(found.values())

    def _pages(self, answer: Response, name: str) -> Iterator[bytes]:
        """Yield the pages of a list, within limits on their number, bytes and time."""
        seconds, size = self._connection.response_seconds, 0
        deadline = time.monotonic() + seconds
        for _ in range(MAX_PAGES):
            size += len(answer.content)
            if size > MAX_LIST_BYTES:
                raise limit_error(self._connection.host, f"more than {MAX_LIST_BYTES >> 20} MiB of {name}")
            yield answer.content
            following = _next(answer)
            if following is None:
                return
            if time.monotonic() > deadline:
                raise timeout_error(self._connection.host, seconds)
            place = self._connection.follow(answer.url, following, "the next page", own=True)
            answer = self._connection.ask("GET", place)
        raise limit_error(self._connection.host, f"more than {MAX_PAGES} pages of {name}")


def _tags(content: bytes) -> dict[str, str]:
    return {tag: tag for tag in parse_document(TagList, content).tags}


def _referrers(content: bytes) -> dict[str, Descriptor]:
    return {entry.digest: entry for entry in parse_document(ImageIndex, content).manifests}


def _next(answer: Response) -> str | None:
    """Return the address of the next page as it is written (RFC 8288), where there is one."""
    links = parse_header_links(answer.headers.get("Link", ""))
    return next((link["url"] for link in links if link.get("rel") == "next"), None)


def _is_nothing(manifest: Manifest) -> bool:
    with suppress(InvalidDocument):
        return NOTHING.encode() in manifest.content and manifest.document.get("artifactType") == NOTHING
    return False


def _nothing(about: str) -> Manifest:
    """A manifest of nothing that nobody else has."""
    told = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": NOTHING,
        "config": Descriptor(media_type=EMPTY, digest=digest_of(b"{}"), size=2).to_document(),
        "layers": [Descriptor(media_type=EMPTY, digest=digest_of(b"{}"), size=2).to_document()],
        "annotations": {"org.opencontainers.image.description": about},
    }
    return Manifest(media_type=OCI_MANIFEST, content=json.dumps(told).encode())


CERTIFICATES = Path("/etc/docker/certs.d")
"""Where Docker's engine looks for the authority of a registry: HOST[:PORT]/ca.crt."""


def open_registry(
    reference: Reference,
    environ: Mapping[str, str],
    state: Path,
    *,
    settings: ConnectionSettings,
    on_transfer: TransferCallback = ignore_transfer,
    certificates: Path = CERTIFICATES,
    retry_policy: RetryPolicy | None = None,
) -> HttpRegistry:
    """The repository of a reference. `on_transfer` is told of the bytes of blobs that come and go.

    Nothing is asked of the registry yet. Raises as `find_credentials` does.
    """

    def helper(argv: list[str], stdin: bytes) -> CompletedCommand:
        return run(argv, env=environ, stdin=stdin, timeout=HELPER_SECONDS)

    credentials = find_credentials(reference.host, config_file(environ), helper)
    own = certificates / reference.host / "ca.crt"
    connection = Connection(
        reference,
        credentials=credentials,
        settings=replace(settings, ca_file=str(own)) if own.is_file() else settings,
        retry_policy=retry_policy or RetryPolicy(),
    )
    return HttpRegistry(connection, locks=state / "registry" / "locks", on_transfer=on_transfer)

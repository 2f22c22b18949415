"""Client of a registry (OCI distribution specification 1.1): blobs, lists, referrers, manifests and tags.

A registry without a list of referrers has an index under a tag instead, which every publisher rewrites: simultaneous
writers could lose entries, and read it back.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode, urlsplit

from pydantic import AliasPath, Field, StringConstraints
from requests.utils import parse_header_links

from tfimg.core import cancellation, files, process, retry, text
from tfimg.core.documents import Digest, Document, InvalidDocument, null_means, parse_document, validate_model
from tfimg.core.errors import NetworkError, RegistryError, TagConflict, TagImmutable, TamperedError
from tfimg.registry import documents
from tfimg.registry.http import (
    Connection,
    ConnectionSettings,
    Response,
    limit_error,
    page_error,
    parse_size,
    timeout_error,
)
from tfimg.registry.reference import DIGEST, HELPER_SECONDS, TAG, Reference, config_file, find_credentials

MAX_BYTES = 64 << 30  # bytes of a blob whose size is not known. The largest layer of our images has 3 GB
MAX_RESUMES = 100  # requests for one blob, however little each of them brings
MIN_BYTES_PER_SECOND = 4096  # lowest average rate after the time of one response


def download(connection: Connection, digest: str, *, limit: int = MAX_BYTES) -> Iterator[bytes]:
    """Yield at most `limit` bytes of a blob, verified after the last.

    Raises `NotInRegistry` for a missing blob, `TamperedError` for other bytes: then discard what was yielded.
    """
    sha256, received = hashlib.sha256(), 0

    def resume() -> Iterator[bytes]:
        """Return the chunks from where the last response ended; the first of them has arrived."""
        chunks = _chunks_from(connection, digest, received, limit)
        return chain(list(islice(chunks, 1)), chunks)

    for _ in range(MAX_RESUMES):
        chunks = connection.retry_policy.retry_transient(resume)
        try:
            for chunk in chunks:
                cancellation.raise_if_cancelled()
                sha256.update(chunk)
                received += len(chunk)
                yield chunk
            break
        except retry.TransientError:
            continue
    else:
        raise NetworkError(
            f"The connection to the registry {connection.host} was cut {MAX_RESUMES} times during one download.",
            next_step="Run it again later.",
        )
    if f"sha256:{sha256.hexdigest()}" != digest:
        raise _tampered(connection, f"other bytes than {digest} under that digest")


def _chunks_from(connection: Connection, digest: str, offset: int, limit: int) -> Iterator[bytes]:
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    with connection.open("GET", f"blobs/{digest}", headers=headers) as response:
        if offset and response.status_code == 416:
            return  # the blob ends here
        if response.status_code not in (200, 206):
            raise connection.map_error(connection.read(response), "GET")
        # A registry without ranges starts from the beginning.
        skip = offset if response.status_code == 200 else 0
        received = offset - skip
        stated = received + parse_size(response.headers.get("Content-Length"))
        for chunk in connection.read_chunks(response, MIN_BYTES_PER_SECOND):
            received += len(chunk)
            if max(received, stated) > limit:
                raise _tampered(connection, f"more bytes of {digest} than the allowed {limit}")
            if new := chunk[skip:]:
                yield new
            skip = max(0, skip - len(chunk))


def _tampered(connection: Connection, problem: str) -> TamperedError:
    return TamperedError(
        f"The registry {connection.host} has {problem}.",
        next_step="Do not use them, and report it to the registry's owner.",
    )


MAX_PAGES = 1000  # pages of one list. Registries have 50 to 1,000 entries on each
MAX_ENTRIES = 100_000  # entries of one list: 1,000 images with their tags and attestations have 10,000
MAX_LIST_BYTES = 16 << 20  # bytes of all pages of one list: 100,000 tags of 160 bytes, or 20,000 referrers
Entry = TypeVar("Entry")


class _TagList(Document):
    tags: Annotated[tuple[Annotated[str, StringConstraints(pattern=rf"^{TAG.pattern}$")], ...], null_means(())]


def list_entries(
    connection: Connection, response: Response, name: str, parse: Callable[[bytes], Mapping[str, Entry]]
) -> tuple[Entry, ...]:
    """Return the entries of all pages of a list, from its first page. A page without a new entry is the last.

    `parse` returns the entries of a page, each by what identifies it. Pages are limited in number, bytes and time.
    """
    entries: dict[str, Entry] = {}
    size, deadline = 0, time.monotonic() + connection.response_seconds
    for _ in range(MAX_PAGES):
        size += len(response.content)
        if size > MAX_LIST_BYTES:
            raise limit_error(connection.host, f"more than {MAX_LIST_BYTES >> 20} MiB of {name}")
        try:
            page = parse(response.content)
        except InvalidDocument as error:
            if response.page is not None:
                raise page_error(response, f"a list of {name}") from None
            raise RegistryError(
                f"The registry {connection.host} returned an invalid list of {name} of "
                f"{connection.repository}: {error}.",
                next_step="Check that it is a registry.",
            ) from None
        links = parse_header_links(response.headers.get("Link", ""))  # RFC 8288
        following = next((link["url"] for link in links if link.get("rel") == "next"), None)
        is_last = page.keys() <= entries.keys()
        entries |= page
        if len(entries) > MAX_ENTRIES:
            raise limit_error(connection.host, f"more than {MAX_ENTRIES} {name}")
        if is_last or following is None:
            return tuple(entries.values())
        if time.monotonic() > deadline:
            raise timeout_error(connection.host, connection.response_seconds)
        url = connection.resolve_link(response.url, following, "the next page", same_origin=True)
        response = connection.request("GET", url)
    raise limit_error(connection.host, f"more than {MAX_PAGES} pages of {name}")


SETTLE_SECONDS = 0.5
"""Wait before an entry is checked. A publisher on another machine, who read the tag before our write, has written it by
then: that takes two requests. Without this, two publishers of four entries each lost one or two with distribution
2.8."""

LOCK_SECONDS = 120.0  # longest wait for other publishers on this machine, each of which needs about a second


def fallback_tag(digest: str) -> str:
    """Return the tag that replaces the list ("Referrers Tag Schema")."""
    return digest.replace(":", "-", 1)[:128]


class _ReferringManifest(Document):
    """The fields of a manifest that a list of referrers repeats."""

    subject: Digest = Field(validation_alias=AliasPath("subject", "digest"))
    artifact_type: str | None = Field(default=None, alias="artifactType")
    config_type: str | None = Field(default=None, validation_alias=AliasPath("config", "mediaType"))
    annotations: documents.Annotations = Field(default_factory=dict)


def describe_referrer(manifest: documents.Manifest, subject: str) -> documents.Descriptor:
    """Return a manifest's entry in a list of referrers. Raises `TamperedError` if it does not refer to the subject."""
    try:
        document = parse_document(_ReferringManifest, manifest.content)
        if document.subject != subject:
            raise InvalidDocument(f"it refers to {document.subject}")
        fields = {"annotations": document.annotations, "artifactType": document.artifact_type or document.config_type}
        return validate_model(documents.Descriptor, {**manifest.descriptor.to_document(), **fields})
    except InvalidDocument as error:
        raise TamperedError(
            f"The manifest {manifest.digest} does not refer to {subject}: {error}.",
            next_step="Do not use it, and find out where it comes from.",
        ) from None


def add_referrers(
    registry: documents.Registry,
    entries: Sequence[documents.Descriptor],
    subject: str,
    *,
    locks: Path,
    retry_policy: retry.RetryPolicy,
) -> None:
    """Add entries under the tag until they stay there, and leave all others. Raises `NetworkError` if they do not.

    The index is read, merged, written and read back, again if another publisher has overwritten it.
    """
    tag, deadline = fallback_tag(subject), time.monotonic() + LOCK_SECONDS
    lock = locks / hashlib.sha256(f"{registry.repository}@{subject}".encode()).hexdigest()
    lost_entries = retry.TransientError(
        NetworkError(
            f"Other publishers keep overwriting {tag} of {registry.repository}, the list of an image's referrers, and "
            "our entries are lost.",
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
        with files.wait_for_lock(lock, check_deadline):
            index = _read_index(registry, subject)
            present = index["manifests"] or []
            new = [document for entry in entries if (document := entry.to_document()) not in present]
            if new:
                digests = {entry["digest"] for entry in new}
                index["manifests"] = [*(other for other in present if other["digest"] not in digests), *new]
                content = json.dumps(index, separators=(",", ":")).encode()
                try:
                    _put_index(registry, subject, content)
                except TagConflict:
                    raise lost_entries from None
        retry_policy.sleep(SETTLE_SECONDS)  # without the lock: publishers on this machine need not wait for this
        listed = validate_model(documents.ImageIndex, _read_index(registry, subject)).manifests
        if not all(entry in listed for entry in entries):
            raise lost_entries

    retry_policy.retry_transient(attempt)


def _put_index(registry: documents.Registry, subject: str, content: bytes) -> None:
    """Put the index under the tag. Raises `RegistryError` if the registry does not take it, and `TagConflict`."""
    tag = fallback_tag(subject)
    try:
        registry.put(tag, documents.Manifest(media_type=documents.OCI_INDEX, content=content))
        return
    except TagConflict:
        present = registry.find(tag)
        if present is None or present.digest != subject:
            raise
        reason = RegistryError("It takes the tag for the digest.", next_step="")
    except RegistryError as error:
        reason = error
    raise type(reason)(
        f"The registry of {registry.repository} has no list of an image's referrers, and does not take {tag}, the tag "
        f"that stands for it, so nothing can be attached: {reason.what}",
        next_step=f"{reason.next_step} A registry with the referrers API of the OCI distribution specification 1.1 "
        "needs no such tag: ask its owner for a release that has it.".strip(),
    )


def _read_index(registry: documents.Registry, subject: str) -> dict[str, Any]:
    """Return the index under the tag. Raises `RegistryError` if it is another document."""
    tag = fallback_tag(subject)
    manifest = registry.find(tag)
    # Some registries take the tag for the digest, and return the image itself.
    if manifest is None or manifest.digest == subject:
        return {"schemaVersion": 2, "mediaType": documents.OCI_INDEX, "manifests": []}
    try:
        document = manifest.document
        validate_model(documents.ImageIndex, document)
        if manifest.media_type != documents.OCI_INDEX:
            raise InvalidDocument(f"it is {manifest.media_type}")
    except InvalidDocument as error:
        raise RegistryError(
            f"{registry.repository}:{tag} is not a list of the referrers of {subject}: {error}.",
            next_step="Another program wrote it; look at it, and remove it.",
        ) from None
    return document


ACCEPT = ", ".join((documents.OCI_INDEX, documents.OCI_MANIFEST, documents.DOCKER_INDEX, documents.DOCKER_MANIFEST))
"""All types: a registry may convert a manifest of a type that is not accepted, which changes its digest."""

CANNOT_DELETE = frozenset({400, 401, 403, 405, 409, 412, 501})
"""Responses of registries that cannot delete tags, or not this one or for this user, or that expect a digest. The
manifest must not be deleted instead: its other tags would be deleted with it."""

DELETE_STATUSES = (200, 202, 204, 404, *CANNOT_DELETE)

NEEDS_DIGEST = frozenset({400, 405})
"""Those of distribution 2.8 for a tag. It deletes a manifest with all its tags, if deletion is enabled."""

NO_LIST = (400, 404, 405, 501)  # responses of registries without a list of referrers; the specification has 404

PLACEHOLDER = "application/vnd.tfimg.nothing.v1"
"""Artifact type of the manifest to which a tag points while it is deleted."""

BINARY = "application/octet-stream"
MAX_MEDIA_TYPE = 255  # characters of a media type (RFC 6838, section 4.2, has 127 for each of its two names)

CERTIFICATES = Path("/etc/docker/certs.d")
"""Folder of Docker's engine for certificate authorities of registries: HOST[:PORT]/ca.crt."""


class HttpRegistry:
    """A repository over HTTP; see `Registry`. All publishers on this machine share the folder `locks`."""

    def __init__(self, connection: Connection, *, locks: Path) -> None:
        self.repository = connection.repository
        self._connection = connection
        self._locks = locks
        self._sizes: dict[str, int] = {}
        self._unlisted: defaultdict[str, list[documents.Descriptor]] = defaultdict(list)

    def find(self, reference: str) -> documents.Manifest | None:
        """See `Registry`. Tags left by an interrupted delete do not exist."""
        manifest = self._find(reference)
        return None if manifest and _is_placeholder(manifest) else manifest

    def _find(self, reference: str) -> documents.Manifest | None:
        target = f"manifests/{self._checked(reference)}"
        response = self._connection.request("GET", target, expected=(200, 404), headers={"Accept": ACCEPT})
        if response.status == 404:
            return None
        if response.page is not None:
            raise page_error(response, "a manifest")
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
        if len(media_type) > MAX_MEDIA_TYPE:
            raise limit_error(self._connection.host, f"a media type of {len(media_type)} characters")
        manifest = documents.Manifest(media_type=media_type, content=response.content)
        expected = reference if ":" in reference else response.headers.get("Docker-Content-Digest", "")
        if expected not in ("", manifest.digest):
            raise TamperedError(
                f"The registry {self._connection.host} states that {reference} of {self.repository} is "
                f"{text.truncate(expected)}, but sent {manifest.digest}.",
                next_step=documents.DISCARD,
            )
        with suppress(InvalidDocument):
            image = manifest.image
            for blob in filter(None, (image.config, *image.layers)):
                # If manifests disagree, the largest size counts.
                self._sizes[blob.digest] = max(blob.size, self._sizes.get(blob.digest, 0))
        return manifest

    def put(self, reference: str, manifest: documents.Manifest) -> None:
        try:
            self._put(reference, manifest)
        except TagImmutable:  # also for a tag that an attempt whose answer was lost has moved
            present = self._find(reference)
            if present is None or present.digest != manifest.digest:
                raise

    def _put(self, reference: str, manifest: documents.Manifest) -> Response:
        response = self._connection.request(
            "PUT",
            f"manifests/{self._checked(reference)}",
            expected=(201, 202),
            content=manifest.content,
            headers={"Content-Type": manifest.media_type},
        )
        present = self._find(reference)
        if present is None:
            raise RegistryError(
                f"The registry {self._connection.host} accepted {self.repository}:{reference}, but does not have it.",
                next_step="Run it again; the registry's log may say more.",
            )
        if present.digest != manifest.digest:
            raise TagConflict(
                f"{self.repository}:{reference} was moved to {manifest.digest}, but points to {present.digest}: "
                "another publisher moved it at the same time.",
                next_step="Find out who else publishes there, and run it again.",
            )
        return response

    def list_tags(self) -> Sequence[str]:
        response = self._connection.request("GET", "tags/list", expected=(200, 404))
        if response.status == 404:
            return ()
        return list_entries(
            self._connection, response, "tags", lambda page: {tag: tag for tag in parse_document(_TagList, page).tags}
        )

    def delete_tag(self, tag: str) -> bool:
        """See `Registry`. Where only manifests can be deleted, point the tag to a placeholder, and delete that."""
        delete = partial(self._connection.request, "DELETE", expected=DELETE_STATUSES)
        status = delete(f"manifests/{self._checked(tag)}").status
        if status not in NEEDS_DIGEST:
            return status not in CANNOT_DELETE
        before = self._find(tag)
        if before is None:
            return True
        placeholder = before
        if not _is_placeholder(before):
            self.put_blob(documents.EMPTY_JSON)
            annotations = {"org.opencontainers.image.description": f"{self.repository}:{tag} {secrets.token_hex(8)}"}
            placeholder = documents.make_manifest(
                documents.EMPTY_CONFIG,
                [documents.EMPTY_CONFIG.to_document()],
                artifactType=PLACEHOLDER,
                annotations=annotations,
            )
            try:
                self.put(tag, placeholder)
            except TagImmutable:
                return False
        if delete(f"manifests/{placeholder.digest}").status in CANNOT_DELETE:
            self.put(tag, before)
            return False
        return self._find(tag) is None

    def get_blob(self, digest: str) -> Iterator[bytes]:
        self._checked(digest, DIGEST)
        return download(self._connection, digest, limit=self._sizes.get(digest, MAX_BYTES))

    def put_blob(self, content: bytes) -> documents.Descriptor:
        blob = documents.describe_blob(content, BINARY)

        def attempt() -> None:
            target = f"blobs/{blob.digest}"
            if self._connection.request("HEAD", target, expected=(200, 404), once=True).status == 200:
                return
            begun = self._connection.request("POST", "blobs/uploads/", expected=(202,), once=True)
            location = begun.headers.get("Location", "")
            parts = urlsplit(self._connection.resolve_link(begun.url, location, "the place of an upload"))
            # The query belongs to the registry, which may have signed it.
            query = "&".join(filter(None, (parts.query, urlencode({"digest": blob.digest}))))
            url, headers = parts._replace(query=query).geturl(), {"Content-Type": BINARY}
            self._connection.request("PUT", url, expected=(201,), content=content, headers=headers, once=True)

        # Registries drop an upload whose request was cut: each attempt begins a new one.
        self._connection.retry_policy.retry_transient(attempt)
        return blob

    def list_referrers(self, digest: str) -> Sequence[documents.Descriptor]:
        native = self._list_native(digest)
        if native is not None:
            return native
        listed = validate_model(documents.ImageIndex, _read_index(self, digest)).manifests
        return (*listed, *(entry for entry in self._unlisted[digest] if entry not in listed))

    def _list_native(self, digest: str) -> Sequence[documents.Descriptor] | None:
        """Return the registry's own list of referrers; None where it has none."""
        target = f"referrers/{self._checked(digest, DIGEST)}"
        response = self._connection.request("GET", target, expected=(200, *NO_LIST))
        # Some registries without a list answer every address with an HTML page.
        if response.status != 200 or documents.OCI_INDEX not in response.headers.get("Content-Type", ""):
            return None
        return list_entries(
            self._connection,
            response,
            "referrers",
            lambda page: {entry.digest: entry for entry in parse_document(documents.ImageIndex, page).manifests},
        )

    def put_referrers(
        self, manifests: Sequence[documents.Manifest], *, subject: str, list_later: bool = False
    ) -> Sequence[documents.Descriptor]:
        entries = [describe_referrer(manifest, subject) for manifest in manifests]
        responses = [self._put(manifest.digest, manifest) for manifest in manifests]
        unlisted = self._unlisted[subject]
        if not all("OCI-Subject" in response.headers for response in responses):
            unlisted += (entry for entry in entries if entry not in unlisted)
        if unlisted and not list_later:
            # Some registries list what they do not confirm with OCI-Subject: no one reads the tag there.
            listed = {entry.digest for entry in self._list_native(subject) or ()}
            if not listed.issuperset(entry.digest for entry in unlisted):
                policy = self._connection.retry_policy
                add_referrers(self, unlisted, subject, locks=self._locks, retry_policy=policy)
            unlisted.clear()
        return entries

    def _checked(self, reference: str, grammar: re.Pattern[str] | None = None) -> str:
        """Return a reference that may become part of an address: documents from outside contain it."""
        allowed = (grammar,) if grammar else (TAG, DIGEST)
        if not any(pattern.fullmatch(str(reference)) for pattern in allowed):
            raise RegistryError(
                f"{text.truncate(str(reference))!r} is {'not a digest' if grammar else 'neither a tag nor a digest'}; "
                f"{self.repository} was not asked for it.",
                next_step="The document that names it is damaged or forged.",
            )
        return reference


def open_registry(
    reference: Reference,
    environ: Mapping[str, str],
    state: Path,
    *,
    settings: ConnectionSettings,
    certificates: Path = CERTIFICATES,
    retry_policy: retry.RetryPolicy | None = None,
) -> HttpRegistry:
    """Return the repository of a reference with this machine's credentials and certificates, without any request.

    Raises as `find_credentials`.
    """
    authority = certificates / reference.host / "ca.crt"
    connection = Connection(
        reference,
        credentials=find_credentials(
            reference.host,
            config_file(environ),
            lambda argv, stdin: process.run(argv, env=environ, stdin=stdin, timeout=HELPER_SECONDS),
        ),
        settings=replace(settings, ca_file=str(authority)) if authority.is_file() else settings,
        retry_policy=retry_policy or retry.RetryPolicy(),
    )
    return HttpRegistry(connection, locks=state / "registry" / "locks")


def _is_placeholder(manifest: documents.Manifest) -> bool:
    with suppress(InvalidDocument):
        return PLACEHOLDER.encode() in manifest.content and manifest.document.get("artifactType") == PLACEHOLDER
    return False

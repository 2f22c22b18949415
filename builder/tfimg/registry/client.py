"""The `Registry` protocol over HTTP (OCI distribution specification 1.1)."""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import RegistryError, TagConflict, TamperedError
from tfimg.core.process import run
from tfimg.core.retry import RetryPolicy
from tfimg.core.text import truncate
from tfimg.registry import protocol, referrers
from tfimg.registry.connection import Connection, ConnectionSettings
from tfimg.registry.credentials import HELPER_SECONDS, config_file, find_credentials
from tfimg.registry.download import MAX_BYTES, download
from tfimg.registry.listing import list_entries, parse_referrers, parse_tags
from tfimg.registry.protocol import EMPTY_CONFIG, EMPTY_JSON, Descriptor, Manifest, describe_blob, make_manifest
from tfimg.registry.reference import DIGEST, TAG, Reference
from tfimg.registry.responses import Response, limit_error

ACCEPT = ", ".join((protocol.OCI_INDEX, protocol.OCI_MANIFEST, protocol.DOCKER_INDEX, protocol.DOCKER_MANIFEST))
"""All types: a registry may convert a manifest of a type that is not accepted, which changes its digest."""

DELETED = (200, 202, 204, 404)

CANNOT_DELETE = frozenset({400, 401, 403, 405, 501})
"""Responses of registries that cannot delete tags, or not for this user, or that expect a digest. The manifest must not
be deleted instead: its other tags would be deleted with it."""

NEEDS_DIGEST = frozenset({400, 405})
"""Those of distribution 2.8 for a tag. It deletes a manifest with all its tags, if deletion is enabled."""

NO_LIST = (400, 404, 405, 501)
"""Responses of registries without a list of referrers; the specification has 404."""

PLACEHOLDER = "application/vnd.tfimg.nothing.v1"
"""Artifact type of the manifest to which a tag points while it is deleted."""

BINARY = "application/octet-stream"

MAX_MEDIA_TYPE = 255
"""Characters of a media type (RFC 6838, section 4.2, has 127 for each of its two names)."""

CERTIFICATES = Path("/etc/docker/certs.d")
"""Folder of Docker's engine for certificate authorities of registries: HOST[:PORT]/ca.crt."""


class HttpRegistry:
    """A repository over HTTP; see `Registry`. All publishers on this machine share the folder `locks`."""

    def __init__(self, connection: Connection, *, locks: Path) -> None:
        self._connection = connection
        self._locks = locks
        self._sizes: dict[str, int] = {}
        self._unlisted: defaultdict[str, list[Descriptor]] = defaultdict(list)

    @property
    def repository(self) -> str:
        """See `Registry`."""
        return self._connection.repository

    def find(self, reference: str) -> Manifest | None:
        """See `Registry`. Tags left by an interrupted delete do not exist."""
        manifest = self._find(reference)
        return None if manifest and _is_placeholder(manifest) else manifest

    def _find(self, reference: str) -> Manifest | None:
        target = f"manifests/{self._checked(reference)}"
        response = self._connection.request("GET", target, expected=(200, 404), headers={"Accept": ACCEPT})
        if response.status == 404:
            return None
        media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
        if len(media_type) > MAX_MEDIA_TYPE:
            raise limit_error(self._connection.host, f"a media type of {len(media_type)} characters")
        manifest = Manifest(media_type=media_type, content=response.content)
        expected = reference if ":" in reference else response.headers.get("Docker-Content-Digest", "")
        if expected not in ("", manifest.digest):
            raise TamperedError(
                f"The registry {self._connection.host} states that {reference} of {self.repository} is "
                f"{truncate(expected)}, but sent {manifest.digest}.",
                next_step="Do not use it, and report it to the registry's owner.",
            )
        with suppress(InvalidDocument):
            image = manifest.image
            for blob in filter(None, (image.config, *image.layers)):
                # If manifests disagree, the largest size counts.
                self._sizes[blob.digest] = max(blob.size, self._sizes.get(blob.digest, 0))
        return manifest

    def put(self, reference: str, manifest: Manifest) -> None:
        """See `Registry`."""
        self._put(reference, manifest)

    def _put(self, reference: str, manifest: Manifest) -> Response:
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
        """See `Registry`."""
        response = self._connection.request("GET", "tags/list", expected=(200, 404))
        return list_entries(self._connection, response, "tags", parse_tags) if response.status == 200 else ()

    def delete_tag(self, tag: str) -> bool:
        """See `Registry`."""
        status = self._delete(self._checked(tag))
        return self._delete_by_digest(tag) if status in NEEDS_DIGEST else status not in CANNOT_DELETE

    def _delete(self, reference: str) -> int:
        expected = (*DELETED, *CANNOT_DELETE)
        return self._connection.request("DELETE", f"manifests/{reference}", expected=expected).status

    def _delete_by_digest(self, tag: str) -> bool:
        """Point the tag to a placeholder and delete that, where only manifests can be deleted."""
        before = self._find(tag)
        if before is None:
            return True
        placeholder = before
        if not _is_placeholder(before):
            self.put_blob(EMPTY_JSON)
            annotations = {"org.opencontainers.image.description": f"{self.repository}:{tag} {secrets.token_hex(8)}"}
            placeholder = make_manifest(
                EMPTY_CONFIG, [EMPTY_CONFIG.to_document()], artifactType=PLACEHOLDER, annotations=annotations
            )
            self.put(tag, placeholder)
        if self._delete(placeholder.digest) in CANNOT_DELETE:
            self.put(tag, before)
            return False
        return self._find(tag) is None

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """See `Registry`."""
        self._checked(digest, DIGEST)
        return download(self._connection, digest, limit=self._sizes.get(digest, MAX_BYTES))

    def put_blob(self, content: bytes) -> Descriptor:
        """See `Registry`."""
        blob = describe_blob(content, BINARY)

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

    def list_referrers(self, digest: str) -> Sequence[Descriptor]:
        """See `Registry`."""
        target = f"referrers/{self._checked(digest, DIGEST)}"
        response = self._connection.request("GET", target, expected=(200, *NO_LIST))
        # Some registries without a list answer every address with an HTML page.
        if response.status != 200 or protocol.OCI_INDEX not in response.headers.get("Content-Type", ""):
            listed = referrers.read_fallback(self, digest)
            return (*listed, *(entry for entry in self._unlisted[digest] if entry not in listed))
        return list_entries(self._connection, response, "referrers", parse_referrers)

    def put_referrers(
        self, manifests: Sequence[Manifest], *, subject: str, list_later: bool = False
    ) -> Sequence[Descriptor]:
        """See `Registry`."""
        entries = [referrers.describe_referrer(manifest, subject) for manifest in manifests]
        responses = [self._put(manifest.digest, manifest) for manifest in manifests]
        unlisted = self._unlisted[subject]
        if not all("OCI-Subject" in response.headers for response in responses):
            unlisted += (entry for entry in entries if entry not in unlisted)
        if unlisted and not list_later:
            policy = self._connection.retry_policy
            referrers.add_referrers(self, unlisted, subject, locks=self._locks, retry_policy=policy)
            unlisted.clear()
        return entries

    def _checked(self, reference: str, grammar: re.Pattern[str] | None = None) -> str:
        """Return a reference that may become part of an address: documents from outside contain it."""
        allowed = (grammar,) if grammar else (TAG, DIGEST)
        if not any(pattern.fullmatch(str(reference)) for pattern in allowed):
            raise RegistryError(
                f"{truncate(str(reference))!r} is {'not a digest' if grammar else 'neither a tag nor a digest'}; "
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
    retry_policy: RetryPolicy | None = None,
) -> HttpRegistry:
    """Return the repository of a reference with this machine's credentials and certificates, without any request.

    Raises as `find_credentials`.
    """

    def run_helper(argv: list[str], stdin: bytes) -> str:
        return run(argv, env=environ, stdin=stdin, timeout=HELPER_SECONDS)

    authority = certificates / reference.host / "ca.crt"
    connection = Connection(
        reference,
        credentials=find_credentials(reference.host, config_file(environ), run_helper),
        settings=replace(settings, ca_file=str(authority)) if authority.is_file() else settings,
        retry_policy=retry_policy or RetryPolicy(),
    )
    return HttpRegistry(connection, locks=state / "registry" / "locks")


def _is_placeholder(manifest: Manifest) -> bool:
    with suppress(InvalidDocument):
        return PLACEHOLDER.encode() in manifest.content and manifest.document.get("artifactType") == PLACEHOLDER
    return False

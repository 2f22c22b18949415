"""The `Registry` protocol over HTTP, as the OCI distribution specification 1.1 has it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from requests.utils import parse_header_links

from tfimg.errors import RegistryRefused, TagMoved, TamperedError
from tfimg.registry import referrers
from tfimg.registry.connection import Connection
from tfimg.registry.download import download
from tfimg.registry.protocol import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    EMPTY,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    digest_of,
)
from tfimg.registry.refusals import Answer
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

Moved = Callable[[str, int, int], None]
"""Is told a blob's digest, how many of its bytes have been moved, and of how many; 0 where that is not known."""


def silent(digest: str, current: int, total: int) -> None:
    """Nobody is to be told."""


class HttpRegistry:
    """See `Registry`. `locks` is a folder that everybody who publishes from this machine shares."""

    def __init__(self, connection: Connection, *, locks: Path, moved: Moved = silent) -> None:
        self._connection = connection
        self._locks = locks
        self._moved = moved

    @property
    def repository(self) -> str:
        """See `Registry`."""
        return self._connection.repository

    def find(self, reference: str) -> Manifest | None:
        """See `Registry`. A tag whose taking away was cut off leads nowhere, whatever stands there in the meantime."""
        found = self._find(reference)
        return None if found and _is_nothing(found) else found

    def _find(self, reference: str) -> Manifest | None:
        answer = self._connection.ask(
            "GET", f"manifests/{reference}", expected=(200, 404), headers={"Accept": ACCEPT}
        )
        if answer.status == 404:
            return None
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        found = Manifest(media_type=kind, content=answer.content)
        # Of a tag, the registry's own word for what it meant to send.
        said = reference if ":" in reference else answer.headers.get("Docker-Content-Digest", "")
        if said not in ("", found.digest):
            raise TamperedError(
                f"The registry {self._connection.host} says that {reference} of {self.repository} is {said}, and "
                f"sends {found.digest}.",
                next_step="Do not use it, and tell the registry's owner.",
            )
        return found

    def put(self, reference: str, manifest: Manifest) -> None:
        """See `Registry`."""
        self._put(reference, manifest)

    def _put(self, reference: str, manifest: Manifest) -> Answer:
        """Put a manifest and read it back; returns what the registry said."""
        answer = self._connection.ask(
            "PUT", f"manifests/{reference}", expected=(201, 202), content=manifest.content,
            headers={"Content-Type": manifest.media_type},
        )  # fmt: skip
        there = self._find(reference)
        if there is None:
            raise RegistryRefused(
                f"The registry {self._connection.host} took {reference} of {self.repository}, and does not have it.",
                next_step="Run it again; the registry's own log may say more.",
            )
        if there.digest != manifest.digest:
            raise TagMoved(
                f"{self.repository}:{reference} was put to {manifest.digest}, and leads to {there.digest}: somebody "
                "else moved it at the same moment.",
                next_step="Find out who publishes there too, and run it again.",
            )
        return answer

    def tags(self) -> Sequence[str]:
        """See `Registry`."""
        answer = self._connection.ask("GET", "tags/list", expected=(200, 404))
        return tuple(str(tag) for tag in self._entries(answer, "tags")) if answer.status == 200 else ()

    def untag(self, tag: str) -> bool:
        """See `Registry`."""
        answer = self._connection.ask(
            "DELETE", f"manifests/{tag}", expected=(200, 202, 204, 404, *CANNOT_UNTAG)
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

    def blob(self, digest: str) -> Iterator[bytes]:
        """See `Registry`."""
        return download(self._connection, digest, came=partial(self._moved, digest))

    def put_blob(self, content: bytes) -> Descriptor:
        """See `Registry`."""
        digest = digest_of(content)
        self.put_stream(digest, len(content), [content])
        return Descriptor(media_type="application/octet-stream", digest=digest, size=len(content))

    def put_stream(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """See `Registry`."""
        upload(self._connection, digest, pieces, sent=lambda sent: self._moved(digest, sent, size))

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        """See `Registry`."""
        found = self._native(digest)
        return referrers.read_fallback(self, digest) if found is None else found

    def _native(self, digest: str) -> tuple[Descriptor, ...] | None:
        """The registry's own list; None where it keeps none."""
        answer = self._connection.ask("GET", f"referrers/{digest}", expected=(200, *NO_LIST))
        # Some that know no such list answer every address with a page for people.
        if answer.status != 200 or OCI_INDEX not in answer.headers.get("Content-Type", ""):
            return None
        return referrers.listed({"manifests": list(self._entries(answer, "manifests"))})

    def refer(self, manifest: Manifest, *, subject: str, artifact_type: str) -> Descriptor:
        """See `Registry`."""
        if manifest.document.get("subject", {}).get("digest") != subject:
            raise ValueError(f"{manifest.digest} does not refer to {subject}")
        new = referrers.entry(manifest, artifact_type)
        answer = self._put(manifest.digest, manifest)
        if "OCI-Subject" not in answer.headers:
            referrers.enter(self, new, subject, locks=self._locks, patience=self._connection.patience)
        return new

    def _entries(self, answer: Answer, name: str) -> Iterator[Any]:
        """The entries of a list, of this page and those that follow. One that brings nothing new is the last."""
        seen: set[str] = set()
        while page := [one for one in self._listed(answer, name) if repr(one) not in seen]:
            yield from page
            seen |= {repr(one) for one in page}
            following = _next(answer)
            if following is None:
                return
            answer = self._connection.ask("GET", following)

    def _listed(self, answer: Answer, name: str) -> list[Any]:
        """A list of an answer's JSON object; an empty one may be `null`."""
        try:
            return list(json.loads(answer.content)[name] or ())
        except (ValueError, KeyError, TypeError):
            raise RegistryRefused(
                f"The registry {self._connection.host} answered the question for {name} of {self.repository} with "
                "something else.",
                next_step="Check that it is a registry.",
            ) from None


def _next(answer: Answer) -> str | None:
    """The address of the next page (RFC 8288), where there is one."""
    links = parse_header_links(answer.headers.get("Link", ""))
    return next((urljoin(answer.url, link["url"]) for link in links if link.get("rel") == "next"), None)


def _is_nothing(manifest: Manifest) -> bool:
    return NOTHING.encode() in manifest.content and manifest.document.get("artifactType") == NOTHING


def _nothing(about: str) -> Manifest:
    """A manifest of nothing that nobody else has."""
    told = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": NOTHING,
        "config": Descriptor(media_type=EMPTY, digest=digest_of(b"{}"), size=2).document(),
        "layers": [Descriptor(media_type=EMPTY, digest=digest_of(b"{}"), size=2).document()],
        "annotations": {"org.opencontainers.image.description": about},
    }
    return Manifest(media_type=OCI_MANIFEST, content=json.dumps(told).encode())

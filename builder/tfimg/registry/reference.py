"""A text such as `registry.example:5000/team/tensorflow:2.15@sha256:…` → what it says, with Docker's defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfimg.core.errors import UsageError

DOCKER_HUB = "docker.io"
"""The registry of a name that names none, and the folder of its images that name none either, as Docker has them."""

HUB_FOLDER = "library"
DEFAULT_TAG = "latest"

NAME_LENGTH = 255
"""Characters that a repository's name may have, its registry included (distribution, `NameTotalLengthMax`)."""

HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])"
    r"(?::[0-9]{1,5})?"
)
PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""The grammar of the OCI distribution specification 1.1 (spec.md, "Pulling manifests"), with the one algorithm that
every registry must know (image-spec 1.1, descriptor.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """An image in a registry. `tag` is None where the text has a digest and no tag, or is a repository alone."""

    host: str
    path: str
    tag: str | None = None
    digest: str | None = None

    @property
    def repository(self) -> str:
        """HOST[:PORT]/PATH."""
        return f"{self.host}/{self.path}"

    @property
    def target(self) -> str:
        """What a registry is asked for: the digest where there is one, as Docker does."""
        return self.digest or self.tag or DEFAULT_TAG

    def at(self, digest: str) -> Reference:
        """The same image by its digest."""
        return Reference(host=self.host, path=self.path, tag=self.tag, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def parse_reference(text: str) -> Reference:
    """An image reference. Without tag and digest, it is Docker's `latest`. Raises `UsageError`."""
    name, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise _wrong(text, f"{digest or 'nothing'} is no digest", "A digest is sha256: and 64 digits of 0-9 and a-f.")
    # A colon before the last slash is that of the port.
    if ":" in name.rpartition("/")[2]:
        name, _, tag = name.rpartition(":")
        if not TAG.fullmatch(tag):
            raise _wrong(
                text,
                f"{tag or 'nothing'} is no tag",
                "A tag is up to 128 letters, digits, dots, dashes and underscores, and begins with none of . and -.",
            )
    else:
        tag = "" if digest else DEFAULT_TAG
    host, path = _split(text, name)
    return Reference(host=host, path=path, tag=tag or None, digest=digest or None)


def parse_repository(text: str) -> Reference:
    """A repository: a reference that has neither tag nor digest. Raises `UsageError`."""
    if "@" in text or ":" in text.rpartition("/")[2]:
        raise _wrong(text, "a repository has neither tag nor digest", "Leave them away.")
    host, path = _split(text, text)
    return Reference(host=host, path=path)


def _split(text: str, name: str) -> tuple[str, str]:
    """Registry and path. The first part is a registry where it cannot be a part of a path, as Docker decides."""
    if "://" in text:
        raise _wrong(text, "that is an address", "Leave the part up to :// away.")
    first, slash, rest = name.partition("/")
    if not slash or not (set(first) & set(".:") or first == "localhost" or first != first.lower()):
        first, rest = DOCKER_HUB, name
    host, path = _hub(first, rest)
    if not HOST.fullmatch(host) or not 0 < _port(host) < 1 << 16:
        raise _wrong(text, f"{host} is no registry", "A registry is a host name or address, with or without :PORT.")
    if not PATH.fullmatch(path):
        advice = "Write it in lower case." if PATH.fullmatch(path.lower()) else _PATH_ADVICE
        raise _wrong(text, f"{rest or 'nothing'} is no name of a repository", advice)
    if len(f"{host}/{path}") > NAME_LENGTH:
        raise _wrong(text, f"its name is longer than {NAME_LENGTH} characters", "Choose a shorter one.")
    return host, path


_PATH_ADVICE = (
    "It is made of lower-case letters and digits, with single dots, up to two underscores or dashes between them, and "
    "slashes between its parts."
)


def _hub(host: str, path: str) -> tuple[str, str]:
    if host not in (DOCKER_HUB, f"index.{DOCKER_HUB}"):
        return host, path
    return DOCKER_HUB, path if "/" in path else f"{HUB_FOLDER}/{path}"


def _port(host: str) -> int:
    port = re.search(r":([0-9]+)$", host)
    return int(port[1]) if port else 1


def _wrong(text: str, why: str, advice: str) -> UsageError:
    return UsageError(
        f"{text!r} is no image reference: {why}.",
        next_step=f"{advice} A whole one is registry.example:5000/team/tensorflow:2.15@sha256:….",
    )

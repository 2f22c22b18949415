"""Image references such as `registry.example:5000/team/tensorflow:2.15@sha256:…`, with Docker's defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfimg.core.errors import UsageError
from tfimg.core.text import quote_value, truncate

DOCKER_HUB = "docker.io"
"""The registry of a name without one."""

HUB_FOLDER = "library"
"""The folder of Docker Hub's images without one."""

DEFAULT_TAG = "latest"

MAX_NAME = 255
"""Characters of a repository's name with its registry (distribution, `NameTotalLengthMax`)."""

LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
HOST = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*|\[[0-9a-fA-F:]+\])(?::([0-9]{{1,5}}))?")
PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
PATH = re.compile(rf"{PART}(?:/{PART})*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""The grammar of the OCI distribution specification 1.1 (spec.md, "Pulling manifests"), with the one algorithm that
every registry must know (image-spec 1.1, descriptor.md)."""

PATH_ADVICE = (
    "It consists of lower-case letters and digits, with single dots, up to two underscores or dashes between them, and "
    "slashes between its parts."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """An image in a registry. `tag` is None for a digest without tag, and for a repository."""

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
        """The digest, or else the tag, as Docker does."""
        return self.digest or self.tag or DEFAULT_TAG

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def parse_reference(text: str) -> Reference:
    """Return an image reference, with Docker's `latest` for a text without tag and digest. Raises `UsageError`."""
    name, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        advice = "A digest is sha256: and 64 digits of 0-9 and a-f."
        raise _invalid(text, f"{digest or 'nothing'} is not a digest", advice)
    tag = "" if digest else DEFAULT_TAG
    if ":" in name.rpartition("/")[2]:  # a colon before the last slash is that of the port
        name, _, tag = name.rpartition(":")
        if not TAG.fullmatch(tag):
            advice = "A tag has up to 128 letters, digits, dots, dashes and underscores; a dot or dash is never first."
            raise _invalid(text, f"{tag or 'nothing'} is not a tag", advice)
    host, path = _split(text, name)
    return Reference(host=host, path=path, tag=tag or None, digest=digest or None)


def parse_repository(text: str) -> Reference:
    """Return a repository: a reference without tag and digest. Raises `UsageError`."""
    if "@" in text or ":" in text.rpartition("/")[2]:
        raise UsageError(
            f"{quote_value(text)} is not a repository: it has a tag or digest.",
            next_step="Write REGISTRY/NAME without them, for example registry.example:5000/team/tensorflow.",
        )
    host, path = _split(text, text)
    return Reference(host=host, path=path)


def names_registry(text: str) -> bool:
    """Whether a reference states its registry: its first part cannot be one of a path, as Docker decides."""
    host, slash, _ = text.partition("/")
    return bool(slash) and bool(set(host) & set(".:") or host == "localhost" or host != host.lower())


def _split(text: str, name: str) -> tuple[str, str]:
    """Return registry and path."""
    if "://" in text:
        raise _invalid(text, "it is an address", "Remove the part up to ://.")
    host, _, path = name.partition("/")
    if not names_registry(name):
        host, path = DOCKER_HUB, name
    if host in (DOCKER_HUB, f"index.{DOCKER_HUB}"):
        host, path = DOCKER_HUB, path if "/" in path else f"{HUB_FOLDER}/{path}"
    found = HOST.fullmatch(host)
    if not found or not 0 < int(found[1] or 1) < 1 << 16:
        advice = "A registry is a host name or address, with or without :PORT."
        raise _invalid(text, f"{host} is not a registry", advice)
    if not PATH.fullmatch(path):
        advice = "Write it in lower case." if PATH.fullmatch(path.lower()) else PATH_ADVICE
        raise _invalid(text, f"{path.removeprefix(f'{HUB_FOLDER}/') or 'nothing'} is not a repository name", advice)
    if len(f"{host}/{path}") > MAX_NAME:
        raise _invalid(text, f"its name is longer than {MAX_NAME} characters", "Choose a shorter one.")
    return host, path


def _invalid(text: str, reason: str, advice: str) -> UsageError:
    return UsageError(
        f"{quote_value(text)} is not an image reference: {truncate(reason)}.",
        next_step=f"{advice} A complete one is registry.example:5000/team/tensorflow:2.15@sha256:….",
    )

"""Names of images, and credentials of registries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from docker import auth
from docker.errors import DockerException
from pydantic import Field, StringConstraints

from tfimg.core import documents, errors, files, process
from tfimg.core.text import quote_argument, quote_value, truncate

DOCKER_HUB = "docker.io"  # the registry of a name without one
HUB_FOLDER = "library"  # the folder of Docker Hub's images without one
DEFAULT_TAG = "latest"
MAX_NAME = 255  # characters of a repository's name with its registry (distribution, `NameTotalLengthMax`)
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
HOST = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*|\[[0-9a-fA-F:]+\])(?::([0-9]{{1,5}}))?")
PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
PATH = re.compile(rf"{PART}(?:/{PART})*")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""The grammar of the OCI distribution specification 1.1 (spec.md, "Pulling manifests"), with the one algorithm that
every registry must know (image-spec 1.1, descriptor.md)."""

PART_OF_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{12})[0-9a-f]{0,52}")
"""What `tfimg history` prints of a digest; `rollback` and `withdraw` take it, registries and engines do not."""

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
        if part := PART_OF_DIGEST.fullmatch(digest):
            repository = re.sub(r":[^:/]*$", "", name)
            advice = (
                f"Name the tag of the build, which ends in -{part[1]} and is listed by `tfimg history "
                f"{quote_argument(repository)}`, or all 64 digits after sha256:."
            )
            raise _invalid(text, f"{digest} is a part of a digest", advice)
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
        raise errors.UsageError(
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


def _invalid(text: str, reason: str, advice: str) -> errors.UsageError:
    return errors.UsageError(
        f"{quote_value(text)} is not an image reference: {truncate(reason)}.",
        next_step=f"{advice} A complete one is registry.example:5000/team/tensorflow:2.15@sha256:….",
    )


HELPER_SECONDS = 60.0  # timeout of a helper, which may ask a cloud's server, or a user who is not there

NOT_FOUND = "credentials not found in native keychain"
"""Output of a helper without credentials (docker-credential-helpers, `credentials/error.go`)."""

HelperName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")]
"""Name of a credential helper: the program is `docker-credential-NAME`, on the PATH."""


class Login(documents.Document):
    """What `docker login` leaves about one registry: a password, base64 of NAME:PASSWORD, or a token."""

    auth: str | None = None
    identitytoken: str | None = None
    registrytoken: str | None = None


class DockerConfig(documents.Document):
    """The fields of Docker's config.json with secrets (docker/cli, cli/config/types). `auths` are of `Login`."""

    auths: dict[str, Any] | None = None
    proxies: dict[str, Any] | None = None
    store: HelperName | None = Field(default=None, alias="credsStore")
    helpers: dict[str, HelperName] | None = Field(default=None, alias="credHelpers")


class _HelperOutput(documents.Document):
    """Output of a credential helper (docker-credential-helpers, `credentials/credentials.go`)."""

    name: str = Field(alias="Username")
    secret: str = Field(alias="Secret")


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """A name with its password, or an `identity_token` that a token server exchanges for an access token."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


RunHelper = Callable[[list[str], bytes], str]
"""Returns the output of a program with this input; raises as `tfimg.core.process.run`."""


def config_file(environ: Mapping[str, str]) -> Path:
    folder = environ.get("DOCKER_CONFIG")
    return Path(folder or Path(environ.get("HOME", "/"), ".docker")) / "config.json"


def find_credentials(host: str, config: Path, run: RunHelper) -> Credentials | None:
    """Return the credentials for a registry; None without any.

    Raises `FileError` for an invalid file and `RegistryError` for a helper that fails.
    """
    parsed = _read_config(config)
    if helper := parsed.get_credential_store(host):
        # Helpers know Docker Hub by an old address, which the docker package has for its own calls.
        credentials = _run_helper(helper, auth.INDEX_URL if host == DOCKER_HUB else host, run)
        if credentials is not None:
            return credentials
    # Without helpers: the docker package would start them without a timeout.
    entry = auth.AuthConfig({"auths": parsed.auths}).resolve_authconfig(host)
    if not entry:
        return None
    return Credentials(
        username=entry.get("username", ""),
        password=entry.get("password", ""),
        identity_token=entry.get("IdentityToken", ""),
    )


def _read_config(path: Path) -> auth.AuthConfig:
    try:
        if not path.exists():
            return auth.AuthConfig({})
        content = files.read_limited(path, documents.MAX_BYTES, next_step="Correct DOCKER_CONFIG, or unset it.")
        config = documents.validate_model(DockerConfig, documents.parse_object(content))
        logins = {host: documents.validate_model(Login, entry) for host, entry in (config.auths or {}).items()}
        entries = {host: login.model_dump(exclude_none=True) for host, login in logins.items()}
        auths = auth.AuthConfig.parse_auth(entries, raise_on_error=True)
        return auth.AuthConfig({"auths": auths, "credsStore": config.store, "credHelpers": config.helpers or {}})
    except (ValueError, DockerException) as error:
        raise errors.FileError(
            f"{path} is not a valid Docker configuration: {error}.",
            next_step="Correct it, or move it away and log in again with `docker login`.",
        ) from None


def _run_helper(helper: str, server: str, run: RunHelper) -> Credentials | None:
    program = f"docker-credential-{helper}"
    try:
        output = documents.parse_document(_HelperOutput, run([program, "get"], server.encode()).encode())
    except process.CommandFailed as error:
        printed = f"{error.stdout}{error.stderr}".strip()
        if NOT_FOUND in printed:
            return None
        problem = printed or f"it ended with {error.returncode}"
    except FileNotFoundError:
        problem = "it is not installed"
    except TimeoutError:
        problem = f"it did not end within {HELPER_SECONDS:g} seconds"
    except documents.InvalidDocument:
        problem = "its output does not follow the protocol of credential helpers"
    else:
        if output.name == auth.TOKEN_USERNAME:
            return Credentials(identity_token=output.secret)
        return Credentials(username=output.name, password=output.secret) if output.name or output.secret else None
    raise errors.RegistryError(
        f"The credential helper {program} returned no credentials for {server}: {problem}.",
        next_step="Repair it, or remove it from Docker's config.json and log in with `docker login`.",
    )

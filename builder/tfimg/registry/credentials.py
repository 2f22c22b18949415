"""Who we are to a registry: what `docker login` left, or what a credential helper tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from docker import auth
from docker.errors import DockerException
from pydantic import Field, StringConstraints

from tfimg.core.documents import Document, InvalidDocument, parse_document, parse_object, validate
from tfimg.core.errors import FileError, RegistryError
from tfimg.core.process import CommandFailed, CompletedCommand
from tfimg.registry.reference import DOCKER_HUB

HELPER_SECONDS = 60.0
"""A helper may ask a cloud's server. One that asks a person, where nobody sits, would never end."""

NOT_FOUND = "credentials not found in native keychain"
"""What a helper prints when it knows none (docker-credential-helpers, `credentials/error.go`)."""


Helper = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")]
"""A credential helper's name: the program is `docker-credential-NAME`, on the PATH."""


class AuthEntry(Document):
    """What `docker login` keeps for a registry."""

    auth: str | None = None
    identitytoken: str | None = None


class DockerConfig(Document):
    """The fields of Docker's config.json that name credentials."""

    auths: dict[str, AuthEntry] | None = None
    store: Helper | None = Field(default=None, alias="credsStore")
    helpers: dict[str, Helper] | None = Field(default=None, alias="credHelpers")


class HelperAnswer(Document):
    """What a credential helper prints (docker-credential-helpers, `credentials/credentials.go`)."""

    name: str = Field(alias="Username")
    secret: str = Field(alias="Secret")


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """A name with its password, or a token that a token server changes for another one (`identity_token`)."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


RunHelper = Callable[[list[str], bytes], CompletedCommand]
"""Starts a program with what it reads; raises as `tfimg.core.process.run` does."""


def config_file(environ: Mapping[str, str]) -> Path:
    """Where `docker login` keeps what it knows."""
    folder = environ.get("DOCKER_CONFIG")
    return Path(folder or Path(environ.get("HOME", "/"), ".docker")) / "config.json"


def find_credentials(host: str, config: Path, run: RunHelper) -> Credentials | None:
    """The credentials for a registry, or None where there are none.

    Raises `FileError` for a file that cannot be understood and `RegistryError` for a helper that does not help.
    """
    known = _read(config)
    if helper := known.get_credential_store(host):
        # The hub is known by an old address there, as the docker package has it for its own calls.
        told = _ask(helper, auth.INDEX_URL if host == DOCKER_HUB else host, run)
        if told is not None:
            return told
    # Without helpers: the docker package would start them, and wait for them without end.
    entry = auth.AuthConfig({"auths": known.auths}).resolve_authconfig(host)
    if not entry:
        return None
    return Credentials(
        username=entry.get("username", ""),
        password=entry.get("password", ""),
        identity_token=entry.get("IdentityToken", ""),
    )


def _read(config: Path) -> auth.AuthConfig:
    try:
        found = validate(DockerConfig, parse_object(config.read_bytes()))
        entries = {host: entry.model_dump(exclude_none=True) for host, entry in (found.auths or {}).items()}
        auths = auth.AuthConfig.parse_auth(entries, raise_on_error=True)
        return auth.AuthConfig({"auths": auths, "credsStore": found.store, "credHelpers": found.helpers or {}})
    except FileNotFoundError:
        return auth.AuthConfig({})
    except (ValueError, DockerException) as error:
        raise FileError(
            f"{config} cannot be understood: {error}.",
            next_step="Correct it, or move it away and log in again with `docker login`.",
        ) from None


def _ask(helper: str, server: str, run: RunHelper) -> Credentials | None:
    program = f"docker-credential-{helper}"
    try:
        answer = parse_document(HelperAnswer, run([program, "get"], server.encode()).stdout.encode())
    except CommandFailed as error:
        said = f"{error.completed.stdout}{error.completed.stderr}".strip()
        if NOT_FOUND in said:
            return None
        raise _helpless(program, server, said or f"it ended with {error.completed.returncode}") from None
    except FileNotFoundError:
        raise _helpless(program, server, "it is not installed") from None
    except TimeoutError:
        raise _helpless(program, server, f"it did not end within {HELPER_SECONDS:g} seconds") from None
    except InvalidDocument:
        raise _helpless(program, server, "its answer is not what the protocol of helpers has") from None
    if answer.name == auth.TOKEN_USERNAME:
        return Credentials(identity_token=answer.secret)
    known = answer.name or answer.secret
    return Credentials(username=answer.name, password=answer.secret) if known else None


def _helpless(program: str, server: str, why: str) -> RegistryError:
    return RegistryError(
        f"The credential helper {program} did not tell who we are to {server}: {why}.",
        next_step="Put it right, or take it out of docker's config.json and log in with `docker login`.",
    )

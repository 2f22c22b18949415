"""Registry credentials from the Docker configuration or a credential helper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from docker import auth
from docker.errors import DockerException
from pydantic import Field, StringConstraints

from tfimg.core.documents import Document, InvalidDocument, parse_document, parse_object, validate
from tfimg.core.errors import FileError, RegistryError
from tfimg.core.process import CommandFailed
from tfimg.registry.reference import DOCKER_HUB

HELPER_SECONDS = 60.0
"""Timeout of a helper, which may ask a cloud's server, or a user who is not there."""

NOT_FOUND = "credentials not found in native keychain"
"""Output of a helper without credentials (docker-credential-helpers, `credentials/error.go`)."""

HelperName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")]
"""Name of a credential helper: the program is `docker-credential-NAME`, on the PATH."""


class Login(Document):
    """What `docker login` leaves about one registry: a password, base64 of NAME:PASSWORD, or a token."""

    auth: str | None = None
    identitytoken: str | None = None


class DockerConfig(Document):
    """The fields of Docker's config.json about credentials (docker/cli, cli/config/types). `auths` are of `Login`."""

    auths: dict[str, Any] | None = None
    store: HelperName | None = Field(default=None, alias="credsStore")
    helpers: dict[str, HelperName] | None = Field(default=None, alias="credHelpers")


class _HelperOutput(Document):
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
    """Return the path of Docker's configuration."""
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
        config = validate(DockerConfig, parse_object(path.read_bytes()))
        logins = {host: validate(Login, entry) for host, entry in (config.auths or {}).items()}
        entries = {host: login.model_dump(exclude_none=True) for host, login in logins.items()}
        auths = auth.AuthConfig.parse_auth(entries, raise_on_error=True)
        return auth.AuthConfig({"auths": auths, "credsStore": config.store, "credHelpers": config.helpers or {}})
    except FileNotFoundError:
        return auth.AuthConfig({})
    except (ValueError, DockerException) as error:
        raise FileError(
            f"{path} is not a valid Docker configuration: {error}.",
            next_step="Correct it, or move it away and log in again with `docker login`.",
        ) from None


def _run_helper(helper: str, server: str, run: RunHelper) -> Credentials | None:
    program = f"docker-credential-{helper}"
    try:
        output = parse_document(_HelperOutput, run([program, "get"], server.encode()).encode())
    except CommandFailed as error:
        printed = f"{error.stdout}{error.stderr}".strip()
        if NOT_FOUND in printed:
            return None
        problem = printed or f"it ended with {error.returncode}"
    except FileNotFoundError:
        problem = "it is not installed"
    except TimeoutError:
        problem = f"it did not end within {HELPER_SECONDS:g} seconds"
    except InvalidDocument:
        problem = "its output does not follow the protocol of credential helpers"
    else:
        if output.name == auth.TOKEN_USERNAME:
            return Credentials(identity_token=output.secret)
        return Credentials(username=output.name, password=output.secret) if output.name or output.secret else None
    raise RegistryError(
        f"The credential helper {program} returned no credentials for {server}: {problem}.",
        next_step="Repair it, or remove it from Docker's config.json and log in with `docker login`.",
    )

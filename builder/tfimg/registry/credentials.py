"""Who we are to a registry: what `docker login` left, or what a credential helper tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker import auth
from docker.errors import DockerException

from tfimg.errors import FileError, RegistryRefused
from tfimg.process import CommandFailed, Completed
from tfimg.registry.reference import HUB

HELPER_SECONDS = 60.0
"""A helper may ask a cloud's server. One that asks a person, where nobody sits, would never end."""

NOT_FOUND = "credentials not found in native keychain"
"""What a helper prints when it knows none (docker-credential-helpers, `credentials/error.go`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """A name with its password, or a token that a token server changes for another one (`identity_token`)."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


RunHelper = Callable[[list[str], bytes], Completed]
"""Starts a program with what it reads; raises as `tfimg.process.run` does."""


def config_file(environ: Mapping[str, str]) -> Path:
    """Where `docker login` keeps what it knows."""
    folder = environ.get("DOCKER_CONFIG")
    return Path(folder or Path(environ.get("HOME", "/"), ".docker")) / "config.json"


def find_credentials(host: str, config: Path, run: RunHelper) -> Credentials | None:
    """The credentials for a registry, or None where there are none.

    Raises `FileError` for a file that cannot be understood and `RegistryRefused` for a helper that does not help.
    """
    known = _read(config)
    if helper := known.get_credential_store(host):
        # The hub is known by an old address there, as the docker package has it for its own calls.
        told = _ask(helper, auth.INDEX_URL if host == HUB else host, run)
        if told is not None:
            return told
    # Without helpers: the docker package would start them, and wait for them without end.
    entry = auth.AuthConfig({"auths": known.auths}).resolve_authconfig(host)
    if not entry:
        return None
    return Credentials(
        username=entry.get("username", ""), password=entry.get("password", ""),
        identity_token=entry.get("IdentityToken", ""),
    )  # fmt: skip


def _read(config: Path) -> auth.AuthConfig:
    try:
        document = json.loads(config.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise ValueError("it holds no object")
        return auth.load_config(config_dict=document)
    except FileNotFoundError:
        return auth.AuthConfig({})
    except (ValueError, AttributeError, TypeError, DockerException) as error:
        raise FileError(
            f"{config} cannot be understood: {error}.",
            next_step="Correct it, or move it away and log in again with `docker login`.",
        ) from None


def _ask(helper: str, server: str, run: RunHelper) -> Credentials | None:
    program = f"docker-credential-{helper}"
    try:
        told: dict[str, Any] = json.loads(run([program, "get"], server.encode()).stdout)
        name, secret = str(told["Username"]), str(told["Secret"])
    except CommandFailed as error:
        said = f"{error.completed.stdout}{error.completed.stderr}".strip()
        if NOT_FOUND in said:
            return None
        raise _helpless(program, server, said or f"it ended with {error.completed.returncode}") from None
    except FileNotFoundError:
        raise _helpless(program, server, "it is not installed") from None
    except TimeoutError:
        raise _helpless(program, server, f"it did not end within {HELPER_SECONDS:g} seconds") from None
    except (ValueError, KeyError, TypeError):
        raise _helpless(program, server, "its answer is not what the protocol of helpers has") from None
    if name == auth.TOKEN_USERNAME:
        return Credentials(identity_token=secret)
    return Credentials(username=name, password=secret) if name or secret else None


def _helpless(program: str, server: str, why: str) -> RegistryRefused:
    return RegistryRefused(
        f"The credential helper {program} did not tell who we are to {server}: {why}.",
        next_step="Put it right, or take it out of docker's config.json and log in with `docker login`.",
    )

"""A builder of buildx by its name → what it is, and whether it answers.

Each docker context is a builder too: one whose driver is `docker` builds inside an engine, and that engine has the
image at the end. Any other (docker-container, remote, kubernetes) builds for an engine that loads the image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfimg.core.errors import EngineUnavailable, UsageError
from tfimg.core.process import CommandFailed, run

ANSWER_SECONDS = 60.0
"""How long a builder may take to say what it is. Buildx itself gives a `remote` one 20 s to be connected to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Builder:
    """A builder. `endpoint` is a docker context where the driver is `docker`; `problem` is what buildx says of it."""

    name: str
    driver: str
    endpoint: str
    problem: str | None

    @property
    def is_engine(self) -> bool:
        """Does it build inside an engine, which has the image at the end?"""
        return self.driver == "docker"


def read_builder(text: str) -> Builder:
    """What `docker buildx inspect` printed."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        # Of its nodes, the first is told first; a problem is told where it is.
        if colon and key and not key.startswith(" "):
            fields.setdefault(key, value.strip())
    return Builder(
        name=fields.get("Name", ""),
        driver=fields.get("Driver", ""),
        endpoint=fields.get("Endpoint", ""),
        problem=fields.get("Error"),
    )


def find_builder(name: str, environ: Mapping[str, str], *, seconds: float = ANSWER_SECONDS) -> Builder:
    """The builder of a name. Raises `UsageError` where there is none, `EngineUnavailable` where it does not answer."""
    try:
        found = read_builder(_inspect(name, environ, seconds))
        if found.driver == "remote" and not found.problem:
            # Buildx connects when it is told to, and a remote one is started by nobody.
            _inspect(name, environ, seconds, "--bootstrap")
    except CommandFailed as failed:
        said = failed.completed.stderr.strip()
        if "no builder" in said:
            raise UsageError(
                f"--builder {name}: buildx has no builder and docker no context of that name.",
                next_step="`docker buildx ls` shows all; `docker context create` and `docker buildx create` make one.",
            ) from None
        raise gone(name, said.splitlines()[-1] if said else "it does not answer") from None
    except TimeoutError:
        raise gone(name, f"no answer within {seconds:g} s") from None
    if found.problem or not found.driver:
        raise gone(name, found.problem or "it does not say what it is")
    return found


def _inspect(name: str, environ: Mapping[str, str], seconds: float, *options: str) -> str:
    return run(["docker", "buildx", "inspect", *options, "--", name], env=environ, timeout=seconds).stdout


def gone(name: str, why: str) -> EngineUnavailable:
    """The error about a builder that does not answer."""
    return EngineUnavailable(
        f"The builder {name} does not answer: {why.removeprefix('ERROR: ').rstrip('.')}.",
        next_step=f"Start it, or correct its address (`docker buildx inspect {name}` shows it); or name another "
        "--builder, or none.",
    )


def context_environment(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which docker, buildx and its API client go to the engine of a docker context.

    Raises `UsageError` where docker has no such context.
    """
    try:
        (described,) = json.loads(run(["docker", "context", "inspect", "--", name], env=environ).stdout)
    except CommandFailed as failed:
        raise UsageError(
            f"docker has no context {name}: {failed.completed.stderr.strip()}",
            next_step="`docker context ls` shows all.",
        ) from None
    return read_context(described, environ)


def read_context(described: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """What `docker context inspect` says of one → its environment: address, and certificates where it has some."""
    endpoint = described["Endpoints"]["docker"]
    # Those of the environment belong to the engine at hand.
    kept = {name: value for name, value in environ.items() if not name.startswith(("DOCKER_TLS", "DOCKER_CERT"))}
    kept |= {"DOCKER_HOST": endpoint["Host"]}
    if not described.get("TLSMaterial"):
        return kept
    verified = {} if endpoint.get("SkipTLSVerify") else {"DOCKER_TLS_VERIFY": "1"}
    folder = Path(described["Storage"]["TLSPath"], "docker")
    return {**kept, "DOCKER_TLS": "1", **verified, "DOCKER_CERT_PATH": str(folder)}

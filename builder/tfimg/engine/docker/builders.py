"""Builders of buildx, by name.

Each docker context is a builder too: one whose driver is `docker` builds inside an engine, which has the image at the
end. Any other (docker-container, remote, kubernetes) builds for an engine that loads the image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfimg.core.errors import EngineUnavailable, UsageError
from tfimg.core.process import CommandFailed, last_line, run

ANSWER_SECONDS = 60.0
"""Limit for a builder's answer. Buildx itself gives a `remote` one 20 s to be connected to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildxBuilder:
    """A builder. `endpoint` is a docker context where the driver is `docker`; `problem` is buildx's message."""

    driver: str
    endpoint: str
    problem: str | None


def parse_builder(text: str) -> BuildxBuilder:
    """Parse the output of `docker buildx inspect`."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        # The first of several nodes counts; a problem may be in any.
        if colon and key and not key.startswith(" "):
            fields.setdefault(key, value.strip())
    return BuildxBuilder(
        driver=fields.get("Driver", ""),
        endpoint=fields.get("Endpoint", ""),
        problem=fields.get("Error"),
    )


def find_builder(name: str, environ: Mapping[str, str], *, seconds: float = ANSWER_SECONDS) -> BuildxBuilder:
    """Return the builder of a name. Raises `UsageError` if it is unknown, `EngineUnavailable` if it does not answer."""
    try:
        builder = parse_builder(_inspect(name, environ, seconds))
        if builder.driver == "remote" and not builder.problem:
            # Only a bootstrap connects to a remote builder.
            _inspect(name, environ, seconds, "--bootstrap")
    except CommandFailed as failed:
        if "no builder" in failed.stderr:
            raise UsageError(
                f"--builder {name}: buildx has no builder and docker no context of that name.",
                next_step="`docker buildx ls` shows all; `docker context create` and `docker buildx create` make one.",
            ) from None
        raise _unavailable(name, last_line(failed.stderr) or "it does not answer") from None
    except TimeoutError:
        raise _unavailable(name, f"no answer within {seconds:g} s") from None
    if builder.problem or not builder.driver:
        raise _unavailable(name, builder.problem or "`docker buildx inspect` shows no driver")
    return builder


def _inspect(name: str, environ: Mapping[str, str], seconds: float, *options: str) -> str:
    return run(["docker", "buildx", "inspect", *options, "--", name], env=environ, timeout=seconds)


def _unavailable(name: str, reason: str) -> EngineUnavailable:
    # Docker's own message is a question: "Is the docker daemon running?"
    reason = reason.removeprefix("ERROR: ").rstrip(".")
    return EngineUnavailable(
        f"The builder {name} does not answer: {reason}{'' if reason.endswith('?') else '.'}",
        next_step=f"Start it, or correct its address (`docker buildx inspect {name}`); or name another --builder.",
    )


def context_environment(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the engine of a docker context. Raises `UsageError` if it is unknown."""
    try:
        (description,) = json.loads(run(["docker", "context", "inspect", "--", name], env=environ))
    except CommandFailed as failed:
        raise UsageError(
            f"docker has no context {name}: {failed.stderr.strip()}",
            next_step="`docker context ls` shows all.",
        ) from None
    return parse_context(description, environ)


def parse_context(description: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a context, from `docker context inspect`: its address and certificates."""
    endpoint = description["Endpoints"]["docker"]
    # Certificates of the environment belong to the default engine.
    env = {name: value for name, value in environ.items() if not name.startswith(("DOCKER_TLS", "DOCKER_CERT"))}
    env["DOCKER_HOST"] = endpoint["Host"]
    if description.get("TLSMaterial"):
        env["DOCKER_TLS"] = "1"
        env["DOCKER_CERT_PATH"] = str(Path(description["Storage"]["TLSPath"], "docker"))
        if not endpoint.get("SkipTLSVerify"):
            env["DOCKER_TLS_VERIFY"] = "1"
    return env

"""What an engine says while it pushes or pulls: progress, a digest, or in the middle of its stream that it failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import (
    DiskSpaceError,
    EngineError,
    ImageMissing,
    NetworkError,
    NotInRegistry,
    RegistryError,
    TamperedError,
    TfimgError,
)
from tfimg.engine.protocol import ProgressEvent

Deed = Literal["push", "pull"]

ENDED = frozenset({"Pushed", "Layer already exists", "Already exists", "Pull complete", "Download complete"})
"""What an engine says of a layer that it is done with."""

DIGEST = re.compile(r"\bdigest: (sha256:[0-9a-f]{64})\b", re.IGNORECASE)
"""In the last line of a push, `TAG: digest: sha256:… size: 527`, and of a pull, `Digest: sha256:…`."""

Told = Callable[[ProgressEvent], None]


def transferred(deed: Deed, name: str, lines: Iterable[Mapping[str, Any]], on_event: Told) -> str:
    """The digest of what was pushed or pulled; `lines` are read to their end.

    The engine answers 200 before it begins, so that a failure is but a line of the stream, and the docker package
    raises nothing (docker/docker-py issue 3161). Raises `RegistryError`, `NotInRegistry`, `NetworkError`,
    `DiskSpaceError` or `EngineError`; a stream without a digest is one of a push that did not come to its end.
    """
    found = None
    totals: dict[str, int] = {}
    for line in lines:
        raise_if_cancelled()
        if said := line.get("error") or (line.get("errorDetail") or {}).get("message"):
            raise failure(deed, name, str(said))
        if layer := line.get("id"):
            _tell(deed, str(layer), line, totals, on_event)
        aux = line.get("aux") or {}
        found = aux.get("Digest") or _digest(str(line.get("status", ""))) or found
    if found is None:
        raise NetworkError(
            f"The engine did not say which digest the {deed} of {name} had: its answer ended too early.",
            next_step="Run it again: layers that are there are not sent twice.",
        )
    wanted = name.partition("@")[2]
    if wanted and found != wanted:
        raise TamperedError(
            f"{name} was pulled, and what came is {found}.",
            next_step="Do not run it, and tell the registry's owner.",
        )
    return str(found)


def _digest(status: str) -> str | None:
    found = DIGEST.search(status)
    return found[1] if found else None


def _tell(deed: Deed, layer: str, line: Mapping[str, Any], totals: dict[str, int], on_event: Told) -> None:
    """Bytes of a layer. An engine tells none of one that is done."""
    detail = line.get("progressDetail") or {}
    if detail.get("total"):
        totals[layer] = int(detail["total"])
        current = int(detail.get("current", 0))
    elif line.get("status") in ENDED and layer in totals:
        current = totals[layer]
    else:
        return
    on_event(ProgressEvent(step=deed, what=layer, current=current, total=totals[layer]))


LOGIN = "Log in with `docker login {host}`, and run it again."
LATER = "Run it again: layers that are there are not sent twice."

Sentence = tuple[type[TfimgError], str, str]

SIGNS: tuple[tuple[str, Sentence], ...] = (
    (
        r"does not exist locally|tag does not exist|No such image|reference does not exist",
        (ImageMissing, "The engine has no image {name}", "Give it that name first."),
    ),
    (
        r"content digest \S+: not found",
        (EngineError, "The engine has not all of {name}", "Build it again, or pull it for every platform."),
    ),
    (
        r"x509|certificate|HTTP response to HTTPS client|tls: ",
        (
            NetworkError,
            "The engine does not trust the registry {host}",
            "Put its authority where Docker looks: /etc/docker/certs.d/{host}/ca.crt; or name a registry without TLS "
            "in the engine's insecure-registries.",
        ),
    ),
    (
        r"no basic auth credentials|unauthorized|authentication required|incorrect username|\b401\b",
        (RegistryError, "The registry {host} does not take the engine's credentials", LOGIN),
    ),
    (r"toomanyrequests|\b429\b", (NetworkError, "The registry {host} asks for fewer requests", "Run it again later.")),
    (
        r"quota|insufficient storage|\b507\b",
        (RegistryError, "The registry {host} is full", "Let its owner make room, and run it again."),
    ),
    (
        r"denied|forbidden|insufficient_scope|\b403\b",
        (RegistryError, "The registry {host} does not let the engine {deed} {name}", LOGIN),
    ),
    (
        # Somebody else sends the same blob: see `tfimg.registry.error_mapping.UNREADY`.
        r"manifest[ _]blob[ _]unknown",
        (NetworkError, "The registry {host} does not have all of {name} yet", LATER),
    ),
    (
        r"manifest unknown|name unknown|(resolve reference|repository) .*not found|not found: not found|\b404\b",
        (NotInRegistry, "The registry {host} does not have {name}", "Check the name."),
    ),
    (
        r"\b405\b|unsupported|method not allowed",
        (RegistryError, "The registry {host} is read-only", "Wait until its owner opens it again."),
    ),
    (
        r"\b5\d\d\b|dial |lookup |EOF|reset by peer|broken pipe|timed? ?out|deadline|unreachable|refused|proxyconnect"
        r"|failed to do request|closed network connection|unknown error|failed to copy",
        (NetworkError, "The {deed} of {name} did not come through", LATER),
    ),
)
"""What engines say of a push or pull that failed → what that is. The first that is found counts: an engine quotes the
registry's own words beside its status."""


def failure(deed: Deed, name: str, said: str) -> TfimgError:
    """What the engine said → our error."""
    host, slash, _ = name.partition("/")
    words = {
        "deed": deed,
        "name": name,
        "host": host if slash and re.search("[.:]|^localhost$", host) else "docker.io",
    }
    if "no space left" in said:
        return DiskSpaceError(
            f"The {deed} of {name} found no space left: {said}.",
            next_step="Free some space where the engine keeps its images; of a push, also in the registry.",
        )
    for signs, (error, what, step) in SIGNS:
        if re.search(signs, said, re.IGNORECASE):
            return error(f"{what.format(**words)}: {said.rstrip('.')}.", next_step=step.format(**words))
    return RegistryError(
        f"The {deed} of {name} failed: {said.rstrip('.')}.", next_step="The registry's own log may say more."
    )

"""Pushes and pulls of a Docker engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from docker.credentials import StoreError
from docker.errors import APIError, NotFound

from tfimg.core import errors
from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.events import ProgressEvent
from tfimg.engine.docker.connection import DockerConnection, find_error
from tfimg.engine.protocol import OnProgress

Action = Literal["push", "pull"]

COMPLETE = frozenset({"Pushed", "Layer already exists", "Already exists", "Pull complete", "Download complete"})
"""States of a layer that is complete."""

DIGEST = re.compile(r"\bdigest: (sha256:[0-9a-f]{64})\b", re.IGNORECASE)
"""In the last line of a push, `TAG: digest: sha256:… size: 527`, and of a pull, `Digest: sha256:…`."""

LOG_IN = "Log in with `docker login {host}`, and run it again."
RETRY = "Run it again: layers that are there are not sent twice."
TRUST = (
    "Put its authority where the engine looks: /etc/docker/certs.d/{host}/ca.crt, of Podman "
    "/etc/containers/certs.d/{host}/ca.crt; or name a registry without TLS in Docker's insecure-registries, or with "
    "`insecure = true` in Podman's registries.conf."
)

ERRORS: tuple[tuple[str, type[errors.TfimgError], str, str], ...] = (
    (r"does not exist locally|tag does not exist|No such image|reference does not exist",
     errors.ImageMissing, "The engine has no image {name}", "Give it that name first."),
    (r"content digest \S+: not found",
     errors.EngineError, "The engine has only a part of {name}", "Build it again, or pull it for every platform."),
    (r"x509|certificate|HTTP response to HTTPS client|tls: ",
     errors.NetworkError, "The engine does not trust the registry {host}", TRUST),
    (r"no basic auth credentials|unauthorized|authentication required|incorrect username|\b401\b",
     errors.RegistryError, "The registry {host} does not accept the engine's credentials", LOG_IN),
    (r"toomanyrequests|\b429\b",
     errors.NetworkError, "The registry {host} limits the rate of requests", "Run it again later."),
    (r"quota|insufficient storage|\b507\b",
     errors.RegistryError, "The registry {host} is full", "Ask its owner for space, and run it again."),
    (r"denied|forbidden|insufficient_scope|\b403\b",
     errors.RegistryError, "The registry {host} does not let the engine {action} {name}", LOG_IN),
    # Another client is uploading the same blob.
    (r"manifest[ _]blob[ _]unknown",
     errors.NetworkError, "The registry {host} does not have all of {name} yet", RETRY),
    (r"manifest unknown|name unknown|(resolve reference|repository) .*not found|not found: not found|\b404\b",
     errors.NotInRegistry, "The registry {host} does not have {name}", "Check the name."),
    (r"\b405\b|unsupported|method not allowed",
     errors.RegistryError, "The registry {host} is read-only", "Wait until its owner opens it again."),
    (r"\b5\d\d\b|dial |lookup |EOF|reset by peer|broken pipe|timed? ?out|deadline|unreachable|refused|proxyconnect"
     r"|failed to do request|closed network connection|unknown error|failed to copy",
     errors.NetworkError, "The {action} of {name} failed in the network", RETRY),
)  # fmt: skip
"""Pattern of an engine's message → error, its text, its next step. The first match counts: an engine quotes the
registry's own message beside its status."""


class DockerTransfer(DockerConnection):
    """Pushes and pulls of `Engine`."""

    def resolve_digest(self, reference: str) -> str:
        """See `Engine`."""
        with self.errors():
            try:
                return str(self.client.images.get_registry_data(reference).id)
            except APIError as error:
                raise errors.NetworkError(
                    f"Cannot resolve {reference}: {error.explanation or error}.",
                    next_step="Check its name and the network, or name a mirror with --mirror.",
                ) from None

    def push(self, name: str, on_event: OnProgress) -> str:
        """See `Engine`."""
        repository, _, tag = name.rpartition(":")
        return self._transfer("push", name, on_event, {"repository": repository, "tag": tag})

    def pull(self, name: str, on_event: OnProgress) -> str:
        """See `Engine`."""
        return self._transfer("pull", name, on_event, {"repository": name})

    def _transfer(self, action: Action, name: str, on_event: OnProgress, arguments: Mapping[str, str]) -> str:
        with self.errors():
            api = self.client.api
            # The user may have logged in since the client read it.
            folder = self.environ.get("DOCKER_CONFIG") or Path(self.environ.get("HOME", "/"), ".docker")
            api.reload_config(dockercfg_path=str(Path(folder, "config.json")))
            try:
                with closing(getattr(api, action)(**arguments, stream=True, decode=True)) as lines:
                    return follow_transfer(action, name, lines, on_event, find_digest=self._find_pulled)
            except APIError as error:
                raise transfer_error(action, name, str(error.explanation or error)) from None
            except StoreError as error:
                raise errors.RegistryError(
                    f"A credential helper returned no credentials for the registry of {name}: {error}.",
                    next_step="Repair it, or remove it from docker's config.json and log in with `docker login`.",
                ) from None

    def _find_pulled(self, name: str, image_id: str) -> str | None:
        """Return the digest that a pulled name has; None unless it names the image of the stream's last line."""
        try:
            image = self.client.images.get(name)
        except NotFound:
            return None
        if not image_id or not str(image.id).removeprefix("sha256:").startswith(image_id):
            return None
        digests = [one.partition("@")[2] for one in image.attrs.get("RepoDigests") or ()]
        expected = name.partition("@")[2]
        return expected if expected in digests else next(iter(digests), None)


def follow_transfer(
    action: Action,
    name: str,
    lines: Iterable[Mapping[str, Any]],
    on_event: OnProgress,
    *,
    find_digest: Callable[[str, str], str | None] = lambda *_: None,
) -> str:
    """Read an engine's stream about a push or pull to its end, and return the digest.

    A failure is a line of the stream, and the docker package raises nothing (docker/docker-py issue 3161). A stream
    without a digest was interrupted, or is Podman's, whose last line has the image's id: `find_digest` returns the
    digest of a name with that id.
    """
    digest, last = None, ""
    totals: dict[str, int] = {}
    for line in lines:
        raise_if_cancelled()
        if error := find_error(line):
            raise transfer_error(action, name, error)
        if progress := _progress(action, line, totals):
            on_event(progress)
        in_status = DIGEST.search(str(line.get("status", "")))
        digest = (line.get("aux") or {}).get("Digest") or (in_status and in_status[1]) or digest
        last = str(line.get("id") or "") if line.get("status") == "Download complete" else ""
    if digest is None and last:
        digest = find_digest(name, last)
    if digest is None:
        raise errors.NetworkError(
            f"The engine's answer ended before it reported the digest of the {action} of {name}.", next_step=RETRY
        )
    expected = name.partition("@")[2]
    if expected and digest != expected:
        raise errors.TamperedError(
            f"The pull of {name} returned another digest: {digest}.",
            next_step="Do not run it, and report it to the registry's owner.",
        )
    return str(digest)


def _progress(action: Action, line: Mapping[str, Any], totals: dict[str, int]) -> ProgressEvent | None:
    """Return the bytes of a layer. An engine reports none of a complete layer."""
    layer, detail = str(line.get("id") or ""), line.get("progressDetail") or {}
    if layer and detail.get("total"):
        totals[layer] = int(detail["total"])
        return ProgressEvent(step=action, what=layer, current=int(detail.get("current", 0)), total=totals[layer])
    if layer in totals and line.get("status") in COMPLETE:
        return ProgressEvent(step=action, what=layer, current=totals[layer], total=totals[layer])
    return None


def transfer_error(action: Action, name: str, message: str) -> errors.TfimgError:
    """Map an engine's message to an error."""
    host, slash, _ = name.partition("/")
    host = host if slash and re.search("[.:]|^localhost$", host) else "docker.io"
    if "no space left" in message:
        return errors.DiskSpaceError(
            f"No space left during the {action} of {name}: {message}.",
            next_step="Free some space on the engine's disk; for a push, also in the registry.",
        )
    for pattern, error, text, next_step in ERRORS:
        if re.search(pattern, message, re.IGNORECASE):
            text = text.format(action=action, name=name, host=host)
            return error(f"{text}: {message.rstrip('.')}.", next_step=next_step.format(host=host))
    return errors.RegistryError(
        f"The {action} of {name} failed: {message.rstrip('.')}.", next_step="The registry's own log may say more."
    )

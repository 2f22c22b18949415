"""Images of a Docker engine."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from docker.errors import APIError, ImageNotFound, NotFound
from docker.models.images import Image
from tenacity import wait_random_exponential

from tfimg.core.errors import DiskSpaceError, EngineError
from tfimg.core.retry import RetryPolicy, TransientError
from tfimg.engine.docker.connection import DockerConnection, find_error
from tfimg.engine.docker.export import classic_layers, containerd_layers, exported_layers
from tfimg.engine.protocol import NO_IMAGES, LocalImage, StoredImage, StoredLayer

CONCURRENT_REQUESTS = 8
"""On two busy cores, 105 images took 2.3 s one after the other, 1.6 s so."""

BEING_REMOVED = re.compile(
    r"\bblob sha256:[0-9a-f]{64} expected at .*not found|\bcontent digest sha256:[0-9a-f]{64}: not found"
)
"""Answers of the containerd store (Docker 26.1 and 28.2), about an image that is being removed: the name is still
there, and its manifest or configuration is gone."""

LISTING = RetryPolicy(attempts=10, backoff=wait_random_exponential(multiplier=0.02, max=0.5))
"""Docker 28.2 refuses the whole list while one image of it is being removed: 14 of 180 lists beside three loops that
each built and removed an image."""

NOT_UNPACKED = re.compile(r"\bsnapshot sha256:[0-9a-f]{64} does not exist")
"""Answer of the containerd store (Docker 26.1) about an image that it has packed only."""

RUNTIME_FIELDS = (
    *("User", "Env", "Entrypoint", "Cmd", "WorkingDir", "Shell"),
    *("ExposedPorts", "Volumes", "StopSignal", "Healthcheck"),
)
"""Fields of the configuration that decide how a container starts (OCI image specification, config.md). Labels decide
nothing, and engines disagree about which empty fields they report."""


class DockerImages(DockerConnection):
    """Images of `Engine`."""

    def list_images(self, known: Mapping[str, LocalImage] = NO_IMAGES) -> Sequence[LocalImage]:
        """See `Engine`. The list has no layers, so each image is inspected, several at once."""
        listed = LISTING.retry_transient(self._listed_images)
        with ThreadPoolExecutor(CONCURRENT_REQUESTS) as pool:
            return [image for image in pool.map(partial(self._local_image, known), listed) if image]

    def _listed_images(self) -> list[dict[str, Any]]:
        try:
            with self.errors():
                listed: list[dict[str, Any]] = self.client.api.images()
        except EngineError as error:
            if BEING_REMOVED.search(str(error)):
                raise TransientError(error) from None
            raise
        return listed

    def _local_image(self, known: Mapping[str, LocalImage], listed: Mapping[str, Any]) -> LocalImage | None:
        names = tuple(name for name in listed["RepoTags"] or () if name != "<none>:<none>")
        if listed["Id"] in known:
            return replace(known[listed["Id"]], names=names)
        image = self._find(listed["Id"])
        if image is None:  # removed after it was listed
            return None
        # The containerd store lists an image with its compressed and its unpacked layers; an inspection reports the
        # compressed ones alone. The classic store reports the same number twice.
        total, inspected = int(listed["Size"]), int(image.attrs["Size"])
        compressed = total > inspected
        return LocalImage(
            digest=listed["Id"],
            names=names,
            labels=dict(listed["Labels"] or {}),
            content=content_digest(image.attrs),
            unpacked_bytes=total - inspected if compressed else total,
            compressed_bytes=inspected if compressed else None,
            created=int(listed.get("Created") or 0),
        )

    def read_image(self, name: str) -> StoredImage:
        """See `Engine`."""
        with self.errors():
            image = self.client.images.get(name)
            steps = self._history(name)
            return StoredImage(
                digest=self._digest(image),
                layers=self._layers_on_disk(image) or exported_layers(self.client.api.get_image(name)),
                unpacked_bytes=sum(int(step["Size"]) for step in steps),
                labels=dict(image.labels),
                content=content_digest(image.attrs),
                config=image.attrs.get("Config") or {},
            )

    def _history(self, name: str) -> list[dict[str, Any]]:
        """Return the steps of an image with the sizes of their files.

        The containerd store unpacks an image for another platform only for a container, and knows no sizes before.
        """
        try:
            steps: list[dict[str, Any]] = self.client.api.history(name)  # type: ignore[no-untyped-call]
        except APIError as error:
            if not NOT_UNPACKED.search(str(error.explanation)):
                raise
            self.client.containers.create(name, ["true"]).remove(v=True)
            steps = self.client.api.history(name)  # type: ignore[no-untyped-call]
        return steps

    def _layers_on_disk(self, image: Image) -> tuple[StoredLayer, ...] | None:
        """Return the layers from the files of an engine on this machine, where they are readable."""
        if not self.is_local:
            return None
        info = self.info()
        root = Path(info["DockerRootDir"])
        # containerd's root is the engine's own, or the system's.
        found = containerd_layers(str(image.id), (root / "containerd/daemon", Path("/var/lib/containerd")))
        store = root / "image" / info["Driver"] / "layerdb"
        return found or classic_layers(image.attrs["RootFS"]["Layers"], store)

    def find_digest(self, name: str) -> str | None:
        """See `Engine`."""
        image = self._find(name)
        return self._digest(image) if image else None

    def _digest(self, image: Image) -> str:
        """Return the digest by which the engine identifies an image; of Podman's, that of the manifest."""
        digests = {name.partition("@")[2] for name in image.attrs.get("RepoDigests") or ()}
        # Podman keeps the manifest of each image, and identifies it by its configuration. Pulled with two
        # compressions, an image has two manifests.
        return digests.pop() if len(digests) == 1 and self.podman else str(image.id)

    def find_labels(self, name: str) -> Mapping[str, str] | None:
        """See `Engine`."""
        image = self._find(name)
        return dict(image.labels) if image else None

    def _find(self, name: str) -> Image | None:
        with self.errors():
            try:
                return self.client.images.get(name)
            except APIError as error:
                if isinstance(error, ImageNotFound) or BEING_REMOVED.search(str(error.explanation)):
                    return None
                raise

    def export(self, name: str) -> Iterator[bytes]:
        """See `Engine`."""
        with self.errors():
            return cast("Iterator[bytes]", self.client.api.get_image(name))

    def load(self, pieces: Iterator[bytes]) -> None:
        """See `Engine`. The engine answers 200 before it fails."""
        with self.errors():
            for line in self.client.api.load_image(pieces, quiet=True):  # type: ignore[no-untyped-call]
                error = find_error(line)
                if error and "no space left on device" in error:
                    raise DiskSpaceError(
                        f"The disk of the engine at {self.host} is full: {error}.",
                        next_step="Free some space there, or `docker image prune`; then run it again.",
                    )
                if error:
                    raise EngineError(
                        f"The engine at {self.host} did not load the image: {error}.",
                        next_step="Its own log may say more; an engine before Docker 23 does not support zstd layers.",
                    )

    def tag(self, name: str, references: Sequence[str]) -> None:
        """See `Engine`."""
        with self.errors():
            image = self.client.images.get(name)
            for reference in references:
                repository, _, tag = reference.rpartition(":")
                image.tag(repository, tag)

    def remove(self, name: str) -> None:
        """See `Engine`."""
        with self.errors(), suppress(ImageNotFound):
            self.client.images.remove(name)

    def remove_with_containers(self, name: str) -> None:
        """See `Engine`. The engine's own filter would find containers of other names of the same image too."""
        with self.errors():
            for container in self.client.containers.list(all=True, ignore_removed=True):
                if container.attrs["Config"]["Image"] == name:
                    with suppress(NotFound):
                        container.remove(force=True, v=True)
        self.remove(name)


def content_digest(attrs: Mapping[str, Any]) -> str:
    """Return `sha256:…` of the uncompressed layers and the runtime configuration, from an inspection."""
    config = attrs.get("Config") or {}
    content = {
        "layers": attrs["RootFS"].get("Layers") or [],
        "platform": [attrs.get("Os"), attrs.get("Architecture")],
        **{name: config[name] for name in RUNTIME_FIELDS if config.get(name)},
    }
    return f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}"

"""Make the layers of one group of wheels: from the store, or packed from its wheels."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Literal

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import InvalidWheel
from tfimg.layers.blob import Blob, BlobWriter
from tfimg.layers.fetch import WheelSource, fetch_wheel, remove_downloads
from tfimg.layers.store import LayerStore
from tfimg.layers.wheel import list_record_rows, unpack_wheel
from tfimg.recipe.layout import Compression, WheelGroup, WheelLayer
from tfimg.recipe.lock import LockedPackage, read_packages

LayerState = Literal["started", "done", "cached", "damaged"]
"""`damaged`: a file of the layer in the store is damaged, and the layer is made again."""

OnLayerEvent = Callable[[str, LayerState, float], None]
"""Receives a layer's name, its state and the seconds that making it took."""

LAYER_FORMAT = "2"
"""Version of the layers that this package makes: raised when the same wheels would give other bytes."""


def compute_key(layer: WheelLayer, compression: Compression) -> str:
    """Return the key of a layer in the store, from all that its bytes depend on."""
    words = [LAYER_FORMAT, compression, str(layer.is_shared), *layer.group.shared_files]
    words += [f"without {pattern}" for pattern in layer.group.removed]
    words += [package.sha256 for package in read_packages({layer.group.name: layer.group.requirements})]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerResult:
    """A layer of an image; `seconds` is what making it took, None if the store had it."""

    layer: WheelLayer
    blob: Blob
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class GroupMaker:
    """Makes the layers of groups of wheels of one lock.

    `fresh` ignores the layers in the store; `folder` is for the wheels of this run, and its parent for those that
    builds share.
    """

    store: LayerStore
    compression: Compression
    fresh: bool
    source: WheelSource
    report: OnLayerEvent
    folder: Path
    downloads: Executor
    processors: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(os.cpu_count() or 1))

    def make(self, group: WheelGroup) -> list[LayerResult]:
        """Return the layers of a group.

        Another build that makes the same layers at the same time waits, and takes them from the store.
        """
        raise_if_cancelled()
        layers = group.layers
        keys = {layer: compute_key(layer, self.compression) for layer in layers}
        with self.store.lock(keys[layers[0]]):
            found = {layer: self._find(key, layer) for layer, key in keys.items()}
            blobs = {layer: blob for layer, blob in found.items() if blob}
            if len(blobs) == len(layers):
                return self._report_results(blobs, "cached", None)
            packages = read_packages({group.name: group.requirements})
            fetching = [
                self.downloads.submit(copy_context().run, self._fetch, package, layers[0]) for package in packages
            ]
            wheels = [job.result() for job in fetching]
            with self.processors:
                for layer in layers:
                    self.report(layer.name, "started", 0.0)
                begin = time.monotonic()
                try:
                    blobs = self._pack(group, keys, wheels)
                except InvalidWheel:  # it may be damaged: the next build fetches it again
                    remove_downloads(packages, self.folder.parent)
                    raise
            # Other builds take the finished layers from the store.
            remove_downloads(packages, self.folder.parent)
            return self._report_results(blobs, "done", time.monotonic() - begin)

    def _find(self, key: str, layer: WheelLayer) -> Blob | None:
        blob = None if self.fresh else self.store.find(key)
        if blob and not self.store.verify(blob):
            self.report(layer.name, "damaged", 0.0)
            return None
        return blob

    def _fetch(self, package: LockedPackage, layer: WheelLayer) -> Path:
        raise_if_cancelled()
        with self.store.lock(package.sha256):
            return fetch_wheel(
                package,
                self.folder,
                downloads=self.folder.parent,
                source=self.source,
                on_damaged=lambda: self.report(layer.name, "damaged", 0.0),
            )

    def _pack(
        self, group: WheelGroup, keys: Mapping[WheelLayer, str], wheels: Sequence[Path]
    ) -> dict[WheelLayer, Blob]:
        """Make the layers of a group, except those that another Python's wheels gave."""
        first = next(iter(keys))
        content_key = "" if group.is_shared or not group.shared_files else self._content_key(group, wheels)
        blobs = {first: blob} if content_key and (blob := self._find(content_key, first)) else {}
        with ExitStack() as stack:
            missing = [layer for layer in keys if layer not in blobs]
            writers = {layer.is_shared: stack.enter_context(self._new_layer(layer, blobs)) for layer in missing}
            for wheel in wheels:
                unpack_wheel(
                    wheel,
                    shared=group.shared_files,
                    removed=group.removed,
                    into=writers.get(True),
                    rest=writers.get(False),
                )
        for layer, key in keys.items():
            self.store.set_key(key, blobs[layer])
        if content_key:
            self.store.set_key(content_key, blobs[first])
        for wheel in wheels:
            wheel.unlink(missing_ok=True)
        return {layer: blobs[layer] for layer in keys}

    def _content_key(self, group: WheelGroup, wheels: Sequence[Path]) -> str:
        """Return the key of shared files: RECORD has the same hashes for every Python."""
        rows = [row for wheel in wheels for row in list_record_rows(wheel, group.shared_files)]
        return hashlib.sha256("\n".join([LAYER_FORMAT, self.compression, *group.removed, *rows]).encode()).hexdigest()

    @contextmanager
    def _new_layer(self, layer: WheelLayer, blobs: dict[WheelLayer, Blob]) -> Iterator[BlobWriter]:
        """Add the layer that the block writes to the store and to `blobs`."""
        path = self.store.folder / f"layer-{token_hex(8)}"
        try:
            with path.open("wb") as sink:
                yield (writer := BlobWriter(sink, self.compression))
                blobs[layer] = writer.close()
            self.store.add(blobs[layer], path)
        finally:
            path.unlink(missing_ok=True)

    def _report_results(
        self, blobs: Mapping[WheelLayer, Blob], state: LayerState, seconds: float | None
    ) -> list[LayerResult]:
        for layer in blobs:
            self.report(layer.name, state, seconds or 0.0)
        return [LayerResult(layer=layer, blob=blob, seconds=seconds) for layer, blob in blobs.items()]

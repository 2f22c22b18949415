"""Make the layers of a lock: fetch and pack in parallel what the store lacks."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Literal

from tfimg.core.cancellation import Cancellation, on_cancel, raise_if_cancelled
from tfimg.core.errors import Interrupted, InvalidWheel
from tfimg.layers.blob import Blob
from tfimg.layers.fetch import WheelSource, fetch_wheel, remove_download
from tfimg.layers.pack import Packer, compute_key, list_part_layers
from tfimg.layers.store import LayerStore
from tfimg.recipe.layout import Compression, LockPart, WheelLayer, list_wheel_layers, split_lock
from tfimg.recipe.lockfile import Lock, LockedPackage, read_packages

DOWNLOADS = 8  # wheels fetched at once

LARGEST_FIRST = ("tensorflow", "cudnn", "libtpu", "cublas", "solvers", "cuda", "packages")
"""Parts by size: what takes longest must not begin last."""

LayerState = Literal["started", "done", "cached", "damaged"]
"""`damaged`: a file of the layer in the store is damaged, and the layer is made again."""

OnLayerEvent = Callable[[str, LayerState, float], None]
"""Receives a layer's name, its state and the seconds that making it took."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerResult:
    """A layer of an image; `seconds` is what making it took, None if the store had it."""

    layer: WheelLayer
    blob: Blob
    seconds: float | None


def make_layers(
    lock: Lock,
    store: LayerStore,
    *,
    source: WheelSource,
    compression: Compression,
    on_event: OnLayerEvent,
    fresh: bool = False,
) -> tuple[LayerResult, ...]:
    """Return the layers of a lock, lowest first.

    Raises as `fetch_wheel`, and `InvalidWheel`. `fresh` ignores the layers in the store. `on_event` is called from
    several threads, one at a time.
    """
    store.prepare()
    event_lock, cancellation = threading.Lock(), Cancellation()

    def report(layer: str, state: LayerState, seconds: float) -> None:
        with event_lock:
            on_event(layer, state, seconds)

    packer = Packer(
        store=store, compression=compression, fresh=fresh, on_damaged=lambda layer: report(layer, "damaged", 0.0)
    )
    folder = store.folder / "wheels" / token_hex(8)
    parts = sorted(split_lock(lock), key=lambda part: LARGEST_FIRST.index(part.name))
    try:
        with (
            on_cancel(cancellation.cancel),
            cancellation.activate(),
            ThreadPoolExecutor(DOWNLOADS) as downloads,
            ThreadPoolExecutor(len(LARGEST_FIRST)) as makers,
        ):
            maker = _PartMaker(packer=packer, source=source, report=report, folder=folder, downloads=downloads)
            try:
                jobs = [makers.submit(copy_context().run, maker.make, part) for part in parts]
                wait(jobs, return_when=FIRST_EXCEPTION)
            finally:
                cancellation.cancel()  # before the pools wait for their threads
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise_if_cancelled()
    if errors := [error for job in jobs if (error := job.exception())]:
        raise next((error for error in errors if not isinstance(error, Interrupted)), errors[0])
    results = {result.layer: result for job in jobs for result in job.result()}
    if any(result.seconds is not None for result in results.values()):
        store.prune()
    return tuple(results[layer] for layer in list_wheel_layers(lock))


def write_stages(results: Sequence[LayerResult], store: LayerStore) -> dict[str, str]:
    """Return stages of the Dockerfile and the addresses of their layers for BuildKit."""
    filled = [result for result in results if result.blob.files]
    return {
        "wheels": store.write_stage([result.blob for result in filled]),
        "code": store.write_stage([result.blob for result in filled if not result.layer.is_shared]),
    }


@dataclass(frozen=True, kw_only=True)
class _PartMaker:
    """Makes the layers of parts of one lock; `folder` is for the wheels of this run."""

    packer: Packer
    source: WheelSource
    report: OnLayerEvent
    folder: Path
    downloads: ThreadPoolExecutor
    processors: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(os.cpu_count() or 1))

    def make(self, part: LockPart) -> list[LayerResult]:
        """Return the layers of a part, from the store or packed from its wheels.

        Another build that makes the same layers at the same time waits, and takes them from the store.
        """
        raise_if_cancelled()
        layers = list_part_layers(part)
        with self.packer.store.lock(compute_key(layers[0], self.packer.compression)):
            if blobs := self.packer.find(part):
                return self._finish(blobs, "cached", None)
            packages = read_packages({part.name: part.requirements})
            fetching = [
                self.downloads.submit(copy_context().run, self._fetch, package, layers[0].name) for package in packages
            ]
            wheels = [job.result() for job in fetching]
            with self.processors:
                return self._pack(part, packages, wheels)

    def _fetch(self, package: LockedPackage, layer: str) -> Path:
        raise_if_cancelled()
        with self.packer.store.lock(package.sha256):
            return fetch_wheel(
                package,
                self.folder,
                downloads=self.folder.parent,
                source=self.source,
                on_damaged=lambda: self.packer.on_damaged(layer),
            )

    def _pack(self, part: LockPart, packages: Sequence[LockedPackage], wheels: Sequence[Path]) -> list[LayerResult]:
        for layer in list_part_layers(part):
            self.report(layer.name, "started", 0.0)
        begin = time.monotonic()
        try:
            blobs = self.packer.pack(part, wheels)
        except InvalidWheel:  # it may be damaged: the next build fetches it again
            self._remove_downloads(packages)
            raise
        self._remove_downloads(packages)
        return self._finish(blobs, "done", time.monotonic() - begin)

    def _finish(self, blobs: Mapping[WheelLayer, Blob], state: LayerState, seconds: float | None) -> list[LayerResult]:
        for layer in blobs:
            self.report(layer.name, state, seconds or 0.0)
        return [LayerResult(layer=layer, blob=blob, seconds=seconds) for layer, blob in blobs.items()]

    def _remove_downloads(self, packages: Sequence[LockedPackage]) -> None:
        """Remove shared wheels: other builds take the finished layers from the store."""
        for package in packages:
            remove_download(package, self.folder.parent)

"""Make the layers of a lock: fetch and pack in parallel what the store does not have."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Literal, ParamSpec, TypeVar

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

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


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
    """Return the layers of a lock, lowest first. Raises as `fetch_wheel`, and `InvalidWheel`.

    `fresh` ignores the layers in the store. `on_event` is called from several threads, one at a time.
    """
    store.prepare()
    events = threading.Lock()

    def report(layer: str, state: LayerState, seconds: float = 0.0) -> None:
        with events:
            on_event(layer, state, seconds)

    packer = Packer(
        store=store, compression=compression, fresh=fresh, on_damaged=lambda layer: report(layer, "damaged")
    )
    folder = store.folder / "wheels" / token_hex(8)
    parts = sorted(split_lock(lock), key=lambda part: LARGEST_FIRST.index(part.name))
    cancellation = Cancellation()
    try:
        with (
            ThreadPoolExecutor(DOWNLOADS) as downloads,
            ThreadPoolExecutor(len(LARGEST_FIRST)) as makers,
            _cancelling(cancellation),
        ):
            maker = _PartMaker(packer, source, report, folder, downloads, cancellation)
            jobs = [makers.submit(maker.run, maker.make, part) for part in parts]
            wait(jobs, return_when=FIRST_EXCEPTION)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _raise_first(jobs)
    results = {result.layer: result for job in jobs for result in job.result()}
    if any(result.seconds is not None for result in results.values()):
        store.prune()
    return tuple(results[layer] for layer in list_wheel_layers(lock))


def write_stages(results: Sequence[LayerResult], store: LayerStore) -> dict[str, str]:
    """Return the stages of the Dockerfile that consist of these layers, with their addresses for BuildKit."""
    filled = [result for result in results if result.blob.files]
    return {
        "wheels": store.write_stage([result.blob for result in filled]),
        "code": store.write_stage([result.blob for result in filled if not result.layer.shared]),
    }


class _PartMaker:
    """Makes the layers of parts of one lock; `folder` holds the wheels of this run."""

    def __init__(
        self,
        packer: Packer,
        source: WheelSource,
        report: Callable[..., None],
        folder: Path,
        downloads: ThreadPoolExecutor,
        cancellation: Cancellation,
    ) -> None:
        self._packer, self._source, self._report, self._folder = packer, source, report, folder
        self._downloads, self._cancellation = downloads, cancellation
        self._processors = threading.BoundedSemaphore(os.cpu_count() or 1)

    def run(self, work: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        """Do work in another thread, until it is cancelled."""
        with self._cancellation.activate():
            raise_if_cancelled()
            return work(*arguments, **options)

    def make(self, part: LockPart) -> list[LayerResult]:
        """Return the layers of a part, from the store or packed from its wheels."""
        if blobs := self._packer.find(part):
            return self._reuse(blobs)
        packages = read_packages({part.name: part.lock})
        fetching = [self._downloads.submit(self.run, self._fetch, part, package) for package in packages]
        fetched = [job.result() for job in fetching]
        with self._packer.store.lock(compute_key(list_part_layers(part)[0], self._packer.compression)):
            if blobs := self._packer.find(part):
                self._remove_downloads(packages)
                return self._reuse(blobs)
            # Wheels are missing if another build has made the layers and the store has evicted them since.
            wheels = [
                wheel or self._fetch(part, package, even_if_made=True)
                for wheel, package in zip(fetched, packages, strict=True)
            ]
            with self._processors:
                return self._pack(part, packages, [wheel for wheel in wheels if wheel])

    def _fetch(self, part: LockPart, package: LockedPackage, *, even_if_made: bool = False) -> Path | None:
        """Return a wheel of a part; None if another build has just made the part's layers."""
        with self._packer.store.lock(package.sha256):
            if not even_if_made and self._packer.find(part):
                return None
            return fetch_wheel(
                package,
                self._folder,
                downloads=self._folder.parent,
                source=self._source,
                on_damaged=lambda: self._packer.on_damaged(list_part_layers(part)[0].name),
            )

    def _pack(self, part: LockPart, packages: Sequence[LockedPackage], wheels: Sequence[Path]) -> list[LayerResult]:
        for layer in list_part_layers(part):
            self._report(layer.name, "started")
        begin = time.monotonic()
        try:
            blobs = self._packer.pack(part, wheels)
        except InvalidWheel:  # it may be damaged: the next build fetches it again
            self._remove_downloads(packages)
            raise
        self._remove_downloads(packages)
        seconds = time.monotonic() - begin
        for layer in blobs:
            self._report(layer.name, "done", seconds)
        return [LayerResult(layer=layer, blob=blob, seconds=seconds) for layer, blob in blobs.items()]

    def _reuse(self, blobs: Mapping[WheelLayer, Blob]) -> list[LayerResult]:
        for layer in blobs:
            self._report(layer.name, "cached")
        return [LayerResult(layer=layer, blob=blob, seconds=None) for layer, blob in blobs.items()]

    def _remove_downloads(self, packages: Sequence[LockedPackage]) -> None:
        """Remove the shared wheels of finished layers: other builds take the layers from the store."""
        for package in packages:
            remove_download(package, self._folder.parent)


@contextmanager
def _cancelling(cancellation: Cancellation) -> Iterator[None]:
    """Cancel the threads' work when the block ends or fails, and when the caller's own work is cancelled."""
    with on_cancel(cancellation.cancel):
        try:
            yield
        finally:
            cancellation.cancel()


def _raise_first(jobs: Sequence[Future[list[LayerResult]]]) -> None:
    """Raise the error that made the other jobs stop."""
    raise_if_cancelled()
    errors = [error for job in jobs if (error := job.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, Interrupted)):
        raise error

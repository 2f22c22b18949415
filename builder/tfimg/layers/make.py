"""Lock → layers: what is not in the store is fetched and packed, several at once."""

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
from typing import Literal

from tfimg.core.cancellation import check, on_cancel
from tfimg.core.errors import InvalidWheel
from tfimg.index.client import Index
from tfimg.layers.blob import Blob
from tfimg.layers.fetch import fetch_wheel, remove_download
from tfimg.layers.pack import Packer, compute_key, list_part_layers
from tfimg.layers.store import LayerStore
from tfimg.recipe.layout import Compression, LockPart, WheelLayer, list_wheel_layers, split_lock
from tfimg.recipe.lockfile import Lock, LockedPackage, read_packages

DOWNLOADS = 8
"""Wheels fetched at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSource:
    """Where wheels come from: package indexes in order, and files that none of them has."""

    indexes: Sequence[Index]
    supplied: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerResult:
    """A layer of an image; `seconds` is what making it took, None where the store had it."""

    layer: WheelLayer
    blob: Blob
    seconds: float | None


LayerState = Literal["started", "done", "cached", "damaged"]
"""`damaged`: a file of the layer in the store was not what had been written there, and is made again."""

OnLayerEvent = Callable[[str, LayerState, float], None]
"""Is told a layer's name, what happens to it and for how many seconds it has."""


def make_layers(
    lock: Lock,
    store: LayerStore,
    *,
    source: WheelSource,
    compression: Compression,
    on_event: OnLayerEvent,
    fresh: bool = False,
) -> tuple[LayerResult, ...]:
    """The layers of a lock, lowest first. Raises like `tfimg.layers.fetch.fetch`.

    `fresh` makes those anew that the store has. `on_event` is called from several threads, one at a time.
    """
    store.prepare()
    told, stopped = _one_at_a_time(on_event), threading.Event()

    def go_on() -> None:
        if stopped.is_set():
            raise _Stopped

    packer = Packer(
        store=store,
        compression=compression,
        fresh=fresh,
        go_on=go_on,
        on_damaged=lambda layer: told(layer, "damaged", 0.0),
    )
    made: dict[WheelLayer, LayerResult] = {}
    missing = []
    for part, found in _verified(lock, packer, stopped):
        if found:
            made |= _cached(found)
            for layer in found:
                told(layer.name, "cached", 0.0)
        else:
            missing.append(part)
    if missing:
        made |= _packed(missing, packer, source, told, stopped)
        store.prune()
    return tuple(made[layer] for layer in list_wheel_layers(lock))


def write_stages(made: Sequence[LayerResult], store: LayerStore) -> dict[str, str]:
    """The stages of the Dockerfile that these layers are, and where BuildKit finds them."""
    full = [one for one in made if one.blob.files]
    code = [one.blob for one in full if not one.layer.shared]
    blobs = [one.blob for one in full]
    return {
        "wheels": store.stage(blobs, architecture="amd64"),
        "code": store.stage(code, architecture="amd64"),
    }


def _verified(
    lock: Lock, packer: Packer, stopped: threading.Event
) -> Iterator[tuple[LockPart, dict[WheelLayer, Blob]]]:
    """Yield the parts of a lock with the layers that the store has of them; their files are read at once."""
    wanted = split_lock(lock)
    with ThreadPoolExecutor(os.cpu_count()) as readers, on_cancel(stopped.set):
        found = [readers.submit(packer.found, part) for part in wanted]
        try:
            wait(found, return_when=FIRST_EXCEPTION)
        except BaseException:  # an interruption stops the threads before it waits for them
            stopped.set()
            raise
    check()
    yield from zip(wanted, (one.result() for one in found), strict=True)


def _cached(found: Mapping[WheelLayer, Blob]) -> dict[WheelLayer, LayerResult]:
    return {layer: LayerResult(layer=layer, blob=blob, seconds=None) for layer, blob in found.items()}


def _packed(
    missing: Sequence[LockPart], packer: Packer, source: WheelSource, told: OnLayerEvent, stopped: threading.Event
) -> dict[WheelLayer, LayerResult]:
    """Fetch and pack the parts, the largest first since they take longest; all stop when one fails."""
    store, go_on = packer.store, packer.go_on
    folder = store.folder / "wheels"
    run = token_hex(8)

    def fetched(part: LockPart, package: LockedPackage, *, unless_found: bool = True) -> Path | None:
        go_on()
        with store.exclusive(package.sha256, go_on):
            if unless_found and packer.found(part):  # another build has just made the layers
                return None
            return fetch_wheel(
                package,
                folder / f"{run}-{part.name}",
                downloads=folder,
                indexes=source.indexes,
                supplied=source.supplied,
                go_on=go_on,
                on_damaged=lambda: packer.on_damaged(list_part_layers(part)[0].name),
            )

    def packed(
        part: LockPart, packages: Sequence[LockedPackage], wheels: Sequence[Future[Path | None]]
    ) -> dict[WheelLayer, LayerResult]:
        files = [wheel.result() for wheel in wheels]
        with store.exclusive(compute_key(list_part_layers(part)[0], packer.compression), go_on):
            if found := packer.found(part):
                _remove_downloads(packages, folder)
                return _cached(found)
            # Wheels are missing where the store had the layers a moment ago and has evicted them since.
            complete = [
                file or fetched(part, package, unless_found=False)
                for file, package in zip(files, packages, strict=True)
            ]
            for layer in list_part_layers(part):
                told(layer.name, "started", 0.0)
            begin = time.monotonic()
            try:
                blobs = packer.pack(part, [file for file in complete if file])
            except InvalidWheel:  # it may be damaged: the next build fetches it again
                _remove_downloads(packages, folder)
                raise
        _remove_downloads(packages, folder)
        seconds = time.monotonic() - begin
        for layer in blobs:
            told(layer.name, "done", seconds)
        return {layer: LayerResult(layer=layer, blob=blob, seconds=seconds) for layer, blob in blobs.items()}

    try:
        # An interruption stops the threads before it waits for them.
        with (
            ThreadPoolExecutor(DOWNLOADS) as downloads,
            ThreadPoolExecutor(os.cpu_count()) as packers,
            _setting(stopped),
            on_cancel(stopped.set),
        ):
            jobs = []
            for part in sorted(missing, key=lambda part: ORDER.index(part.name)):
                packages = read_packages({part.name: part.lock})
                wheels = [downloads.submit(fetched, part, package) for package in packages]
                jobs.append(packers.submit(packed, part, packages, wheels))
            wait(jobs, return_when=FIRST_EXCEPTION)
            stopped.set()
            _raise_first(jobs)
    finally:
        for part in missing:
            shutil.rmtree(folder / f"{run}-{part.name}", ignore_errors=True)
    return {layer: one for job in jobs for layer, one in job.result().items()}


def _remove_downloads(packages: Sequence[LockedPackage], downloads: Path) -> None:
    """Remove the shared wheels of layers that are made: other builds take the layers from the store."""
    for package in packages:
        remove_download(package, downloads)


class _Stopped(Exception):
    """Another layer failed, or somebody interrupted."""


@contextmanager
def _setting(event: threading.Event) -> Iterator[None]:
    try:
        yield
    finally:
        event.set()


def _raise_first(jobs: Sequence[Future[dict[WheelLayer, LayerResult]]]) -> None:
    """Raise what made the others stop."""
    errors = [error for job in jobs if (error := job.exception())]
    check()
    for error in sorted(errors, key=lambda error: isinstance(error, _Stopped)):
        raise error


ORDER = ("tensorflow", "cudnn", "libtpu", "cublas", "solvers", "cuda", "packages")
"""Parts by size, largest first: what takes longest must not begin last."""


def _one_at_a_time(on_event: OnLayerEvent) -> OnLayerEvent:
    lock = threading.Lock()

    def tell(layer: str, state: LayerState, seconds: float) -> None:
        with lock:
            on_event(layer, state, seconds)

    return tell

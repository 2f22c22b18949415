"""Lock → layers: what is not in the store is fetched and packed, several at once."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Literal

from tfimg.layers.blob import Blob, BlobWriter
from tfimg.layers.fetch import fetch
from tfimg.layers.store import LayerStore
from tfimg.layers.wheel import contents, unpack
from tfimg.proof.index import Index
from tfimg.recipe.layout import Compression, Part, WheelLayer, parts, wheel_layers
from tfimg.recipe.lockfile import Layers, LockedPackage, read_packages

FORMAT = "1"
"""Of the layers that this module makes; another one when the same wheels would give other bytes."""

DOWNLOADS = 8
"""Wheels fetched at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where wheels come from: package indexes in order, and files that none of them has."""

    indexes: Sequence[Index]
    supplied: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeLayer:
    """A layer of an image; `seconds` is what making it took, None where the store had it."""

    layer: WheelLayer
    blob: Blob
    seconds: float | None


LayerState = Literal["started", "done", "cached"]

Told = Callable[[str, LayerState, float], None]
"""Is told a layer's name, what happens to it and for how many seconds it has."""


def make(
    lock: Layers, store: LayerStore, *, source: Source, compression: Compression, on_event: Told
) -> tuple[MadeLayer, ...]:
    """The layers of a lock, lowest first. Raises like `tfimg.layers.fetch.fetch`.

    `on_event` is called from several threads, one at a time.
    """
    store.prepare()
    told = _one_at_a_time(on_event)
    made: dict[str, MadeLayer] = {}
    missing = []
    for part in parts(lock):
        found = {layer: store.find(key(layer, compression)) for layer in layers_of(part)}
        if all(found.values()):
            for layer, blob in found.items():
                assert blob is not None  # noqa: S101  (all are there)
                made[layer.name] = MadeLayer(layer=layer, blob=blob, seconds=None)
                told(layer.name, "cached", 0.0)
        else:
            missing.append(part)
    made |= _packed(missing, store, source=source, compression=compression, told=told)
    return tuple(made[layer.name] for layer in wheel_layers(lock))


def stages(made: Sequence[MadeLayer], store: LayerStore) -> dict[str, str]:
    """The stages of the Dockerfile that these layers are, and where BuildKit finds them."""
    full = [one for one in made if one.blob.files]
    code = [one.blob for one in full if not one.layer.shared]
    blobs = [one.blob for one in full]
    return {
        "wheels": store.stage(blobs, architecture="amd64"),
        "code": store.stage(code, architecture="amd64"),
    }


def layers_of(part: Part) -> tuple[WheelLayer, ...]:
    """The one or two layers that a part of a lock becomes."""
    return tuple(wheel_layers({part.name: part.lock}))


def key(layer: WheelLayer, compression: Compression) -> str:
    """What a layer is found by in the store: all that its bytes depend on."""
    words = [FORMAT, compression, str(layer.shared), *layer.part.shared]
    words += [package.sha256 for package in read_packages({layer.part.name: layer.part.lock})]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _packed(
    missing: Sequence[Part], store: LayerStore, *, source: Source, compression: Compression, told: Told
) -> Mapping[str, MadeLayer]:
    """Fetch and pack the parts, the largest first since they take longest; all stop when one fails."""
    folder = store.folder / "wheels"
    stopped = threading.Event()

    def fetched(package: LockedPackage) -> Path:
        if stopped.is_set():
            raise _Stopped
        return fetch(package, folder, indexes=source.indexes, supplied=source.supplied)

    def packed(part: Part, wheels: Sequence[Callable[[], Path]]) -> list[MadeLayer]:
        files = [wheel() for wheel in wheels]
        for layer in layers_of(part):
            told(layer.name, "started", 0.0)
        begin = time.monotonic()
        blobs = _pack(part, files, store, compression)
        seconds = time.monotonic() - begin
        for layer in blobs:
            told(layer.name, "done", seconds)
        return [MadeLayer(layer=layer, blob=blob, seconds=seconds) for layer, blob in blobs.items()]

    with ThreadPoolExecutor(DOWNLOADS) as downloads, ThreadPoolExecutor(os.cpu_count()) as packers:
        try:
            jobs = []
            for part in sorted(missing, key=_order):
                packages = read_packages({part.name: part.lock})
                wheels = [downloads.submit(fetched, package).result for package in packages]
                jobs.append(packers.submit(packed, part, wheels))
            made = [one for job in jobs for one in job.result()]
        except BaseException:
            stopped.set()
            downloads.shutdown(wait=False, cancel_futures=True)
            packers.shutdown(wait=False, cancel_futures=True)
            raise
    return {one.layer.name: one for one in made}


class _Stopped(Exception):
    """Another layer failed, or somebody interrupted."""


ORDER = ("tensorflow", "cudnn", "libtpu", "cublas", "solvers", "cuda", "packages")
"""Parts by size, largest first: what takes longest must not begin last."""


def _order(part: Part) -> int:
    return ORDER.index(part.name)


def _pack(
    part: Part, wheels: Sequence[Path], store: LayerStore, compression: Compression
) -> dict[WheelLayer, Blob]:
    """The layers of one part; those that another part's wheels gave already are not packed again."""
    found: dict[WheelLayer, Blob] = {}
    with ExitStack() as stack:
        writers: dict[bool, _Pending] = {}
        same: dict[bool, str] = {}
        for layer in layers_of(part):
            # What is the same for every Python has, in its wheels' own words, the same hashes.
            listed = [line for wheel in wheels for line in contents(wheel, part.shared)]
            same[layer.shared] = _content_key(listed, compression)
            blob = store.find(same[layer.shared]) if layer.shared and not part.whole else None
            if blob:
                found[layer] = blob
            else:
                writers[layer.shared] = stack.enter_context(_pending(store, compression))
        into, rest = (pending.writer if pending else None for pending in map(writers.get, (True, False)))
        for wheel in wheels:
            unpack(wheel, shared=part.shared, into=into, rest=rest)
        for layer in layers_of(part):
            if layer not in found:
                pending = writers[layer.shared]
                found[layer] = pending.writer.close()
                store.keep(key(layer, compression), found[layer], pending.path)
            else:
                store.remember(key(layer, compression), found[layer])
            if layer.shared and not part.whole:
                store.remember(same[True], found[layer])
    for wheel in wheels:
        wheel.unlink(missing_ok=True)
    return found


def _content_key(listed: Sequence[str], compression: Compression) -> str:
    return hashlib.sha256("\n".join([FORMAT, compression, *listed]).encode()).hexdigest()


@dataclass(frozen=True)
class _Pending:
    path: Path
    writer: BlobWriter


@contextmanager
def _pending(store: LayerStore, compression: Compression) -> Iterator[_Pending]:
    path = store.folder / f"layer-{token_hex(8)}"
    try:
        with path.open("wb") as sink:
            yield _Pending(path, BlobWriter(sink, compression))
    finally:
        path.unlink(missing_ok=True)


def _one_at_a_time(on_event: Told) -> Told:
    lock = threading.Lock()

    def tell(layer: str, state: LayerState, seconds: float) -> None:
        with lock:
            on_event(layer, state, seconds)

    return tell

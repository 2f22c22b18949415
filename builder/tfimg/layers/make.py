"""Lock → layers: what is not in the store is fetched and packed, several at once."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Literal

from tfimg.cancellation import check, on_cancel
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
    lock: Layers,
    store: LayerStore,
    *,
    source: Source,
    compression: Compression,
    on_event: Told,
    fresh: bool = False,
) -> tuple[MadeLayer, ...]:
    """The layers of a lock, lowest first. Raises like `tfimg.layers.fetch.fetch`.

    `fresh` makes those anew that the store has. `on_event` is called from several threads, one at a time.
    """
    store.prepare()
    told = _one_at_a_time(on_event)
    made: dict[str, MadeLayer] = {}
    missing = []
    for part in parts(lock):
        if not fresh and (found := _found(part, store, compression)):
            made |= found
            for name in found:
                told(name, "cached", 0.0)
        else:
            missing.append(part)
    if missing:
        made |= _packed(missing, store, source=source, compression=compression, told=told, fresh=fresh)
        store.prune()
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


def _found(part: Part, store: LayerStore, compression: Compression) -> dict[str, MadeLayer]:
    """The layers of a part by name, if the store has all of them."""
    blobs = {layer: store.find(key(layer, compression)) for layer in layers_of(part)}
    found = {
        layer.name: MadeLayer(layer=layer, blob=blob, seconds=None) for layer, blob in blobs.items() if blob
    }
    return found if len(found) == len(blobs) else {}


def _packed(
    missing: Sequence[Part],
    store: LayerStore,
    *,
    source: Source,
    compression: Compression,
    told: Told,
    fresh: bool,
) -> Mapping[str, MadeLayer]:
    """Fetch and pack the parts, the largest first since they take longest; all stop when one fails."""
    folder = store.folder / "wheels"
    stopped = threading.Event()

    def go_on() -> None:
        if stopped.is_set():
            raise _Stopped

    writer = partial(BlobWriter, compression=compression, go_on=go_on)

    def fetched(part: Part, package: LockedPackage) -> Path | None:
        go_on()
        with store.exclusive(package.sha256, go_on):
            if not fresh and _found(part, store, compression):  # somebody else has just made them
                return None
            return fetch(package, folder, indexes=source.indexes, supplied=source.supplied, go_on=go_on)

    def packed(part: Part, wheels: Sequence[Future[Path | None]]) -> list[MadeLayer]:
        files = [file for wheel in wheels if (file := wheel.result())]
        with store.exclusive(part.name + key(layers_of(part)[0], compression), go_on):
            if not fresh and (found := _found(part, store, compression)):
                return list(found.values())
            for layer in layers_of(part):
                told(layer.name, "started", 0.0)
            begin = time.monotonic()
            blobs = _pack(part, files, store, writer, compression, fresh=fresh)
        seconds = time.monotonic() - begin
        for layer in blobs:
            told(layer.name, "done", seconds)
        return [MadeLayer(layer=layer, blob=blob, seconds=seconds) for layer, blob in blobs.items()]

    # An interruption stops the threads before it waits for them.
    with (
        ThreadPoolExecutor(DOWNLOADS) as downloads,
        ThreadPoolExecutor(os.cpu_count()) as packers,
        _setting(stopped),
        on_cancel(stopped.set),
    ):
        jobs = []
        for part in sorted(missing, key=_order):
            packages = read_packages({part.name: part.lock})
            wheels = [downloads.submit(fetched, part, package) for package in packages]
            jobs.append(packers.submit(packed, part, wheels))
        wait(jobs, return_when=FIRST_EXCEPTION)
        stopped.set()
        _raise_first(jobs)
    return {one.layer.name: one for job in jobs for one in job.result()}


class _Stopped(Exception):
    """Another layer failed, or somebody interrupted."""


@contextmanager
def _setting(event: threading.Event) -> Iterator[None]:
    try:
        yield
    finally:
        event.set()


def _raise_first(jobs: Sequence[Future[list[MadeLayer]]]) -> None:
    """Raise what made the others stop."""
    errors = [error for job in jobs if (error := job.exception())]
    check()
    for error in sorted(errors, key=lambda error: isinstance(error, _Stopped | CancelledError)):
        raise error


ORDER = ("tensorflow", "cudnn", "libtpu", "cublas", "solvers", "cuda", "packages")
"""Parts by size, largest first: what takes longest must not begin last."""


def _order(part: Part) -> int:
    return ORDER.index(part.name)


def _pack(
    part: Part,
    wheels: Sequence[Path],
    store: LayerStore,
    writer: Callable[[BinaryIO], BlobWriter],
    compression: Compression,
    *,
    fresh: bool,
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
            known = layer.shared and not part.whole and not fresh
            blob = store.find(same[layer.shared]) if known else None
            if blob:
                found[layer] = blob
            else:
                writers[layer.shared] = stack.enter_context(_pending(store, writer))
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
def _pending(store: LayerStore, writer: Callable[[BinaryIO], BlobWriter]) -> Iterator[_Pending]:
    path = store.folder / f"layer-{token_hex(8)}"
    try:
        with path.open("wb") as sink:
            yield _Pending(path, writer(sink))
    finally:
        path.unlink(missing_ok=True)


def _one_at_a_time(on_event: Told) -> Told:
    lock = threading.Lock()

    def tell(layer: str, state: LayerState, seconds: float) -> None:
        with lock:
            on_event(layer, state, seconds)

    return tell

"""Make the layers of a lock: fetch and pack in parallel what the store lacks."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from secrets import token_hex

from tfimg.core.cancellation import Cancellation, on_cancel, raise_if_cancelled
from tfimg.core.errors import Interrupted
from tfimg.layers.fetch import WheelSource
from tfimg.layers.pack import GroupMaker, LayerResult, LayerState, OnLayerEvent
from tfimg.layers.store import LayerStore
from tfimg.recipe.layout import Compression, list_wheel_layers, split_lock
from tfimg.recipe.lock import Lock

DOWNLOADS = 8  # wheels fetched at once

LARGEST_FIRST = ("tensorflow", "cudnn", "libtpu", "cublas", "solvers", "cuda", "scipy", "numpy", "libclang")
"""Groups by size, before all others: what takes longest must not begin last."""


def make_layers(
    lock: Lock,
    store: LayerStore,
    *,
    source: WheelSource,
    compression: Compression,
    on_event: OnLayerEvent,
    removed: tuple[str, ...] = (),
    fresh: bool = False,
) -> tuple[LayerResult, ...]:
    """Return the layers of a lock, lowest first.

    Raises as `fetch_wheel`, and `InvalidWheel`. `removed` are patterns of files to leave out. `fresh` ignores
    the layers in the store. `on_event` is called from several threads, one at a time.
    """
    store.prepare()
    event_lock, cancellation = threading.Lock(), Cancellation()

    def report(layer: str, state: LayerState, seconds: float) -> None:
        with event_lock:
            on_event(layer, state, seconds)

    folder = store.folder / "wheels" / token_hex(8)
    groups = split_lock(lock, removed)
    position = {name: number for number, name in enumerate(LARGEST_FIRST)}
    queue = sorted(groups, key=lambda group: position.get(group.name, len(position)))
    try:
        with (
            on_cancel(cancellation.cancel),
            cancellation.activate(),
            ThreadPoolExecutor(DOWNLOADS) as downloads,
            ThreadPoolExecutor(max(len(groups), 1)) as makers,
        ):
            maker = GroupMaker(
                store=store,
                compression=compression,
                fresh=fresh,
                source=source,
                report=report,
                folder=folder,
                downloads=downloads,
            )
            try:
                jobs = [makers.submit(copy_context().run, maker.make, group) for group in queue]
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
    return tuple(results[layer] for layer in list_wheel_layers(lock, removed))


def write_stages(results: Sequence[LayerResult], store: LayerStore) -> dict[str, str]:
    """Return stages of the Dockerfile and the addresses of their layers for BuildKit."""
    filled = [result for result in results if result.blob.files]
    stages = {
        "wheels": [result.blob for result in filled if not result.layer.group.is_upper],
        **{f"code-{result.layer.group.name}": [result.blob] for result in filled if not result.layer.is_shared},
    }
    return {name: store.write_stage(blobs) for name, blobs in stages.items()}

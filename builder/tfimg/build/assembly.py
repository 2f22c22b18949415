"""Assemble an image for an engine: layers of wheels that are made here, and the steps that the engine builds.

The Dockerfile of the image stays the reference: it gives the same files. Built from it, each file of a wheel would be
transferred to BuildKit, unpacked, mounted, copied and packed once more.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from secrets import token_hex
from typing import Any

from tfimg.core.cancellation import on_cancel, raise_if_cancelled, run_ahead
from tfimg.core.events import OnEvent, timed_step
from tfimg.core.files import hash_file, name_in_errors, read_pieces
from tfimg.engine.handover import ImageLayer, make_plain_config, read_steps, stream_image
from tfimg.engine.interface import BuildRequest, Engine
from tfimg.layers.layers import LayerStore
from tfimg.layers.wheel import Blob, BlobWriter
from tfimg.matrix.schema import Platform
from tfimg.recipe.layout import LAYER_FORMAT, Compression, WheelLayer

# Groups of wheels are compiled while others are loaded. Only tars remain in the build cache.
COMPILE = """ARG BASE
FROM ${BASE} AS compiled
ARG UNCOMPILED
RUN --network=none --mount=type=bind,target=/context \\
    --mount=type=tmpfs,target=/modules --mount=type=tmpfs,target=/bytecode \\
    set -e; export UNCOMPILED; mkdir /compiled; \\
    for tar in /context/*.tar; do \\
        group=$(basename "$tar" .tar); mkdir "/modules/$group" "/bytecode/$group"; \\
        tar -xf "$tar" -C "/modules/$group"; \\
        python3 /context/bytecode.py "/modules/$group" "/bytecode/$group"; \\
        tar -cf "/compiled/$group.tar" -C "/bytecode/$group" .; \\
        rm -r "/modules/$group" "/bytecode/$group"; \\
    done
FROM scratch
COPY --from=compiled /compiled /
"""

SYSTEM_STEP = "\nCOPY --link --from=system / /\n"
"""Of images/templates/Dockerfile.j2: the lowest layer of a stage that is nothing else. Images of another platform than
amd64 have their system in a folder of it."""

HOME = "home/tensorflow"
"""The folder in which programs start, as the system has it: where it is missing, BuildKit would make another one."""

EARLY_BYTES = 30_000_000
"""Compressed bytes of layers that are worth an archive of their own before the rest is finished: the engine unpacks
layers one after another, those of 2.15.1 for CPU for 10 s, and meanwhile others are made."""


@dataclass(kw_only=True)
class BaseByteCode:
    """Byte code by the Python of an image's base, which another thread prepares.

    `script` is `bytecode.py`, `uncompiled` are patterns of modules to leave out.
    """

    engine: Engine
    script: Path
    uncompiled: tuple[str, ...]
    no_cache: bool
    _base: tuple[str, str] = field(default=("", ""), init=False)
    _released: threading.Event = field(default_factory=threading.Event, init=False)
    _building: threading.Lock = field(default_factory=threading.Lock, init=False)
    _waiting: dict[Path, Path] = field(default_factory=dict, init=False)

    def set_base(self, reference: str, digest: str) -> None:
        """State the base: its name in the engine or a registry, and its digest."""
        self._base = reference, digest
        self._released.set()

    def _wait(self) -> tuple[str, str]:
        with on_cancel(self._released.set):
            self._released.wait()
        raise_if_cancelled()
        return self._base

    @cached_property
    def key(self) -> str:
        """See `tfimg.layers.layers.ByteCode`."""
        words = [self._wait()[1], COMPILE, hash_file(self.script), *self.uncompiled]
        return sha256("\n".join(words).encode()).hexdigest()

    def compile(self, modules: Path, target: Path) -> None:
        """See `tfimg.layers.layers.ByteCode`. Raises as `Engine.build`.

        One build at a time, of all that has come since the one before began: a build takes 0.6 s of the processor
        beside what its compiler takes.
        """
        self._waiting[modules] = target
        with self._building:
            raise_if_cancelled()
            if modules not in self._waiting:  # the build of another group has compiled it
                return
            batch = dict(self._waiting)
            self._build(batch)
            for one in batch:
                del self._waiting[one]

    def _build(self, batch: Mapping[Path, Path]) -> None:
        """Compile the modules of several tars, and move the results to their targets."""
        reference, _ = self._wait()
        with tempfile.TemporaryDirectory(prefix="tfimg-bytecode-") as scratch:
            context, output = Path(scratch, "context"), Path(scratch, "output")
            context.mkdir()
            shutil.copy(self.script, context)
            for number, modules in enumerate(batch):
                shutil.copy(modules, context / f"{number}.tar")
            dockerfile = context / "Dockerfile"
            dockerfile.write_text(COMPILE)
            request = BuildRequest(
                dockerfile=dockerfile,
                context=context,
                name="tfimg/bytecode",
                build_args={"BASE": reference, "UNCOMPILED": " ".join(self.uncompiled)},
                output=f"type=local,dest={output}",
                no_cache=self.no_cache,
            )
            _run_build(self.engine, request, lambda _: raise_if_cancelled())
            for number, target in enumerate(batch.values()):
                shutil.move(output / f"{number}.tar", target)


@dataclass(kw_only=True)
class EarlyLoader:
    """Loads the lowest layers of an image into an engine while others are made.

    Each load has a name of its own, which `open_name` gives and keeps until the image is complete: containerd removes
    at any time what no image needs, and a load moves its name before it unpacks on top of the layers of the image
    that had it ("parent snapshot … does not exist", seen with containerd 1.7).

    `order` has the layers, lowest first, as an engine unpacks them. `on_layer` is called from several threads. `loaded`
    is the number of layers that the engine has, by the last `name`; one without files counts for none.
    """

    engine: Engine
    store: LayerStore
    open_name: Callable[[], str]
    platform: Platform
    order: tuple[WheelLayer, ...]
    on_event: OnEvent
    name: str = field(default="", init=False)
    loaded: int = field(default=0, init=False)
    _blobs: dict[WheelLayer, Blob] = field(default_factory=dict, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _done: int = field(default=0, init=False)
    _wanted: int = field(default=0, init=False)
    _ended: bool = field(default=False, init=False)

    def on_layer(self, layer: WheelLayer, blob: Blob) -> None:
        """Note that the store has a layer."""
        with self._changed:
            self._blobs[layer] = blob
            self._changed.notify_all()

    def end(self) -> None:
        """Load nothing more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def run(self) -> None:
        """Load what is ready, until `end`. Raises as `Engine.load`."""
        try:
            with on_cancel(self.end):
                while ready := self._wait_for_layers():
                    self._load(ready)
        finally:
            self.end()

    def wait_for(self, layers: Sequence[WheelLayer]) -> bool:
        """Wait until the engine has layers; return False if loading ended before."""
        with on_cancel(self.end), self._changed:
            self._wanted = max((self.order.index(layer) + 1 for layer in layers), default=0)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done >= self._wanted or self._ended)
            raise_if_cancelled()
            return self._done >= self._wanted

    def _wait_for_layers(self) -> list[tuple[WheelLayer, Blob]]:
        """Return the lowest layers when there are more of them to load; none at the end."""
        with self._changed:
            while not self._ended:
                ready = [(layer, self._blobs[layer]) for layer in takewhile(self._blobs.__contains__, self.order)]
                added = sum(blob.size for _, blob in ready[self._done :])
                if added >= EARLY_BYTES or self._done < self._wanted <= len(ready):
                    return ready
                self._changed.wait()
            raise_if_cancelled()
            return []

    def _load(self, ready: Sequence[tuple[WheelLayer, Blob]]) -> None:
        layers = [make_layer(self.store, blob, layer.name) for layer, blob in ready if blob.files]
        if len(layers) > self.loaded:
            names = ", ".join(layer.made_by for layer in layers[self.loaded :])
            with timed_step(f"load {names}", self.on_event):
                config, self.name = make_plain_config(layers, self.platform), self.open_name()
                self.engine.load(stream_image(self.name, layers, config, loaded=self.loaded))
        with self._changed:
            self.loaded, self._done = len(layers), len(ready)
            self._changed.notify_all()


def make_layer(store: LayerStore, blob: Blob, made_by: str) -> ImageLayer:
    """Return a layer of the store as part of an image; `made_by` is what its history says."""
    return ImageLayer(
        media_type=blob.media_type, digest=blob.digest, size=blob.size, diff_id=blob.diff_id,
        file=store.path(blob.digest), made_by=made_by,
    )  # fmt: skip


PackSystem = Callable[[Engine, BuildRequest, Path, OnEvent], ImageLayer]
"""Builds and packs the system of an image, in a folder for what lies between; `pack_system` has its store."""


def build_steps(
    engine: Engine,
    request: BuildRequest,
    folder: Path,
    *,
    option: str,
    pack_system: PackSystem | None,
    on_event: OnEvent,
) -> tuple[dict[str, Any], list[ImageLayer]]:
    """Build all that is not files of wheels; return the image's configuration and these layers, the system first.

    Their files go to `folder`. `option` is the output that an engine's image would have. With `pack_system`, the
    system is a build of its own, and packed here. A cache in a registry gets what one build made, so that build has the
    system too; what lies above is the same. Raises as `Engine.build`.
    """
    archive = folder / "steps.tar"
    above = replace(request, output=option.replace(f"type=image,name={request.name}", f"type=oci,dest={archive}"))
    if pack_system is None:
        _run_build(engine, above, on_event)
        return read_steps(archive, folder / "steps")
    if not request.cache_to:
        empty = folder / "empty"
        (empty / HOME).mkdir(parents=True)
        above = replace(above, contexts={**request.contexts, "system": str(empty)})
    with run_ahead(partial(pack_system, engine, request, folder, on_event)) as wait_for_system:
        _run_build(engine, above, on_event)
        config, layers = read_steps(archive, folder / "steps")
        return config, [wait_for_system(), *layers[1:]]


def pack_system(
    engine: Engine,
    request: BuildRequest,
    folder: Path,
    on_event: OnEvent,
    *,
    store: LayerStore,
    compression: Compression,
) -> ImageLayer:
    """Return the layer of the stage `system`, whose files BuildKit gives as they lie on its disk.

    On its own way from a stage to a layer it reads each file for a digest, copies it, and compares it with what is
    below. For the 5,000 files of Debian and Python, dockerd takes 2 s less of the processor so, and this program 0.8 s.
    The store keeps the layer of these bytes: with another package above it, it is not packed again.
    """
    archive = folder / "system.tar"
    alone = replace(request, target="system", output=f"type=tar,dest={archive}", cache_to=())
    _run_build(engine, alone, on_event)
    key = sha256("\n".join(["system", LAYER_FORMAT, compression, hash_file(archive)]).encode()).hexdigest()
    store.prepare()
    with store.lock(key):
        blob = store.find(key)
        if not blob or not store.verify(blob):
            file = store.folder / f"layer-{token_hex(8)}"
            with timed_step("layer system", on_event), name_in_errors(file):
                try:
                    with file.open("wb") as sink:
                        writer = BlobWriter(sink, compression)
                        writer.add_archive(read_pieces(archive))
                        blob = writer.close()
                    store.add(blob, file)
                finally:
                    file.unlink(missing_ok=True)
            store.set_key(key, blob)
    archive.unlink()
    return make_layer(store, blob, "system")


def _run_build(engine: Engine, request: BuildRequest, on_event: OnEvent) -> None:
    with closing(engine.build(request)) as events:
        for event in events:
            on_event(event)

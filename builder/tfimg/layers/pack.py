"""Pack the wheels of one part of a lock into its layers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from tfimg.layers.blob import Blob, BlobWriter
from tfimg.layers.store import LayerStore
from tfimg.layers.wheel import list_record_rows, unpack_wheel
from tfimg.recipe.layout import Compression, LockPart, WheelLayer, list_wheel_layers
from tfimg.recipe.lockfile import read_packages

LAYER_FORMAT = "2"
"""Version of the layers that this package makes: raised when the same wheels would give other bytes."""


def list_part_layers(part: LockPart) -> tuple[WheelLayer, ...]:
    """Return the one or two layers of a part of a lock."""
    return tuple(list_wheel_layers({part.name: part.requirements}))


def compute_key(layer: WheelLayer, compression: Compression) -> str:
    """Return the key of a layer in the store, from all that its bytes depend on."""
    words = [LAYER_FORMAT, compression, str(layer.is_shared), *layer.part.shared_files]
    words += [package.sha256 for package in read_packages({layer.part.name: layer.part.requirements})]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Packer:
    """Packs layers into a store.

    `fresh` ignores the layers in the store; `on_damaged` is called with the name of a layer whose file in the store is
    damaged.
    """

    store: LayerStore
    compression: Compression
    fresh: bool
    on_damaged: Callable[[str], None]

    def find(self, part: LockPart) -> dict[WheelLayer, Blob]:
        """Return the layers of a part if the store has all of them undamaged."""
        layers = list_part_layers(part)
        found = {layer: self._find(compute_key(layer, self.compression), layer) for layer in layers}
        blobs = {layer: blob for layer, blob in found.items() if blob}
        return blobs if len(blobs) == len(layers) else {}

    def pack(self, part: LockPart, wheels: Sequence[Path]) -> dict[WheelLayer, Blob]:
        """Make the layers of a part, except those that another Python's wheels gave."""
        layers = list_part_layers(part)
        blobs: dict[WheelLayer, Blob] = {}
        content_key = "" if part.is_shared or not part.shared_files else self._content_key(part, wheels)
        if content_key and (blob := self._find(content_key, layers[0])):
            blobs[layers[0]] = blob
        with ExitStack() as stack:
            missing = [layer for layer in layers if layer not in blobs]
            writers = {layer.is_shared: stack.enter_context(self._new_layer(layer, blobs)) for layer in missing}
            for wheel in wheels:
                unpack_wheel(wheel, shared=part.shared_files, into=writers.get(True), rest=writers.get(False))
        for layer in layers:
            self.store.set_key(compute_key(layer, self.compression), blobs[layer])
        if content_key:
            self.store.set_key(content_key, blobs[layers[0]])
        for wheel in wheels:
            wheel.unlink(missing_ok=True)
        return {layer: blobs[layer] for layer in layers}

    def _find(self, key: str, layer: WheelLayer) -> Blob | None:
        blob = None if self.fresh else self.store.find(key)
        if blob and not self.store.verify(blob):
            self.on_damaged(layer.name)
            return None
        return blob

    def _content_key(self, part: LockPart, wheels: Sequence[Path]) -> str:
        """Return the key of shared files: RECORD has the same hashes for every Python."""
        rows = [row for wheel in wheels for row in list_record_rows(wheel, part.shared_files)]
        return hashlib.sha256("\n".join([LAYER_FORMAT, self.compression, *rows]).encode()).hexdigest()

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

"""One part of a lock and its wheels → the layers that it becomes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from tfimg.layers.blob import Blob, BlobWriter
from tfimg.layers.store import LayerStore
from tfimg.layers.wheel import list_record_rows, unpack_wheel
from tfimg.recipe.layout import Compression, LockPart, WheelLayer, list_wheel_layers
from tfimg.recipe.lockfile import read_packages

LAYER_FORMAT = "2"
"""Of the layers that this module makes; another one when the same wheels would give other bytes."""


def list_part_layers(part: LockPart) -> tuple[WheelLayer, ...]:
    """The one or two layers that a part of a lock becomes."""
    return tuple(list_wheel_layers({part.name: part.lock}))


def compute_key(layer: WheelLayer, compression: Compression) -> str:
    """What a layer is found by in the store: all that its bytes depend on."""
    words = [LAYER_FORMAT, compression, str(layer.shared), *layer.part.shared]
    words += [package.sha256 for package in read_packages({layer.part.name: layer.part.lock})]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Packer:
    """Packs layers into a store.

    `fresh` uses no layer that is there; `go_on` raises where it is to stop; `on_damaged` is called with the name of a
    layer whose file in the store is not what was made.
    """

    store: LayerStore
    compression: Compression
    fresh: bool
    go_on: Callable[[], None]
    on_damaged: Callable[[str], None]

    def found(self, part: LockPart) -> dict[WheelLayer, Blob]:
        """The layers of a part, if the store has all of them."""
        blobs = {layer: None if self.fresh else self._kept(layer) for layer in list_part_layers(part)}
        found = {layer: blob for layer, blob in blobs.items() if blob}
        return found if len(found) == len(blobs) else {}

    def pack(self, part: LockPart, wheels: Sequence[Path]) -> dict[WheelLayer, Blob]:
        """Make the layers of a part, and keep them. What another Python's wheels gave already is not packed again."""
        made = self._of_another_python(part, wheels)
        with ExitStack() as stack:
            pending = {
                layer: stack.enter_context(self._pending()) for layer in list_part_layers(part) if layer not in made
            }
            into, rest = (
                next((one.writer for layer, one in pending.items() if layer.shared is shared), None)
                for shared in (True, False)
            )
            for wheel in wheels:
                unpack_wheel(wheel, shared=part.shared, into=into, rest=rest)
            for layer, one in pending.items():
                made[layer] = one.writer.close()
                one.sink.flush()
                self.store.keep(compute_key(layer, self.compression), made[layer], one.path)
        for layer, blob in made.items():
            self.store.remember(compute_key(layer, self.compression), blob)
            if layer.shared and not part.whole:
                self.store.remember(self._content_key(part, wheels), blob)
        for wheel in wheels:
            wheel.unlink(missing_ok=True)
        return made

    def _kept(self, layer: WheelLayer) -> Blob | None:
        return self._verified(compute_key(layer, self.compression), layer)

    def _verified(self, name: str, layer: WheelLayer) -> Blob | None:
        """Return a layer that the store has under a name, if its file is whole."""
        blob = self.store.find(name)
        if blob and not self.store.verify(blob, self.go_on):
            self.on_damaged(layer.name)
            return None
        return blob

    def _of_another_python(self, part: LockPart, wheels: Sequence[Path]) -> dict[WheelLayer, Blob]:
        if part.whole or not part.shared or self.fresh:
            return {}
        layer = list_part_layers(part)[0]
        blob = self._verified(self._content_key(part, wheels), layer)
        return {layer: blob} if blob else {}

    def _content_key(self, part: LockPart, wheels: Sequence[Path]) -> str:
        """What is the same for every Python has, in its wheels' own words, the same hashes."""
        listed = [line for wheel in wheels for line in list_record_rows(wheel, part.shared)]
        return hashlib.sha256("\n".join([LAYER_FORMAT, self.compression, *listed]).encode()).hexdigest()

    @contextmanager
    def _pending(self) -> Iterator[_Pending]:
        path = self.store.folder / f"layer-{token_hex(8)}"
        try:
            with path.open("wb") as sink:
                yield _Pending(path, sink, BlobWriter(sink, self.compression, self.go_on))
        finally:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Pending:
    """A layer that is being written."""

    path: Path
    sink: BinaryIO
    writer: BlobWriter

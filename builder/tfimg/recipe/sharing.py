"""Images → the layers that they have in common, and the bytes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.layout import WheelLayer, list_wheel_layers
from tfimg.recipe.lockfile import Lock

PREDICTED: dict[str, tuple[int, int]] = {
    "cudnn": (562_000_000, 1_164_000_000),
    "cublas": (299_000_000, 634_000_000),
    "solvers": (300_000_000, 643_000_000),
    "cuda": (226_000_000, 571_000_000),
    "libtpu": (120_000_000, 400_000_000),
    "tensorflow": (282_000_000, 979_000_000),
    "tensorflow-python": (72_000_000, 404_000_000),
    "packages": (71_000_000, 248_000_000),
}
"""Bytes of a layer that was not made yet, compressed and unpacked: those of 2.15.1 with CUDA 12.2, made as `fast`; of
libtpu those of 0.0.14."""

PREDICTED_CPU = PREDICTED | {"tensorflow": (107_000_000, 565_000_000), "tensorflow-python": (60_000_000, 345_000_000)}
"""The same of images without CUDA: those of 2.15.1 for CPU."""

Identity = tuple[str, str]
"""A layer's name and what it is made of: images whose layers have the same have the same layer."""

Known = Callable[[WheelLayer], tuple[int, int] | None]
"""Bytes of a layer that was made before, compressed and unpacked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedLayer:
    """A layer and the images that have it. `exact` says that its bytes are known, not predicted."""

    name: str
    images: tuple[str, ...]
    compressed_bytes: int
    unpacked_bytes: int
    exact: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """The layers of several images, the most widely shared first."""

    layers: tuple[SharedLayer, ...]

    @property
    def together(self) -> int:
        """Compressed bytes of all layers, each once: what a registry keeps."""
        return sum(layer.compressed_bytes for layer in self.layers)

    @property
    def apart(self) -> int:
        """Compressed bytes if no image shared anything."""
        return sum(layer.compressed_bytes * len(layer.images) for layer in self.layers)


def find_shared_layers(images: Sequence[tuple[ImageSpec, Lock]], known: Known) -> Sharing:
    """What images share of the layers that hold wheels.

    Layers are the same where they are made of the same wheels; what does not depend on Python's version is the same in
    a release's wheels for all of its Pythons. Base, byte code and suite, some 100 MB, are not counted.
    """
    users: dict[Identity, list[str]] = {}
    sizes: dict[Identity, tuple[int, int, bool]] = {}
    for spec, lock in images:
        for layer, identity in identify_layers(spec, lock):
            users.setdefault(identity, []).append(spec.identifier)
            found = known(layer)
            if found or identity not in sizes:
                sizes[identity] = (*(found or predict_size(spec, layer)), found is not None)
    layers = [
        SharedLayer(
            name=identity[0],
            images=tuple(names),
            compressed_bytes=sizes[identity][0],
            unpacked_bytes=sizes[identity][1],
            exact=sizes[identity][2],
        )
        for identity, names in users.items()
    ]
    return Sharing(layers=tuple(sorted(layers, key=lambda one: (-len(one.images), -one.compressed_bytes))))


def predict_size(spec: ImageSpec, layer: WheelLayer) -> tuple[int, int]:
    """Bytes of an image's layer, compressed and unpacked, by what was measured of another release."""
    return (PREDICTED if spec.gpu else PREDICTED_CPU)[layer.name]


def identify_layers(spec: ImageSpec, lock: Lock) -> Iterator[tuple[WheelLayer, Identity]]:
    """The layers of an image that hold wheels, lowest first, and what makes each the same as another image's."""
    for layer in list_wheel_layers(lock):
        of_every_python = layer.shared and not layer.part.whole
        what = f"{spec.package} {spec.tensorflow} {spec.platform}" if of_every_python else layer.part.lock
        yield layer, (layer.name, what)

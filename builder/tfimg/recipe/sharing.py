"""The layers that images have in common, and their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

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
    "libclang": (24_000_000, 64_000_000),
    "scipy": (36_000_000, 110_000_000),
    "numpy": (14_000_000, 65_000_000),
    "compiled": (17_000_000, 59_000_000),
    "tensorboard": (11_000_000, 30_000_000),
    "packages": (6_000_000, 29_000_000),
    "own": (16_000_000, 73_000_000),
}
"""Bytes of a layer, compressed and unpacked: those of 2.15.1 with CUDA 12.2, compressed as `fast`; of libtpu 0.0.14.
SciPy, of 2.12 alone: the size of its wheel. Packages of a user: tensorflow-text and pandas."""

PREDICTED_CPU = PREDICTED | {"tensorflow": (107_000_000, 565_000_000), "tensorflow-python": (60_000_000, 345_000_000)}
"""The same of images without CUDA: those of 2.15.1 for CPU."""

Identity = tuple[str, str]
"""A layer's name and what it is made of: images with the same identity share the layer."""

KnownSize = Callable[[WheelLayer], tuple[int, int] | None]
"""Returns the bytes of a layer that was made before, compressed and unpacked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedLayer:
    """A layer and the images that have it; `exact`: its bytes are not predicted."""

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
        """Compressed bytes of all layers, each once: what a registry stores."""
        return sum(layer.compressed_bytes for layer in self.layers)

    @property
    def apart(self) -> int:
        """Compressed bytes if no image shared anything."""
        return sum(layer.compressed_bytes * len(layer.images) for layer in self.layers)


def find_shared_layers(images: Sequence[tuple[ImageSpec, Lock]], known: KnownSize) -> Sharing:
    """Return the layers of wheels; base, byte code and suite (100 MB) do not count."""
    layers: dict[Identity, SharedLayer] = {}
    for spec, lock in images:
        for layer, identity in identify_layers(spec, lock):
            size, before = known(layer), layers.get(identity)
            compressed, unpacked = size or predict_size(spec, layer)
            new = SharedLayer(
                name=layer.name, images=(), compressed_bytes=compressed, unpacked_bytes=unpacked, exact=size is not None
            )
            users = (*(before.images if before else ()), spec.identifier)
            layers[identity] = replace(before if before and not new.exact else new, images=users)
    return Sharing(
        layers=tuple(sorted(layers.values(), key=lambda layer: (-len(layer.images), -layer.compressed_bytes)))
    )


def predict_size(spec: ImageSpec, layer: WheelLayer) -> tuple[int, int]:
    """Return a layer's bytes, compressed and unpacked, as measured in 2.15.1."""
    return (PREDICTED if spec.gpu else PREDICTED_CPU)[layer.name]


def identify_layers(spec: ImageSpec, lock: Lock) -> Iterator[tuple[WheelLayer, Identity]]:
    """Yield the layers of wheels of an image, lowest first, with their identity.

    Layers of the same wheels are the same; files that do not depend on Python's version are the same in the wheels of a
    release for all of its Pythons, and of its flavours. A flavour that removes files has layers of its own: it is
    compressed in another way, which also changes the bytes of those without a removed file.
    """
    for layer in list_wheel_layers(lock, spec.removed):
        for_every_python = layer.is_shared and not layer.group.is_shared
        wheels = f"{spec.package} {spec.tensorflow} {spec.platform}" if for_every_python else layer.group.requirements
        yield layer, (layer.name, "\n".join([wheels, *spec.removed]))

"""The layers of an image: which files lie in each, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tfimg.matrix.schema import Device
from tfimg.recipe.lockfile import Lock

Compression = Literal["fast", "small", "gzip"]
"""Of layers: zstd, to run where they were built or to be stored and pulled by many, or gzip, for machines that do not
know zstd (Docker before 23.0)."""

ZSTD_LEVELS: Mapping[Compression, int] = {"fast": 3, "small": 9}

SITE_PACKAGES = "/opt/tensorflow/lib/python3/site-packages"  # a path without Python's version

EPOCH = 946684800
"""mtime of every installed file, 2000-01-01 in seconds since 1970. One day for all images, so that a layer
with the same packages is the same bytes in each."""

GLIBC_MINOR = 31
"""glibc 2.31 of Debian 11, the oldest base: wheels that need a newer one are not taken."""

SHARED_FILES: Mapping[str, tuple[str, ...]] = {
    "cudnn": (".",),
    "cublas": (".",),
    "solvers": (".",),
    "cuda": (".",),
    "libtpu": (".",),
    "tensorflow": ("tensorflow/libtensorflow_cc.so.*",),
    "packages": (),
    "flavor": (),
    "own": (),
}
"""Part of a lock → its files, below `SITE_PACKAGES`, that are the same for every Python; `.` is all of them.

In the order in which they lie above each other: images with the same libraries have the same lowest layers, and those
are pulled, unpacked and stored once. NVIDIA's wheels and libtpu are for any Python. libtensorflow_cc has one hash in
the RECORD files of 2.15.1 for Python 3.9 and 3.11 (978 MB), and in those of 2.20.0 for 3.9, 3.11 and 3.13 (1,019 MB);
libtensorflow_framework and some headers differ."""

DEVICE_PARTS: Mapping[Device, tuple[str, ...]] = {
    "cpu": ("tensorflow", "packages"),
    "gpu": ("cudnn", "cublas", "solvers", "cuda", "tensorflow", "packages"),
    "tpu": ("libtpu", "tensorflow", "packages"),
}
"""Device → the parts of its images' locks."""

ADDED_PARTS = ("flavor", "own")
"""Parts of a lock that lie above byte code and system: images with them share all layers below with the runtime."""

BASIC_LAYERS = ("system", "bytecode")
LAST_LAYERS = ("selftest", "home")
"""The layers above those of wheels, in the order of the Dockerfile's last stage; what is added lies between the two."""

LAYER_CONTENTS: Mapping[str, str] = {
    "cudnn": "cuDNN",
    "cublas": "cuBLAS",
    "solvers": "cuFFT, cuSOLVER, cuSPARSE",
    "cuda": "CUDA runtime, compiler, NCCL and the other NVIDIA libraries",
    "libtpu": "libtpu",
    "tensorflow": "TensorFlow's library, for every Python",
    "tensorflow-python": "TensorFlow for this Python",
    "packages": "Python packages that TensorFlow needs",
    "flavor": "Python packages of the flavour",
    "own": "Python packages of the user",
    "added-bytecode": "byte code of the packages of flavour and user",
    "programs": "programs of the flavour",
    "debian": "Debian packages of flavour and user",
    "system": "Debian, Python, the environment and its user",
    "bytecode": "byte code of all packages",
    "selftest": "the suite, and what the image claims to be",
    "home": "the working folder",
}
"""Layer → its contents, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockPart:
    """A part of a lock; `shared_files` are the same for every Python, `removed` are patterns of files to leave out."""

    name: str
    requirements: str
    shared_files: tuple[str, ...]
    removed: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether all of it is the same for every Python."""
        return self.shared_files == (".",)


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelLayer:
    """A layer of one part's wheels: the files for every Python, or those for one."""

    part: LockPart
    is_shared: bool

    @property
    def name(self) -> str:
        """`cudnn`, `tensorflow`, and `tensorflow-python` for the files of one Python."""
        return self.part.name if self.is_shared or not self.part.shared_files else f"{self.part.name}-python"


def split_lock(lock: Lock, removed: tuple[str, ...] = ()) -> tuple[LockPart, ...]:
    """Return the parts of a lock, lowest layer first; `removed` are patterns of files that its image does without."""
    return tuple(
        LockPart(name=name, requirements=lock[name], shared_files=files, removed=removed)
        for name, files in SHARED_FILES.items()
        if name in lock
    )


def list_wheel_layers(lock: Lock, removed: tuple[str, ...] = ()) -> Iterator[WheelLayer]:
    """Yield the layers of an image that contain files of wheels, lowest first."""
    parts = split_lock(lock, removed)
    yield from (WheelLayer(part=part, is_shared=True) for part in parts if part.shared_files)
    yield from (WheelLayer(part=part, is_shared=False) for part in parts if not part.is_shared)


def list_layer_names(
    device: Device, added: Sequence[str] = (), *, debian: bool = False, programs: bool = False
) -> tuple[str, ...]:
    """Return the names of all layers of an image for a device, lowest first.

    `added` are the parts of its lock that are among `ADDED_PARTS`; `debian`: it has Debian packages of its own,
    `programs`: those of a flavour.
    """
    wheels = (layer.name for layer in list_wheel_layers(dict.fromkeys(DEVICE_PARTS[device], "")))
    above = (*(part for part in ADDED_PARTS if part in added), *(["added-bytecode"] if added else []))
    return (
        *wheels,
        *BASIC_LAYERS,
        *above,
        *(["debian"] if debian else []),
        *(["programs"] if programs else []),
        *LAST_LAYERS,
    )

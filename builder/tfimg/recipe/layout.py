"""The layers of an image: which files lie in each, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lock import Lock

Compression = Literal["fast", "small", "smallest", "gzip"]
"""Of layers: zstd, to run where they were built or to be stored and pulled by many, or gzip, for machines that do not
know zstd (Docker before 23.0)."""

ZSTD_LEVELS: Mapping[Compression, int] = {"fast": 3, "small": 9, "smallest": 19}
"""Of 100 MB of libtensorflow_cc 2.18.1, level 9 leaves 20.9 MB in 2.7 s of processor time, 19 leaves 18.3 MB in 66 s.
BuildKit, which packs the layers of the system and of byte code, knows four levels; from 10 on it is the last."""

SITE_PACKAGES = "/opt/tensorflow/lib/python3/site-packages"  # a path without Python's version

LAYER_FORMAT = "7"
"""Version of the layers that are made here: raised when the same wheels, or the same system, would give other bytes."""

EPOCH = 946684800
"""mtime of every installed file, 2000-01-01 in seconds since 1970. One day for all images, so that a layer
with the same packages is the same bytes in each."""

SHARED_FILES: Mapping[str, tuple[str, ...]] = {
    "cuda": (".",),
    "solvers": (".",),
    "cublas": (".",),
    "cudnn": (".",),
    "libtpu": (".",),
    "libclang": (".",),
    "tensorflow": ("tensorflow/libtensorflow_cc.so.*",),
    "scipy": (),
    "numpy": (),
    "compiled": (),
    "tensorboard": (),
    "packages": (),
    "variant": (),
    "own": (),
}
"""Group of wheels → its files, below `SITE_PACKAGES`, that are the same for every Python; `.` is all of them.

In the order in which they lie above each other. Images with the same libraries have the same lowest layers, and those
are pulled, unpacked and stored once. What changes most often lies highest: an engine with the classic image store pulls
every layer above a changed one again. Of NVIDIA's libraries the smallest lie lowest: the engine unpacks them while the
others arrive and are packed. NVIDIA's wheels, libtpu and libclang are for any Python. libtensorflow_cc has one
hash in the RECORD files of 2.15.1 for Python 3.9 and 3.11 (978 MB), and in those of 2.20.0 for 3.9, 3.11 and 3.13
(1,019 MB); libtensorflow_framework and some headers differ."""

GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "packages": {
        "libclang": ("libclang",),
        "scipy": ("scipy",),
        "numpy": ("numpy",),
        "compiled": ("grpcio", "h5py", "ml-dtypes", "pillow", "tensorflow-io-gcs-filesystem"),
        "tensorboard": ("tensorboard", "tensorboard-data-server", "tensorboard-plugin-wit"),
    },
}
"""Part of a lock → groups of its wheels, with layers of their own; all others are in the group of the part's name."""

NVIDIA_GROUPS = ("cudnn", "cublas", "solvers", "cuda")
"""Groups of NVIDIA's libraries, for which a step of the build configures the loader."""

UPPER_GROUPS = ("packages", "variant", "own")
"""Groups of wheels that lie above the system: the first changes more often than Debian and Python, and images that add
the others share all layers below with the runtime."""

LAYER_CONTENTS: Mapping[str, str] = {
    "cudnn": "cuDNN",
    "cublas": "cuBLAS",
    "solvers": "cuFFT, cuSOLVER, cuSPARSE",
    "cuda": "CUDA runtime, compiler, NCCL and the other NVIDIA libraries",
    "libtpu": "libtpu",
    "libclang": "libclang",
    "tensorflow": "TensorFlow's library, for every Python",
    "tensorflow-python": "TensorFlow for this Python",
    "scipy": "SciPy",
    "numpy": "NumPy",
    "compiled": "gRPC, h5py, ml-dtypes and the like",
    "tensorboard": "TensorBoard",
    "packages": "the other Python packages that TensorFlow needs",
    "variant": "Python packages of the variant",
    "own": "Python packages of the user",
    "programs": "programs of the variant",
    "debian": "Debian packages of variant and user",
    "system": "Debian, Python, the environment and its user",
    "selftest": "the suite, and what the image claims to be",
    "home": "the working folder",
}
"""Layer → its contents, for people. Python code lies beside its byte code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelGroup:
    """Wheels of one part of a lock; `part` is that part.

    `packages` are their names, empty if the group is the whole part. `shared_files` are the same for every Python,
    `removed` are patterns of files to leave out.
    """

    name: str
    part: str
    requirements: str
    packages: tuple[str, ...] = ()
    shared_files: tuple[str, ...]
    removed: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether all of it is the same for every Python; such a group has no byte code."""
        return self.shared_files == (".",)

    @property
    def is_upper(self) -> bool:
        return self.name in UPPER_GROUPS

    @property
    def layers(self) -> tuple[WheelLayer, ...]:
        shared = [WheelLayer(group=self, is_shared=True)] if self.shared_files else []
        return (*shared, *([] if self.is_shared else [WheelLayer(group=self, is_shared=False)]))


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelLayer:
    """A layer of one group of wheels: the files for every Python, or those for one."""

    group: WheelGroup
    is_shared: bool

    @property
    def name(self) -> str:
        """`cudnn`, `tensorflow`, and `tensorflow-python` for the files of one Python."""
        return self.group.name if self.is_shared or not self.group.shared_files else f"{self.group.name}-python"


def lock_path(spec: ImageSpec, part: str) -> str:
    """Return the path of a part's requirement file, below `images` as in a build context.

    An image of a variant or with extra packages has the other parts of the image below it.
    """
    folder = {"variant": spec.variant_lock, "own": spec.identifier}.get(part, spec.runtime)
    return f"locks/{folder}/{part}.txt"


def split_lock(lock: Lock, removed: tuple[str, ...] = ()) -> tuple[WheelGroup, ...]:
    """Return the groups of wheels of a lock, lowest layer first.

    `removed` are patterns of files that its image does without.
    """
    groups = []
    for part, text in lock.items():
        group_of = {package: group for group, packages in GROUPS.get(part, {}).items() for package in packages}
        lines_of: dict[str, list[str]] = {}
        for line in text.splitlines(keepends=True):
            if not line.startswith("#"):
                lines_of.setdefault(group_of.get(line.partition("==")[0], part), []).append(line)
        for name, lines in (lines_of or {part: []}).items():
            group = WheelGroup(
                name=name,
                part=part,
                requirements="".join(lines),
                packages=tuple(line.partition("==")[0] for line in lines) if len(lines_of) > 1 else (),
                shared_files=SHARED_FILES[name],
                removed=removed,
            )
            groups.append(group)
    order = list(SHARED_FILES)
    return tuple(sorted(groups, key=lambda group: order.index(group.name)))


def list_wheel_layers(lock: Lock, removed: tuple[str, ...] = ()) -> Iterator[WheelLayer]:
    """Yield the layers of an image that contain files of wheels, those for every Python first, lowest first."""
    layers = [layer for group in split_lock(lock, removed) for layer in group.layers]
    yield from sorted(layers, key=lambda layer: not layer.is_shared)


def list_layer_names(lock: Lock, *, debian: bool = False, programs: bool = False) -> tuple[str, ...]:
    """Return the names of all layers of an image with a lock, lowest first.

    `debian`: it has Debian packages of its own, `programs`: those of a variant.
    """
    layers = list(list_wheel_layers(lock))
    lower = [layer for layer in layers if not layer.group.is_upper]
    return (
        *(layer.name for layer in lower),
        "system",
        *(layer.name for layer in layers if layer.group.is_upper),
        *(["debian"] if debian else []),
        *(["programs"] if programs else []),
        "selftest",
        "home",
    )

"""Divide images into shards for CI jobs, so that those with shared layers meet."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfimg.core.errors import UsageError
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.spec import EXTRA_SUFFIX, ImageSpec
from tfimg.recipe.layout import list_wheel_layers
from tfimg.recipe.lock import Lock

PREDICTED: dict[str, tuple[int, int]] = {
    "cudnn": (1_164_000_000, 720_000_000),
    "cublas": (634_000_000, 418_000_000),
    "solvers": (643_000_000, 419_000_000),
    "cuda": (571_000_000, 325_000_000),
    "libtpu": (400_000_000, 134_000_000),
    "tensorflow": (979_000_000, 0),
    "tensorflow-python": (404_000_000, 475_000_000),
    "libclang": (64_000_000, 25_000_000),
    "scipy": (110_000_000, 35_000_000),
    "numpy": (65_000_000, 18_000_000),
    "compiled": (59_000_000, 18_000_000),
    "tensorboard": (30_000_000, 12_000_000),
    "packages": (29_000_000, 8_000_000),
    "own": (73_000_000, 18_000_000),
}
"""Unpacked bytes of a layer, and of its wheels: those of 2.15.1 with CUDA 12.2; of libtpu 0.0.14. SciPy, of 2.12 alone:
the size of its wheel. Extra packages: tensorflow-text and pandas. Each Python has a wheel of TensorFlow."""

PREDICTED_CPU = PREDICTED | {"tensorflow": (565_000_000, 0), "tensorflow-python": (345_000_000, 207_000_000)}
"""The same of images without CUDA: those of 2.15.1 for CPU."""

PACKED, INSTALLED, BASE_BYTES = 2.1, 3.5, 600_000_000
"""Bytes on the disks of engine and state folder: for each unpacked byte of layers that the engine receives, or that
steps install, and of a base with its archive. Measured with 2.15.1 for CUDA 12.2; see `tfimg.matrix.devices`."""

PREDICTED_ABOVE = {"jupyter": 372_000_000, "dev": 972_000_000}
"""Unpacked bytes that a variant has above the runtime image: jupyter of 2.15.1; Debian's compilers and git by what
their packages state."""

GITHUB_JOBS = 256  # of a matrix in one run (GitHub's documentation, "Usage limits")
GITLAB_JOB = ".tfimg"  # the hidden job that a child pipeline's jobs extend: the project defines its runner and set-up


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardImage:
    """An image to divide.

    `layers` are the predicted bytes by layer, the lowest first, `wheels` those of its wheels; images with the same key
    share that layer. `fixed` are the bytes of layers that take as long to make as the image when its layers are there.
    """

    identifier: str
    layers: Mapping[Hashable, int]
    wheels: Mapping[Hashable, int] = field(default_factory=dict)
    fixed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Images for one machine, and the predicted bytes of their layers."""

    name: str
    identifiers: tuple[str, ...]
    bytes: int


def make_shard_image(spec: ImageSpec, lock: Lock) -> ShardImage:
    """Return what an image with this lock shares with others, in unpacked bytes as measured in 2.15.1.

    A layer is identified by its name and origin; base, byte code and suite (100 MB) do not count. Layers of the same
    wheels are the same; files that do not depend on Python's version are the same in the wheels of a release for all of
    its Pythons, and of its variants. A variant that removes files has layers of its own: it is compressed in another
    way, which also changes the bytes of those without a removed file.
    """
    sizes = PREDICTED if spec.gpu else PREDICTED_CPU
    found: dict[Hashable, tuple[int, int]] = {}
    for layer in list_wheel_layers(lock, spec.removed):
        for_every_python = layer.is_shared and not layer.group.is_shared
        wheels = f"{spec.package} {spec.tensorflow} {spec.platform}" if for_every_python else layer.group.requirements
        found[layer.name, "\n".join([wheels, *spec.removed])] = sizes[layer.name]
    return ShardImage(
        identifier=spec.identifier,
        layers={key: unpacked for key, (unpacked, _) in found.items()},
        wheels={key: wheels for key, (_, wheels) in found.items()},
        fixed=DEVICES[spec.device].fixed_bytes + PREDICTED_ABOVE.get(spec.variant, 0),
    )


PREDICTED_BELOW = 263_000_000
"""Unpacked bytes of Debian, Python, byte code and suite in 2.15.1 for CPU."""


def predict_unpacked_bytes(spec: ImageSpec, lock: Lock) -> int:
    """Return about how many bytes an image takes unpacked; of a variant that removes files, no more than this."""
    return count_bytes([make_shard_image(spec, lock)]) + PREDICTED_BELOW + PREDICTED_ABOVE.get(spec.variant, 0)


def divide_into_shards(images: Sequence[ShardImage], count: int) -> tuple[Shard, ...]:
    """Return at most `count` shards; every image is in exactly one.

    Images with the same lowest layers are neighbours, and a shard is a row of neighbours: so a boundary between two
    shards divides the images of at most one set of NVIDIA's libraries. The largest shard is as small as such rows
    allow; what counts are the bytes of a shard's layers, each once, and what its images take by themselves.
    """
    rank: dict[Hashable, int] = {}
    for image in images:
        for key in image.layers:
            rank.setdefault(key, len(rank))
    row = sorted(images, key=lambda image: [rank[key] for key in image.layers])
    sizes = [image.fixed + count_bytes([image]) for image in images]
    # No shard can be smaller than the largest image, and none need be larger than all images apart.
    limits = range(max(sizes, default=0), sum(sizes))
    least = bisect_left(limits, True, key=lambda limit: len(_cut(row, limit)) <= count)
    position = {image.identifier: number for number, image in enumerate(images)}
    shards = [
        sorted(members, key=lambda image: position[image.identifier]) for members in _cut(row, limits.start + least)
    ]
    shards.sort(key=lambda members: position[members[0].identifier])
    width = len(str(len(shards)))
    return tuple(_shard(f"shard-{number:0{width}}", members) for number, members in enumerate(shards, start=1))


def _cut(row: Sequence[ShardImage], limit: int) -> list[list[ShardImage]]:
    """Return a row of images in pieces that are no larger than the limit, if no image is."""
    pieces: list[list[ShardImage]] = []
    made: dict[Hashable, int] = {}
    size = 0
    for image in row:
        more = image.fixed + sum(image.layers[key] for key in image.layers.keys() - made.keys())
        if not pieces or size + more > limit:
            pieces.append([])
            made, size, more = {}, 0, image.fixed + count_bytes([image])
        pieces[-1].append(image)
        made |= image.layers
        size += more
    return pieces


def make_single_shards(images: Sequence[ShardImage]) -> tuple[Shard, ...]:
    return tuple(_shard(image.identifier, [image]) for image in images)


def count_bytes(images: Sequence[ShardImage]) -> int:
    """Return the bytes of images together: a layer that several have counts once."""
    return _count_once(image.layers for image in images)


def predict_load(images: Sequence[ShardImage]) -> int:
    """Return the bytes of wheels that builds of images load if they find nothing that is loaded already."""
    return _count_once(image.wheels for image in images)


def predict_disk(images: Sequence[ShardImage], *, bases: int, packed: bool) -> int:
    """Return the bytes on disk that builds of images take; `packed`: the engine receives ready layers."""
    return round(count_bytes(images) * (PACKED if packed else INSTALLED)) + bases * BASE_BYTES


def _count_once(parts: Iterable[Mapping[Hashable, int]]) -> int:
    whole: dict[Hashable, int] = {}
    for part in parts:
        whole |= part
    return sum(whole.values())


def make_ci_jobs(form: str, shards: Sequence[Shard], options: Sequence[str] = ()) -> dict[str, Any]:
    """Return jobs that build shards, in the form `json`, `github` or `gitlab`.

    The form `github` is a value of `strategy.matrix`, `gitlab` a child pipeline, whose file must end in `.yml`.
    `options` are added to each command; where they name extra packages, `images` are those that the packages are
    put on. Raises `UsageError` for more jobs than the service takes.
    """
    patterns = {shard.name: [name.removesuffix(EXTRA_SUFFIX) for name in shard.identifiers] for shard in shards}
    jobs = [
        {
            "name": shard.name,
            "images": patterns[shard.name],
            "command": shlex.join(["tfimg", "build", *patterns[shard.name], *options]),
            "bytes": shard.bytes,
        }
        for shard in shards
    ]
    if form == "json":
        return {"shards": jobs}
    if form == "gitlab":
        return {
            shard.name: {
                "extends": GITLAB_JOB,
                "variables": {"TFIMG_IMAGES": " ".join(patterns[shard.name])},
                "script": [job["command"]],
            }
            for shard, job in zip(shards, jobs, strict=True)
        }
    if len(jobs) > GITHUB_JOBS:
        raise UsageError(
            f"GitHub runs {GITHUB_JOBS} jobs of a matrix at most, and these are {len(jobs)}.",
            next_step=f"Combine them: --shards {GITHUB_JOBS} or fewer.",
        )
    return {"include": jobs}


def _shard(name: str, images: Sequence[ShardImage]) -> Shard:
    return Shard(name=name, identifiers=tuple(image.identifier for image in images), bytes=count_bytes(images))

"""Images → the shards of a CI run: images that share big layers go to one machine, and none has far more to do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Layers
from tfimg.recipe.sharing import identities, predicted

LIBRARIES = ("cudnn", "cublas", "solvers", "cuda")
"""Layers of NVIDIA's libraries: the same for every Python and for many releases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What an image is to whoever shares work out.

    `layers` are its predicted bytes by layer; images with the same name of a layer share it. `libraries` names its set
    of NVIDIA's libraries, and is empty where it has none.
    """

    identifier: str
    tensorflow: str
    libraries: str
    layers: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Images for one machine, in the order in which they were given, and the bytes that they are predicted to take."""

    name: str
    identifiers: tuple[str, ...]
    bytes: int


def part(spec: ImageSpec, lock: Layers) -> Part:
    """What an image with this lock shares with others, in unpacked bytes."""
    return Part(
        identifier=spec.identifier,
        tensorflow=spec.tensorflow,
        libraries=_digest(*(lock[name] for name in LIBRARIES)) if spec.gpu else "",
        layers={_digest(*identity): predicted(spec, layer)[1] for layer, identity in identities(spec, lock)},
    )


def shards(parts: Sequence[Part], count: int) -> tuple[Shard, ...]:
    """At most `count` shards, none of them empty: every image is in exactly one.

    What shares a set of libraries stays together where it is no larger than a fair share of all bytes, else what is of
    one TensorFlow release if that is not; CPU and TPU images share a release at most. The largest group goes first,
    each to the shard that is the smallest with it: a layer that a shard has already is not counted again.
    """
    groups = _divided(parts, count)
    bins: list[list[Part]] = [[] for _ in range(min(count, len(groups)))]
    for group in sorted(groups, key=predicted_bytes, reverse=True):
        min(bins, key=lambda held: predicted_bytes([*held, *group])).extend(group)
    place = {one.identifier: number for number, one in enumerate(parts)}
    ordered = sorted(
        (sorted(held, key=lambda one: place[one.identifier]) for held in bins if held),
        key=lambda held: place[held[0].identifier],
    )
    width = len(str(len(ordered)))
    return tuple(
        Shard(
            name=f"shard-{number:0{width}}",
            identifiers=tuple(one.identifier for one in held),
            bytes=predicted_bytes(held),
        )
        for number, held in enumerate(ordered, start=1)
    )


def singles(parts: Sequence[Part]) -> tuple[Shard, ...]:
    """A shard for each image, by its identifier."""
    return tuple(
        Shard(name=one.identifier, identifiers=(one.identifier,), bytes=predicted_bytes([one])) for one in parts
    )


def predicted_bytes(parts: Sequence[Part]) -> int:
    """What images take together: a layer that several have is there once."""
    layers: dict[str, int] = {}
    for one in parts:
        layers |= one.layers
    return sum(layers.values())


def _divided(parts: Sequence[Part], count: int) -> list[list[Part]]:
    """Groups that stay together: by libraries, what is larger than a fair share by release, then by image."""
    groups = _grouped(parts, lambda one: one.libraries or one.tensorflow)
    for key in (lambda one: one.tensorflow, lambda one: one.identifier):
        # Of what there is once groups are apart: a layer that two of them have is made twice.
        fair = sum(map(predicted_bytes, groups)) / count
        groups = [
            piece for group in groups for piece in (_grouped(group, key) if predicted_bytes(group) > fair else [group])
        ]
    return groups


def _grouped(parts: Sequence[Part], key: Callable[[Part], str]) -> list[list[Part]]:
    groups: dict[str, list[Part]] = {}
    for one in parts:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def _digest(*texts: str) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]

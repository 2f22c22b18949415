"""Images → the shards of a CI run: images that share big layers go to one machine, and none has far more to do."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfimg.core.errors import UsageError
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Lock
from tfimg.recipe.sharing import identify_layers, predict_size

LIBRARIES = ("cudnn", "cublas", "solvers", "cuda")
"""Layers of NVIDIA's libraries: the same for every Python and for many releases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardImage:
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


def make_shard_image(spec: ImageSpec, lock: Lock) -> ShardImage:
    """What an image with this lock shares with others, in unpacked bytes."""
    return ShardImage(
        identifier=spec.identifier,
        tensorflow=spec.tensorflow,
        libraries=_digest(*(lock[name] for name in LIBRARIES)) if spec.gpu else "",
        layers={_digest(*identity): predict_size(spec, layer)[1] for layer, identity in identify_layers(spec, lock)},
    )


def divide_into_shards(parts: Sequence[ShardImage], count: int) -> tuple[Shard, ...]:
    """At most `count` shards, none of them empty: every image is in exactly one.

    What shares a set of libraries stays together where it is no larger than a fair share of all bytes, else what is of
    one TensorFlow release if that is not; CPU and TPU images share a release at most. The largest group goes first,
    each to the shard that is the smallest with it: a layer that a shard has already is not counted again.
    """
    groups = _divided(parts, count)
    bins: list[list[ShardImage]] = [[] for _ in range(min(count, len(groups)))]
    for group in sorted(groups, key=count_bytes, reverse=True):
        min(bins, key=lambda held: count_bytes([*held, *group])).extend(group)
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
            bytes=count_bytes(held),
        )
        for number, held in enumerate(ordered, start=1)
    )


def make_single_shards(parts: Sequence[ShardImage]) -> tuple[Shard, ...]:
    """A shard for each image, by its identifier."""
    return tuple(Shard(name=one.identifier, identifiers=(one.identifier,), bytes=count_bytes([one])) for one in parts)


def count_bytes(parts: Sequence[ShardImage]) -> int:
    """What images take together: a layer that several have is there once."""
    layers: dict[str, int] = {}
    for one in parts:
        layers |= one.layers
    return sum(layers.values())


def _divided(parts: Sequence[ShardImage], count: int) -> list[list[ShardImage]]:
    """Groups that stay together: by libraries, what is larger than a fair share by release, then by image."""
    groups = _grouped(parts, lambda one: one.libraries or one.tensorflow)
    for key in (lambda one: one.tensorflow, lambda one: one.identifier):
        # Of what there is once groups are apart: a layer that two of them have is made twice.
        fair = sum(map(count_bytes, groups)) / count
        groups = [
            piece for group in groups for piece in (_grouped(group, key) if count_bytes(group) > fair else [group])
        ]
    return groups


def _grouped(parts: Sequence[ShardImage], key: Callable[[ShardImage], str]) -> list[list[ShardImage]]:
    groups: dict[str, list[ShardImage]] = {}
    for one in parts:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def _digest(*texts: str) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


GITHUB_JOBS = 256
"""Jobs that a matrix may make in one run (GitHub's documentation, "Usage limits")."""

GITLAB_JOB = ".tfimg"
"""The hidden job that a child pipeline's jobs extend: what they need of runner and set-up is the project's own."""


def make_ci_jobs(form: str, shards: Sequence[Shard], options: Sequence[str] = ()) -> dict[str, Any]:
    """The jobs in the form `json`, `github` or `gitlab`; `options` are added to each command.

    Raises `UsageError` for more jobs than the service takes.
    """
    return FORMS[form]([_job(shard, options) for shard in shards])


def _command(shard: Shard, options: Sequence[str] = ()) -> str:
    """What builds a shard's images, for a shell."""
    return shlex.join(["tfimg", "build", *shard.identifiers, *options])


def _job(shard: Shard, options: Sequence[str]) -> dict[str, Any]:
    return {
        "name": shard.name,
        "images": list(shard.identifiers),
        "command": _command(shard, options),
        "bytes": shard.bytes,
    }


def _json(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"shards": jobs}


def _github(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """A value of `strategy.matrix`."""
    if len(jobs) > GITHUB_JOBS:
        raise UsageError(
            f"GitHub runs {GITHUB_JOBS} jobs of a matrix at most, and these are {len(jobs)}.",
            next_step=f"Share them out: --shards {GITHUB_JOBS} or fewer.",
        )
    return {"include": jobs}


def _gitlab(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """A child pipeline. JSON is YAML; the file that it is written to must end in `.yml`."""
    return {
        job["name"]: {
            "extends": GITLAB_JOB,
            "variables": {"TFIMG_IMAGES": " ".join(job["images"])},
            "script": [job["command"]],
        }
        for job in jobs
    }


FORMS: Mapping[str, Callable[[list[dict[str, Any]]], dict[str, Any]]] = {
    "json": _json,
    "github": _github,
    "gitlab": _gitlab,
}
"""Forms by name."""

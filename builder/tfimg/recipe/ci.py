"""Shards → what a CI service makes its jobs of."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfimg.core.errors import UsageError
from tfimg.recipe.shards import Shard

GITHUB_JOBS = 256
"""Jobs that a matrix may make in one run (GitHub's documentation, "Usage limits")."""

GITLAB_JOB = ".tfimg"
"""The hidden job that a child pipeline's jobs extend: what they need of runner and set-up is the project's own."""


def document(form: str, shards: Sequence[Shard], options: Sequence[str] = ()) -> dict[str, Any]:
    """The jobs in the form `json`, `github` or `gitlab`; `options` are added to each command.

    Raises `UsageError` for more jobs than the service takes.
    """
    return FORMS[form]([_job(shard, options) for shard in shards])


def command(shard: Shard, options: Sequence[str] = ()) -> str:
    """What builds a shard's images, for a shell."""
    return shlex.join(["tfimg", "build", *shard.identifiers, *options])


def _job(shard: Shard, options: Sequence[str]) -> dict[str, Any]:
    return {
        "name": shard.name,
        "images": list(shard.identifiers),
        "command": command(shard, options),
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

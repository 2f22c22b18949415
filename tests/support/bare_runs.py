"""Evidence files as images/bare/run.py writes them, for tests of who reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from support.gpu_run import ENVIRONMENT, Events, gpu_run
from tfimg.core.files import hash_files
from tfimg.core.paths import Workspace
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_bare_facts
from tfimg.recipe.lockfile import hash_lock, read_packages
from tfimg.validation.run import suite_files

NONCE = "0123456789abcdef"


def bare_events(spec: ImageSpec, workspace: Workspace, **changes: Any) -> Events:
    """Return the events of a run; `changes` are those of `gpu_run`."""
    events = gpu_run(collect_bare_facts(spec, workspace.read_lock(spec.identifier)), **changes)
    return [{**events[0], "nonce": NONCE, "environment": ENVIRONMENT}, *events[1:]]


def bare_run(spec: ImageSpec, workspace: Workspace, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a run of a release, which ended as its last event says."""
    lock = workspace.read_lock(spec.identifier)
    return {
        "identifier": spec.identifier, "tensorflow": spec.tensorflow, "python": spec.python, "lock": hash_lock(lock),
        "wheels": {f"{one.name}-{one.version}.whl": one.sha256 for one in read_packages(lock)},
        "variables": {"LD_LIBRARY_PATH": "{folder}/links", "XLA_FLAGS": "--xla_gpu_cuda_data_dir={folder}/cuda_nvcc"},
        "nonce": NONCE, "date": "2026-11-22T10:11:12+00:00", "seconds": 123.4,
        "status": events[-1].get("code") if events else None, "problem": None, "events": list(events),
    }  # fmt: skip


def bare_file(workspace: Workspace, *runs: Mapping[str, Any], **changes: Any) -> bytes:
    """Return a file of runs of the workspace's own suite."""
    suite = hash_files(suite_files(workspace.validation))
    document = {"schema": 1, "kind": "tfimg bare machine", "suite": suite, "tfimg": "0.1", "runs": list(runs)}
    return json.dumps({**document, **changes}).encode()

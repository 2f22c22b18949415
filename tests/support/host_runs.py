"""Files as images/on_host/run.py writes them, for tests of who reads them."""

from __future__ import annotations

from typing import Any

from support.gpu_run import ENVIRONMENT, gpu_run
from tfimg.core.files import hash_files
from tfimg.core.paths import Workspace
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_host_facts
from tfimg.recipe.lock import hash_lock
from tfimg.validation.run import suite_files

NONCE = "0123456789abcdef"


def host_run(spec: ImageSpec, workspace: Workspace, **changes: Any) -> dict[str, Any]:
    """Return a run of the workspace's own suite on an image's wheels; `changes` are those of `gpu_run`."""
    lock = workspace.read_lock(spec.identifier)
    first, *events = gpu_run(collect_host_facts(spec, lock), **changes)
    return {
        "schema": 1, "kind": "tfimg host run", "identifier": spec.identifier, "lock": hash_lock(lock),
        "suite": hash_files(suite_files(workspace.validation)), "nonce": NONCE, "status": events[-1]["code"],
        "date": "2026-11-22T10:11:12+00:00", "seconds": 123.4,
        "events": [{**first, "nonce": NONCE, "environment": ENVIRONMENT}, *events],
    }  # fmt: skip

"""`tfimg-cluster -- python -I member.py CHECK NONCE`: one container's part of a check across containers.

`tfimg validate --workers` starts it in every container of a cluster, which TF_CONFIG describes. It prints one event
with what this task found, and stays until the container is stopped: other tasks may still need it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))  # isolated mode leaves it out

from checks import cluster
from checks.distribution import ROWS, require_same
from contract import CheckFailed
from framework import tensorflow
from stream import claim_stdout

if TYPE_CHECKING:
    from typing import Any

    from contract import Measured


# The end of a container that is not stopped, because the connection of `tfimg` is lost; a check has 300 s.
LIMIT = 900


def multi_worker(tf: Any, config: dict[str, Any]) -> Measured:
    """Train as one of the workers. Raises CheckFailed unless its weights are exactly those of one process."""
    workers, index = len(config["cluster"]["worker"]), config["task"]["index"]
    if ROWS % workers:
        raise CheckFailed(f"expected a number of workers that divides {ROWS}, found {workers}: choose another")
    measured = cluster.train_as_member(tf, is_first=index == 0)
    cluster.require_place(measured, "worker", index, **measured)
    return require_same(measured, workers)


def parameter_server(tf: Any, config: dict[str, Any]) -> Measured:
    """Coordinate as the chief; as a worker or parameter server, never return."""
    job, index = config["task"]["type"], config["task"]["index"]
    if job != "chief":
        os.chdir(tempfile.mkdtemp())
        cluster.serve(tf, config["cluster"], job, index, f"{job} {index}")
    # With the chief's own address: servers elsewhere answer to it.
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    names = [f"worker {number}" for number in range(len(config["cluster"]["worker"]))]
    return cluster.require_updates(cluster.coordinate(tf, resolver), names)


PARTS = {"multi_worker": multi_worker, "parameter_server": parameter_server}


def main() -> None:
    """Do this task's part, print its event, and wait for the end of the container."""
    emit, (check, nonce) = claim_stdout(), sys.argv[1:]
    signal.alarm(LIMIT)
    # A GPU or TPU of this machine would be that of every container.
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TPU_LOAD_LIBRARY="0")
    event: dict[str, Any] = {"event": "member", "nonce": nonce, "outcome": "passed", "reason": None, "measured": {}}
    try:
        event["measured"] = PARTS[check](tensorflow(), json.loads(os.environ["TF_CONFIG"]))
    except CheckFailed as failure:
        event.update(outcome="failed", reason=failure.reason, measured=failure.measured)
    except Exception as error:
        traceback.print_exc()
        event.update(outcome="crashed", reason=f"{type(error).__name__}: {error}"[:2000])
    emit(event)
    time.sleep(LIMIT)


if __name__ == "__main__":
    main()

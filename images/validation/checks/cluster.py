"""Strategies over several processes, which talk to each other on the loopback interface."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from fork_group import call_in_forks, hide_gpus
from framework import tensorflow

from .distribution import START, require_same, train

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured
    from fork_group import Call

    Cluster = dict[str, list[str]]

# Three seconds on two busy cores.
SECONDS = 30
CAUSE = "one of them broke, or they do not reach each other on the loopback interface; read their output"
WORKERS = ("chief", "worker")
TASK = "task"
CALLS = 4
BEGIN = 10.0


def multi_worker(_facts: Facts) -> Measured:
    """Two steps of `MultiWorkerMirroredStrategy` in two processes give both exactly the weights of one process."""
    cluster = {name: [address] for name, address in zip(WORKERS, free_addresses(len(WORKERS)))}
    tf = tensorflow()
    hide_gpus()
    found = call_in_forks({name: partial(_work, tf, cluster, name) for name in WORKERS}, SECONDS, CAUSE)
    for name, measured in found.items():
        if set(measured["computed_on"] + measured["kept_on"]) != {_device(name)}:
            raise CheckFailed(
                f"expected {name} to compute and keep variables on {_device(name)}, found "
                f"{measured['computed_on']} and {measured['kept_on']}: TF_CONFIG is not followed; unset what sets it",
                **found,
            )
        require_same(measured, len(WORKERS))
    return {"cluster": cluster, **found}


def parameter_server(_facts: Facts) -> Measured:
    """A coordinator lays a variable on a parameter server, and functions that a worker runs add to it exactly."""
    cluster = {name: [address] for name, address in zip(("ps", "worker"), free_addresses(2))}
    tf = tensorflow()
    hide_gpus()
    with tempfile.TemporaryDirectory() as folder:
        acts: dict[str, Call] = {name: partial(_serve, tf, cluster, name, folder) for name in cluster}
        acts["coordinator"] = partial(_coordinate, tf, cluster)
        found = call_in_forks(acts, SECONDS, CAUSE, serving=tuple(cluster))["coordinator"]
    expected = {
        "kept_on": _device("ps"),
        "computed_by": ["worker"],
        "total": BEGIN + sum(range(CALLS)),
        "results": [2.0 * number for number in range(CALLS)],
    }
    if found != expected:
        raise CheckFailed(
            f"expected {expected}, found {found}: the cluster computes or keeps something elsewhere, or loses "
            "updates; try another TensorFlow",
            cluster=cluster,
            **found,
        )
    return {"cluster": cluster, **found}


def free_addresses(count: int) -> list[str]:
    """Loopback addresses with ports that are free now; all are held until the last is known, so they differ."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{holder.getsockname()[1]}" for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def _device(job: str) -> str:
    return f"/job:{job}/replica:0/task:0/device:CPU:0"


def _work(tf: Any, cluster: Cluster, name: str) -> Measured:
    """One process of the two. The worker starts with other weights: it must get those of the chief."""
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": name, "index": 0}})
    experimental = tf.distribute.experimental
    ring = experimental.CommunicationOptions(implementation=experimental.CommunicationImplementation.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    start = START if name == "chief" else (0.0,) * len(START)
    measured: Measured = train(tf, strategy, start)
    return measured


def _serve(tf: Any, cluster: Cluster, name: str, folder: str) -> None:
    """Be a server, in a directory of its own with a file that says its name."""
    home = Path(folder, name)
    home.mkdir()
    (home / TASK).write_text(name)
    os.chdir(home)
    server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=name, task_index=0, protocol="grpc")
    server.join()


def _coordinate(tf: Any, cluster: Cluster) -> Measured:
    spec = tf.train.ClusterSpec(cluster)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(BEGIN)

    def add(number: Any) -> Any:
        total.assign_add(number)
        # The path is relative: only the process that runs this knows the file.
        return number * 2, tf.io.read_file(TASK)

    numbers = [tf.constant(float(number)) for number in range(CALLS)]
    scheduled = tf.function(add, autograph=False)
    results = [coordinator.schedule(scheduled, args=(number,)) for number in numbers]
    coordinator.join()
    fetched = [result.fetch() for result in results]
    return {
        "kept_on": total.device,
        "computed_by": sorted({task.decode() for _, task in fetched}),
        "total": float(total.numpy()),
        "results": [float(twice) for twice, _ in fetched],
    }

"""Strategies over several processes: here on the loopback interface, for `member.py` over the network of containers."""

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
        require_place(measured, name, 0, **found)
        require_same(measured, len(WORKERS))
    return {"cluster": cluster, **found}


def require_place(measured: Measured, job: str, index: int, **found: Any) -> None:
    """Raise CheckFailed, with what was found, unless a task computed and kept its variables on its own processor."""
    place = device_of(job, index)
    if set(measured["computed_on"] + measured["kept_on"]) != {place}:
        raise CheckFailed(
            f"expected {job} {index} to compute and keep variables on {place}, found "
            f"{measured['computed_on']} and {measured['kept_on']}: TF_CONFIG is not followed; unset what sets it",
            **found,
        )


def parameter_server(_facts: Facts) -> Measured:
    """A coordinator lays a variable on a parameter server, and functions that a worker runs add to it exactly."""
    cluster = {name: [address] for name, address in zip(("ps", "worker"), free_addresses(2))}
    tf = tensorflow()
    hide_gpus()
    with tempfile.TemporaryDirectory() as folder:
        acts: dict[str, Call] = {name: partial(_serve, tf, cluster, name, folder) for name in cluster}
        acts["coordinator"] = partial(_coordinate, tf, cluster)
        found = call_in_forks(acts, SECONDS, CAUSE, serving=tuple(cluster))["coordinator"]
    return {"cluster": cluster, **require_updates(found, ["worker"], cluster=cluster)}


def require_updates(found: Measured, workers: list[str], **measured: Any) -> Measured:
    """What was found. Raises CheckFailed unless some of the workers did every call, and no update is lost."""
    expected = {
        "kept_on": device_of("ps"),
        "computed_by": sorted(set(workers) & set(found["computed_by"])) or workers,
        "total": BEGIN + sum(range(CALLS)),
        "results": [2.0 * number for number in range(CALLS)],
    }
    if found != expected:
        raise CheckFailed(
            f"expected {expected}, found {found}: the cluster computes or keeps something elsewhere, or loses "
            "updates; try another TensorFlow",
            **measured,
            **found,
        )
    return found


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


def device_of(job: str, index: int = 0) -> str:
    """Return the full name of a task's processor."""
    return f"/job:{job}/replica:0/task:{index}/device:CPU:0"


def _work(tf: Any, cluster: Cluster, name: str) -> Measured:
    """One process of the two."""
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": name, "index": 0}})
    return train_as_member(tf, is_first=name == "chief")


def train_as_member(tf: Any, is_first: bool) -> Measured:
    """Train in the cluster of TF_CONFIG. Only the first has the right start: its peers must get its weights."""
    experimental = tf.distribute.experimental
    ring = experimental.CommunicationOptions(implementation=experimental.CommunicationImplementation.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    measured: Measured = train(tf, strategy, START if is_first else (0.0,) * len(START))
    return measured


def _serve(tf: Any, cluster: Cluster, name: str, folder: str) -> None:
    home = Path(folder, name)
    home.mkdir()
    os.chdir(home)
    serve(tf, cluster, name, 0, name)


def serve(tf: Any, cluster: Cluster, job: str, index: int, name: str) -> None:
    """Be a server that never ends, with a file in the current directory that says its name."""
    Path(TASK).write_text(name)
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index, protocol="grpc").join()


def _coordinate(tf: Any, cluster: Cluster) -> Measured:
    spec = tf.train.ClusterSpec(cluster)
    return coordinate(tf, tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc"))


def coordinate(tf: Any, resolver: Any) -> Measured:
    """Give the functions to the workers of a cluster; return where they ran and what they found."""
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

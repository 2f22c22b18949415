"""tfimg-cluster in containers: training by two on a network of their own, a missing one, exit codes, signals."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from docker.models.containers import Container

from support.containers import container, run_container
from support.docker_daemon import wait_until
from support.registry_container import docker
from tfimg.engine.docker import DockerEngine

from .conftest import Built

pytestmark = pytest.mark.full

TRAIN = """
import json, os
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
inputs = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
targets = inputs @ np.array([[1.0], [-2.0], [3.0], [0.5]], dtype="float32")
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(16).with_options(options)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(4,))])
    model.compile("sgd", "mse")
model.fit(data, epochs=3, verbose=0)
weights = [value for array in model.get_weights() for value in np.ravel(array).tolist()]
print(json.dumps({"replicas": strategy.num_replicas_in_sync, "weights": weights}))
"""
BOUND = 1e-6
"""Largest difference of weights below 1 after twelve steps of float32, whose gradients are summed in another order:
1.5e-8 was measured."""


@pytest.fixture
def network(engine: DockerEngine) -> Iterator[str]:
    name = f"tfimg-test-{secrets.token_hex(8)}"
    docker("network", "create", name, host=engine.host)
    yield name
    docker("network", "rm", name, host=engine.host)


def launch(
    stack: ExitStack,
    engine: DockerEngine,
    built: Built,
    command: list[str],
    *,
    name: str = "",
    env: Mapping[str, str] | None = None,
    **settings: Any,
) -> Container:
    prepared = stack.enter_context(container(engine, built.name, **settings)).with_command(command)
    prepared.with_name(name or f"tfimg-test-{secrets.token_hex(8)}")
    for variable, value in (env or {}).items():
        prepared.with_env(variable, value)
    running: Container = prepared.start().get_wrapped_container()
    return running


def stop_after(running: Container, line: bytes) -> int:
    """Stop a container that has printed a line; return its exit code."""
    wait_until(lambda: line in running.logs())
    running.stop(timeout=30)
    return ended(running)[0]


def ended(running: Container) -> tuple[int, str, str]:
    status = running.wait(timeout=120)["StatusCode"]
    stdout, stderr = (running.logs(stdout=out, stderr=not out).decode(errors="replace") for out in (True, False))
    return status, stdout, stderr


def test_two_containers_train_as_one(engine: DockerEngine, built: Built, network: str) -> None:
    hosts = [f"{network}-{number}" for number in range(2)]
    environment = {"TFIMG_CLUSTER": f"worker={','.join(hosts)}", "TFIMG_TASK": "worker", "TF_CPP_MIN_LOG_LEVEL": "2"}
    command = ["tfimg-cluster", "--wait", "60s", "--", "python", "-c", TRAIN]
    with ExitStack() as stack:
        running = [
            launch(stack, engine, built, command, name=host, env=environment, network=network, hostname=host)
            for host in hosts
        ]
        results = [ended(each) for each in running]
    alone = run_container(engine, built.name, *command, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert "no cluster found: one process alone" in alone.stderr
    expected = json.loads(alone.stdout.splitlines()[-1])
    assert expected["replicas"] == 1
    for number, (status, stdout, stderr) in enumerate(results):
        assert status == 0, stderr[-3000:]
        assert f"worker {number} of worker=2" in stderr
        trained = json.loads(stdout.splitlines()[-1])
        assert trained["replicas"] == 2
        assert trained["weights"] == pytest.approx(expected["weights"], abs=BOUND)


def test_a_peer_that_never_comes_is_named(engine: DockerEngine, built: Built, network: str) -> None:
    command = [
        "tfimg-cluster",
        "--wait",
        "3s",
        "--task",
        "worker:0",
        "--cluster",
        "worker=train-0,train-1",
        "--",
        "true",
    ]
    done = run_container(engine, built.name, *command, network=network, hostname="train-0")
    assert done.status == 83
    assert "a peer is missing: worker 1 (train-1:2222): its name does not resolve" in done.stderr


def test_as_first_process_it_passes_signals_and_exit_codes_on(engine: DockerEngine, built: Built) -> None:
    """Without an init, a signal without a handler is ignored in the first process of a container, not in others."""
    settings: dict[str, Any] = {"entrypoint": ["tfimg-cluster", "--"]}
    assert run_container(engine, built.name, "sh", "-c", "exit 9", **settings).status == 9
    with ExitStack() as stack:
        program = ["sh", "-c", "sleep 0.1 & echo ready; exec sleep 100"]
        assert stop_after(launch(stack, engine, built, program, **settings), b"ready") == 143
    with ExitStack() as stack:
        settings = {"entrypoint": ["tfimg-cluster", "--task=worker:0", "--cluster=worker=a,b"]}
        assert stop_after(launch(stack, engine, built, ["--", "true"], **settings), b"worker 0 of worker=2") == 143

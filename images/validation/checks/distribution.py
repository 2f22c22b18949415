"""One model on several devices or processes gives the weights that one device gives with the whole batch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import device_under_test, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

# A linear model of small whole numbers and two steps of gradient descent, with powers of two as rate and as number
# of rows: every product, and every sum in any order, has fewer than 24 bits. So float32 makes no error on any device.
ROWS, FEATURES, STEPS = 8, 4, 2
RATE = 2.0**-5
START = (1.0, -2.0, 0.0, 3.0)
REPLICAS = 2
# What two replicas may have of one GPU; the model needs a kilobyte.
GPU_MIB = 1024


def mirrored(facts: Facts) -> Measured:
    """Two steps of `MirroredStrategy` on several devices give exactly the weights of one device.

    They are real ones where the machine has two or more, else halves of the only one.
    """
    tf = tensorflow()
    kind = device_under_test(tf, facts).split(":")[1]
    physical = tf.config.list_physical_devices(kind)
    if len(physical) < REPLICAS:
        limit = GPU_MIB if kind == "GPU" else None
        halves = [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * REPLICAS
        tf.config.set_logical_device_configuration(physical[0], halves)
    replicas = replica_count(len(physical))
    measured = train_on(tf, [f"{kind}:{number}" for number in range(replicas)])
    return {"physical": len(physical), **measured}


def replica_count(devices: int) -> int:
    """Return how many replicas to have on so many devices: at least two, and a divisor of the rows."""
    return max(count for count in range(1, ROWS + 1) if ROWS % count == 0 and count <= max(devices, REPLICAS))


def train_on(tf: Any, names: list[str]) -> Measured:
    """Train on logical devices, a replica on each. Raises CheckFailed unless that is so, and exact."""
    # A replica on a device that is not there would otherwise be computed elsewhere.
    tf.config.set_soft_device_placement(False)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    # Not NCCL, the default on GPUs: it refuses to use one GPU twice, and gpu.nccl tries it.
    strategy = tf.distribute.MirroredStrategy(names, cross_device_ops=tf.distribute.ReductionToOneDevice())
    measured = train(tf, strategy, START)
    wanted = [f"/job:localhost/replica:0/task:0/device:{name}" for name in names]
    if [measured["computed_on"], measured["kept_on"]] != [wanted, wanted]:
        raise CheckFailed(
            f"expected a replica on each of {names}, found {measured['computed_on']} computing and variables on "
            f"{measured['kept_on']}: the strategy ignores its devices; see devices.logical",
            **measured,
        )
    return require_same(measured, len(names))


def batch() -> tuple[list[list[float]], list[float]]:
    """Inputs from -2 to 2 and targets from -3 to 3, without a pattern that a part of the rows would have too."""
    inputs = [[float(row * (3 * column + 7) % 5 - 2) for column in range(FEATURES)] for row in range(1, ROWS + 1)]
    return inputs, [float(row * 5 % 7 - 3) for row in range(ROWS)]


def expected_weights() -> list[float]:
    """What one device finds with the whole batch."""
    inputs, targets = batch()
    weights = list(START)
    for _ in range(STEPS):
        errors = [sum(x * w for x, w in zip(row, weights)) - target for row, target in zip(inputs, targets)]
        slopes = [2 / ROWS * sum(e * x for e, x in zip(errors, column)) for column in zip(*inputs)]
        weights = [w - RATE * slope for w, slope in zip(weights, slopes)]
    return weights


def require_same(measured: Measured, replicas: int) -> Measured:
    """What was measured. Raises CheckFailed unless so many replicas shared the rows and hold the exact weights."""
    if measured["replicas"] != replicas or set(measured["rows"]) != {ROWS // replicas}:
        raise CheckFailed(
            f"expected {replicas} replicas with {ROWS // replicas} rows each, found {measured['replicas']} with "
            f"{measured['rows']}: the strategy does not divide the work; compare TensorFlow with the lock",
            **measured,
        )
    wrong = [weights for weights in measured["weights"] if weights != expected_weights()]
    if wrong:
        raise CheckFailed(
            f"expected the weights {expected_weights()} in every replica, found {wrong[0]}: the sum of the "
            "gradients over the replicas is wrong or incomplete; try another TensorFlow",
            **measured,
        )
    return measured


def train(tf: Any, strategy: Any, start: tuple[float, ...]) -> Measured:
    """Two steps whose replicas share the batch: how many, what each of this process held, and where."""
    np, context = importlib.import_module("numpy"), tf.distribute.get_replica_context
    data = tf.data.Dataset.from_tensor_slices(tuple(np.float32(part) for part in batch())).batch(ROWS)
    part = next(iter(strategy.experimental_distribute_dataset(data)))
    with strategy.scope():
        weights = tf.Variable(start, dtype=tf.float32)
    computed_on = []

    def replica(inputs: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = tf.reduce_sum(inputs * weights, axis=1)
            loss = tf.reduce_sum(tf.square(outputs - targets)) / ROWS
        computed_on.append(outputs.device)
        slope = context().all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, weights))
        weights.assign_sub(RATE * slope)
        return outputs

    # Traced once: each trace of `run` may wait a second for the thread of a replica to end.
    step = tf.function(lambda: strategy.run(replica, part), autograph=False)
    for _ in range(STEPS):
        outputs = strategy.experimental_local_results(step())
    own = strategy.experimental_local_results(weights)
    return {
        "replicas": strategy.num_replicas_in_sync,
        "computed_on": computed_on,
        "kept_on": [value.device for value in own],
        "rows": [len(value) for value in outputs],
        "weights": [value.numpy().tolist() for value in own],
    }

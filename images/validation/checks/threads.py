"""TensorFlow has as many threads as it is told to have."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from emulation import extend
from forks import call_in_fork
from framework import tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from contract import Facts, Measured

TASKS = Path("/proc/self/task")
FEW = (1, 1)
MANY = (5, 3)
# Threads start and end a little later than the work that needs them, the later the busier the machine is: 11 and 4
# instead of 10 and 4 were once counted on two busy cores.
STEADY_SECONDS = 0.3
LATEST_SECONDS = 5.0


def settings(_facts: Facts) -> Measured:
    """Settings of more threads, inside operations and between them, give the process that many more threads.

    Two processes work with different settings; what else they start is the same in both, and goes out of the
    difference.
    """
    tensorflow()
    few, many = call_in_fork(lambda: _worked(*FEW)), call_in_fork(lambda: _worked(*MANY))
    measured = {"few": few, "many": many}
    if isinstance(few, str) or isinstance(many, str):
        raise CheckFailed(
            f"expected the numbers of threads to be set before the first operation, found {few} and {many}: "
            "TensorFlow was used already, or its runtime did not start; see devices.listing",
            **measured,
        )
    more = sum(MANY) - sum(FEW)
    if (few["set"], many["set"]) != (list(FEW), list(MANY)) or many["threads"] - few["threads"] != more:
        raise CheckFailed(
            f"expected {more} threads more with {MANY} than with {FEW} inside and between operations, found "
            f"{many['threads']} and {few['threads']} threads: TensorFlow ignores the settings, so that it takes "
            "more of a shared machine than it is given; its runtime is damaged or of another build",
            **measured,
        )
    return measured


def _worked(inside: int, between: int) -> dict[str, Any]:
    """The settings as TensorFlow has them, and the threads after work that needs them."""
    tf = tensorflow()
    tf.config.set_visible_devices(tf.config.list_physical_devices("CPU"))
    threading = tf.config.threading
    threading.set_intra_op_parallelism_threads(inside)
    threading.set_inter_op_parallelism_threads(between)
    matrix = tf.ones([256, 256])
    tf.matmul(matrix, matrix).numpy()
    return {
        "set": [threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()],
        "threads": steady(lambda: len(list(TASKS.iterdir()))),
    }


def steady(count: Callable[[], int]) -> int:
    """Return a number once it has stayed the same for `STEADY_SECONDS`, or what it is after `LATEST_SECONDS`."""
    found, since = count(), time.monotonic()
    latest = since + extend(LATEST_SECONDS)
    while time.monotonic() < min(since + extend(STEADY_SECONDS), latest):
        time.sleep(0.02)
        now = count()
        if now != found:
            found, since = now, time.monotonic()
    return found

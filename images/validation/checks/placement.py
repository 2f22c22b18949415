"""Placement of operations: on logical devices, with soft placement, and in the log.

Each check needs a TensorFlow that was not used yet: devices cannot be split, nor hidden, once it has started.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped
from framework import require_placement, strictly_on, tensorflow

from .devices import TASK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Callable

    from contract import Facts, Measured

# No machine has so many GPUs.
NOWHERE = "/device:GPU:99"
CPU = "/device:CPU:0"
SUM = 36.0


def two_cpus(_facts: Facts) -> Measured:
    """One CPU can be two devices, for tests of distributed programs; each has its name and adds up what it is given."""
    tf = _with_cpus_only()
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)
    names = [device.name for device in tf.config.list_logical_devices("CPU")]
    found = [_sum_on(tf, name) for name in names]
    measured = {"logical": names, "sums": dict(found)}
    expected = {f"{TASK}/device:CPU:{number}": SUM for number in range(2)}
    if measured["sums"] != expected:
        raise CheckFailed(
            f"expected the sums {expected}, found {measured['sums']}: the CPU was not split in two, or they ran "
            "elsewhere; something used TensorFlow before, or its runtime is damaged",
            **measured,
        )
    return measured


def soft(_facts: Facts) -> Measured:
    """On a device that does not exist, an operation raises; with soft placement it runs on the CPU and says so."""
    tf = _with_cpus_only()
    ways = {"eager": _total, "function": tf.function(_total)}
    measured: Measured = {"refused": {}, "device": {}}
    for way, total in ways.items():
        with strictly_on(tf, NOWHERE):
            measured["refused"][way] = _refusal(tf, total)
    for way, total in ways.items():
        with strictly_on(tf, NOWHERE, soft=True):
            measured["device"][way] = require_placement(total(tf), CPU)
    if "InvalidArgumentError" not in min(measured["refused"].values()):
        raise CheckFailed(
            f"expected InvalidArgumentError for {NOWHERE}, found {measured['refused']}: soft placement stays on, so "
            "that programs run on another device than they name; unset what turns it on",
            **measured,
        )
    return measured


def log(_facts: Facts) -> Measured:
    """With placement logged, TensorFlow writes to standard error which device a product runs on."""
    tf = _with_cpus_only()
    tf.debugging.set_log_device_placement(True)
    with _standard_error() as said:
        with tf.device(CPU):
            product = tf.matmul(tf.ones([8, 8]), tf.ones([8, 8]))
        lines = [line for line in said() if "MatMul" in line]
    measured = {"device": require_placement(product, CPU), "lines": lines[:3]}
    if not any(re.search(rf"MatMul.*{re.escape(TASK + CPU)}", line) for line in lines):
        # jax, which TensorFlow 2.12 imports, sets it too, and too late to have an effect: hence not asked first.
        level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0")
        if level != "0":
            raise CheckSkipped(f"TF_CPP_MIN_LOG_LEVEL={level} hides TensorFlow's log; unset it")
        raise CheckFailed(
            f"expected a line that names MatMul and {TASK}{CPU}, found {lines or 'none'}: TensorFlow does not log "
            "where operations run; its logging is set up otherwise",
            **measured,
        )
    return measured


def _with_cpus_only() -> Any:
    """TensorFlow with its accelerators hidden: what is asked here needs none, and they take long to start."""
    tf = tensorflow()
    tf.config.set_visible_devices(tf.config.list_physical_devices("CPU"))
    return tf


def _total(tf: Any) -> Any:
    return tf.reduce_sum(tf.range(1.0, 9.0))


def _sum_on(tf: Any, name: str) -> tuple[str, float]:
    with strictly_on(tf, name):
        total = _total(tf)
    return str(total.device), float(total)


def _refusal(tf: Any, total: Callable[[Any], Any]) -> str:
    try:
        return f"a result on {total(tf).device}"
    except tf.errors.InvalidArgumentError as error:
        return type(error).__name__


@contextmanager
def _standard_error() -> Iterator[Callable[[], list[str]]]:
    """What is written to descriptor 2 meanwhile: C++ does not go through `sys.stderr`."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)

        def said() -> list[str]:
            size = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), size, 0).decode(errors="replace").splitlines()

        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)

"""Import TensorFlow once, and choose the device that the checks run on.

Checks call `tensorflow()` in their bodies: with an import at the top of a file, a broken TensorFlow would end the whole
run instead of failing one check.
"""

from __future__ import annotations

import importlib
import os
import time
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from contract import CheckFailed, CheckSkipped, Facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

PLATFORM = {"cpu": "CPU", "gpu": "GPU", "tpu": "TPU"}
# Names the device to run on where no accelerator is to be validated; it cannot stand for a GPU.
TEST_DEVICE = "TFIMG_TEST_DEVICE"


class Operation(NamedTuple):
    """What TensorFlow executed: the kind, such as MatMul, and the full name of the device."""

    kind: str
    device: str


class Import(NamedTuple):
    """How the only attempt went: `module` is TensorFlow, or `error` says why there is none."""

    module: Any
    error: BaseException | None
    seconds: float


_given_up: list[str] = []


def give_up(reason: str) -> None:
    """Do not try to import TensorFlow in this process: an attempt in another one ended badly."""
    _given_up.append(reason)


@lru_cache(maxsize=1)
def attempt() -> Import:
    """Import TensorFlow at the first call; a second attempt after a failed one would end in another error."""
    # Else the first kernel takes nearly all memory of a GPU, and checks that start a process find none left.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if _given_up:
        return Import(None, ImportError(_given_up[0]), 0.0)
    began = time.monotonic()
    module: Any = None
    error: BaseException | None = None
    try:
        module = importlib.import_module("tensorflow")
        # A folder named tensorflow imports too, as a namespace without content.
        if not hasattr(module, "__version__"):
            raise ImportError(f"{module!r} is not TensorFlow: it was removed, or another folder hides it")
    # Some packages exit where they should raise.
    except (Exception, SystemExit) as reason:
        error = reason
    return Import(module, error, round(time.monotonic() - began, 3))


def tensorflow() -> Any:
    """The TensorFlow module. Raises CheckSkipped when it did not import."""
    if attempt().error is not None:
        raise CheckSkipped("TensorFlow does not import, so this could not be tried; see environment.import_tensorflow")
    return attempt().module


def device_under_test(tf: Any, facts: Facts) -> str:
    """The device to run on: "/device:GPU:0" where a GPU image is to be validated, else "/device:CPU:0".

    What a TPU computes is asked in a module of its own. Raises CheckSkipped when there is no such device.
    """
    if (facts.device, facts.level) != ("gpu", "validated"):
        # Tests of the suite name a second logical CPU, so that an operation that runs elsewhere is found.
        return os.environ.get(TEST_DEVICE, "/device:CPU:0")
    listed_gpus(tf)
    return "/device:GPU:0"


def listed_gpus(tf: Any) -> list[Any]:
    """The physical GPUs. Raises CheckSkipped without one: why there is none is told once, by gpu.visible."""
    gpus: list[Any] = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise CheckSkipped("TensorFlow lists no GPU, so this could not be tried; see gpu.visible")
    return gpus


def require_placement(tensor: Any, device: str) -> str:
    """The full name of the device that made the tensor. Raises CheckFailed when that is not `device`."""
    if not tensor.device.endswith(device):
        raise CheckFailed(
            f"expected the result on {device}, found it on {tensor.device or 'no device'}: TensorFlow ran "
            "the operation elsewhere; see devices.listing",
            device=tensor.device,
        )
    return str(tensor.device)


@contextmanager
def strictly_on(tf: Any, device: str, soft: bool = False) -> Iterator[None]:
    """Operations run on the device, or raise unless `soft`; none is computed in TensorFloat-32."""
    precision = tf.config.experimental
    before, reduced = tf.config.get_soft_device_placement(), precision.tensor_float_32_execution_enabled()
    tf.config.set_soft_device_placement(soft)
    precision.enable_tensor_float_32_execution(False)
    try:
        with tf.device(device):
            yield
    finally:
        tf.config.set_soft_device_placement(before)
        precision.enable_tensor_float_32_execution(reduced)


@contextmanager
def recorded() -> Iterator[list[Operation]]:
    """Yield a list that holds, once the block is over, what was executed in it: eagerly, and in new functions.

    The device of a result alone does not tell where its operands were computed. Eager operations without an output are
    left out, as are functions that were called before. TensorFlow's own debugger and tf.summary.trace_on learn of
    operations this way.
    """
    callbacks = importlib.import_module("tensorflow.python.framework.op_callbacks")
    context = importlib.import_module("tensorflow.python.eager.context").context()
    found: list[Operation] = []

    def note(kind: Any, _inputs: Any, _attrs: Any, outputs: Any, *_name: Any, graph: Any = None, **_rest: Any) -> None:
        # While a function is traced, nothing is executed.
        if graph is None and outputs:
            found.append(Operation(kind.decode() if isinstance(kind, bytes) else kind, outputs[0].device))

    context.ensure_initialized()
    context.enable_run_metadata()
    callbacks.add_op_callback(note)
    try:
        yield found
    finally:
        callbacks.remove_op_callback(note)
        functions = context.export_run_metadata().function_graphs
        context.disable_run_metadata()
    found += [
        Operation(node.op, node.device)
        for function in functions
        for graph in function.partition_graphs
        for node in graph.node
    ]


def require_operations(operations: Sequence[Operation], device: str, *kinds: str) -> list[str]:
    """Return the kinds of recorded operations whose names contain one of `kinds`.

    Raises CheckFailed when one of these is missing, or did not run on the device.
    """
    chosen = [one for one in operations if any(kind in one.kind for kind in kinds)]
    missing = [kind for kind in kinds if not any(kind in one.kind for one in chosen)]
    if missing:
        raise CheckFailed(
            f"expected {', '.join(missing)} on {device}, found no such operation: TensorFlow or Keras computes "
            "it in another way than this check knows; compare both versions with the lock",
            operations=sorted({one.kind for one in operations}),
        )
    elsewhere = sorted({f"{one.kind} on {one.device}" for one in chosen if not one.device.endswith(device)})
    if elsewhere:
        raise CheckFailed(
            f"expected {', '.join(kinds)} on {device}, found {', '.join(elsewhere)}: TensorFlow ran the operation "
            "elsewhere; see devices.listing",
            elsewhere=elsewhere,
        )
    return sorted({one.kind for one in chosen})

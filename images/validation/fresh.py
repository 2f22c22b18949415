"""`python fresh.py QUESTION KIND`: what only a process that has not used TensorFlow yet can tell; one JSON line.

KIND is GPU; CPU serves to try what does not need one.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import time
from typing import TYPE_CHECKING

from stream import claim_stdout

if TYPE_CHECKING:
    from typing import Any, Callable

MIB = 2**20


def growth(tf: Any, kind: str) -> dict[str, Any]:
    """Whether memory growth stays on, and what a small product takes: of the GPU, and inside TensorFlow's pool."""
    devices = tf.config.list_physical_devices(kind)
    for device in devices:
        tf.config.experimental.set_memory_growth(device, True)
    before = free_bytes()
    device = first_product(tf, kind)
    return {
        "device": device,
        "growth": [tf.config.experimental.get_memory_growth(device) for device in devices],
        "free_mib": before // MIB,
        "taken_mib": (before - free_bytes()) // MIB,
        "pool_mib": tf.config.experimental.get_memory_info(f"{kind}:0")["peak"] // MIB,
    }


def free_bytes() -> int:
    """The free memory of the first GPU, from the driver (CUDA driver API, cuMemGetInfo)."""
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    codes = [
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxPushCurrent_v2(context),
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context)),
        # Not kept: TensorFlow wants to set the flags of the context itself.
        cuda.cuDevicePrimaryCtxRelease_v2(0),
    ]
    if any(codes):
        sys.exit(f"the driver answered {codes} to the question for free memory")
    return free.value


def first_kernel(tf: Any, kind: str) -> dict[str, Any]:
    """Seconds until the first product is there: start of the device, load of the code for it, or its compilation."""
    began = time.monotonic()
    device = first_product(tf, kind)
    return {"device": device, "seconds": round(time.monotonic() - began, 3)}


def first_product(tf: Any, kind: str) -> str:
    """The device of a small product. TensorFlow would take the CPU where there is no other, unless told not to."""
    tf.config.set_soft_device_placement(False)
    with tf.device(f"/device:{kind}:0"):
        product = tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
    product.numpy()
    return str(product.device)


def all_reduce(tf: Any, kind: str) -> dict[str, Any]:
    """What each device holds after a sum of 1, 2, 3 ... over all of them."""
    names = [device.name.replace("/physical_device:", "") for device in tf.config.list_physical_devices(kind)]
    strategy = tf.distribute.MirroredStrategy(names, cross_device_ops=tf.distribute.NcclAllReduce())

    def replica() -> Any:
        context = tf.distribute.get_replica_context()
        own = tf.fill([1024], tf.cast(context.replica_id_in_sync_group + 1, tf.float32))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

    # Collectives need all devices to run at once, as they do in a graph.
    values = strategy.experimental_local_results(tf.function(lambda: strategy.run(replica))())
    return {
        "replicas": strategy.num_replicas_in_sync,
        "devices": [value.device for value in values],
        "sums": [sorted(set(value.numpy().tolist())) for value in values],
    }


QUESTIONS: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "growth": growth,
    "first_kernel": first_kernel,
    "all_reduce": all_reduce,
}


def main() -> None:
    """Ask one question. TensorFlow is imported here only, so that importing this file costs nothing."""
    emit = claim_stdout()
    question, kind = sys.argv[1:]
    emit(QUESTIONS[question](importlib.import_module("tensorflow"), kind))


if __name__ == "__main__":
    main()

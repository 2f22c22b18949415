"""What a GPU shows only to a process that has not used it yet; these checks are isolated."""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped
from framework import listed_gpus, strictly_on, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Evidence, Facts

MIB = 2**20
# With code for the GPU in the wheel it takes seconds; compiling all of TensorFlow's PTX takes many minutes.
KERNEL_SECONDS = 60


def first_kernel(_facts: Facts) -> Evidence:
    """The first product is there within a minute, with nothing kept from earlier runs."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    tf = tensorflow()
    listed_gpus(tf)
    began = time.monotonic()
    device = _first_product(tf)
    seconds = round(time.monotonic() - began, 3)
    if seconds > KERNEL_SECONDS:
        raise CheckFailed(
            f"expected the first kernel within {KERNEL_SECONDS} s, found {seconds} s: PTX is being compiled, because "
            "TensorFlow has no code for this GPU; take a TensorFlow that has",
            device=device,
            seconds=seconds,
        )
    return {"device": device, "seconds": seconds}


def memory_growth(_facts: Facts) -> Evidence:
    """With memory growth on, a small product leaves more than half of the GPU's free memory to others."""
    # The option is in question, not the variable that the suite itself sets.
    os.environ.pop("TF_FORCE_GPU_ALLOW_GROWTH", None)
    tf = tensorflow()
    devices = listed_gpus(tf)
    for device in devices:
        tf.config.experimental.set_memory_growth(device, True)
    before = _free_bytes()
    evidence = {
        "device": _first_product(tf),
        "growth": [tf.config.experimental.get_memory_growth(device) for device in devices],
        "free_mib": before // MIB,
        "taken_mib": (before - _free_bytes()) // MIB,
        "pool_mib": tf.config.experimental.get_memory_info("GPU:0")["peak"] // MIB,
    }
    if not all(evidence["growth"]) or evidence["taken_mib"] * 2 >= evidence["free_mib"]:
        raise CheckFailed(
            f"expected memory growth on and little taken, found {evidence['growth']} and {evidence['taken_mib']} of "
            f"{evidence['free_mib']} MiB: TensorFlow ignores the option, or another process took memory just now; "
            "try again alone",
            **evidence,
        )
    return evidence


def nccl(_facts: Facts) -> Evidence:
    """A sum over all GPUs is right on each of them."""
    tf = tensorflow()
    listed = listed_gpus(tf)
    if len(listed) == 1:
        raise CheckSkipped("TensorFlow lists one of this machine's GPUs, and NCCL adds up over several")
    found = _all_reduce(tf, [device.name.replace("/physical_device:", "") for device in listed])
    total = len(listed) * (len(listed) + 1) / 2
    if found["replicas"] != len(listed) or found["sums"] != [[total]] * len(listed):
        raise CheckFailed(
            f"expected the sum {total} on each of {len(listed)} GPUs, found {found['sums']}: NCCL does not reach all "
            "of them; run with NCCL_DEBUG=INFO, and give the container more shared memory",
            **found,
        )
    return {"gpus": len(listed), **found}


def _first_product(tf: Any) -> str:
    """The device of a small product. TensorFlow would take the CPU where there is no other, unless told not to."""
    with strictly_on(tf, "/device:GPU:0"):
        product = tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
    product.numpy()
    return str(product.device)


def _all_reduce(tf: Any, names: list[str]) -> Evidence:
    """What each device holds after a sum of 1, 2, 3 ... over all of them."""
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


def _free_bytes() -> int:
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
        raise CheckFailed(
            f"expected the driver to tell its free memory, found the codes {codes}; see nvidia-smi"
        )
    return free.value

"""Checks of a GPU that need a process that has not used it yet; they are isolated."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from contract import CheckFailed
from driver import START_SECONDS, ask_driver, free_bytes, has_code
from framework import listed_gpus, strictly_on, tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Tuple

    from contract import Facts, Measured
    from driver import Driver

MIB = 2**20
# With code for the GPU in the wheel, the driver and a gigabyte of cuBLAS and cuDNN from a cold disk take most of it;
# compiling all of TensorFlow's PTX takes many minutes. Not measured on a GPU.
KERNEL_SECONDS = 120.0
# The operation that tf.distribute.NcclAllReduce traces, from TensorFlow 2.10 to 2.21.
NCCL_OPERATION = "NcclAllReduce"


def first_kernel(facts: Facts) -> Measured:
    """The first kernels run soon, with nothing kept from earlier runs, unless they are compiled from PTX."""
    tf, driver = tensorflow(), ask_driver()
    architectures = facts.architectures or tf.sysconfig.get_build_info().get("cuda_compute_capabilities", ())
    compiled = [gpu for gpu in driver.capabilities if architectures and not has_code(architectures, gpu)]
    if not compiled:
        # Before the runtime starts. What takes half an hour to compile is left to the checks that follow.
        os.environ["CUDA_CACHE_DISABLE"] = "1"
    listed_gpus(tf)
    return judge_first_kernel(run_first_kernels(tf, "/device:GPU:0"), driver, compiled)


def run_first_kernels(tf: Any, device: str) -> Measured:
    """Seconds until each of some operations has its result, in the order in which they run: the first starts the GPU.

    A product, a reduction, a cast and a convolution: kernels of several libraries, and of TensorFlow's own.
    """
    operations: dict[str, Callable[[], Any]] = {
        "matmul": lambda: tf.matmul(tf.ones([64, 64]), tf.ones([64, 64])),
        "reduction": lambda: tf.reduce_sum(tf.ones([64, 64])),
        "cast": lambda: tf.cast(tf.ones([64, 64]), tf.float16),
        "convolution": lambda: tf.nn.conv2d(tf.ones([1, 8, 8, 3]), tf.ones([3, 3, 3, 4]), 1, "SAME"),
    }
    seconds, devices = {}, set()
    for name, operation in operations.items():
        began = time.monotonic()
        with strictly_on(tf, device):
            result = operation()
        result.numpy()
        devices.add(str(result.device))
        seconds[name] = round(time.monotonic() - began, 3)
    return {"device": ", ".join(sorted(devices)), "seconds": seconds}


def judge_first_kernel(measured: Measured, driver: Driver, compiled: Sequence[str]) -> Measured:
    """What was measured. Raises CheckFailed for a slow start, unless `compiled` names capabilities that need PTX."""
    total, limit = sum(measured["seconds"].values()), KERNEL_SECONDS + START_SECONDS * len(driver.gpus)
    measured = {
        **measured,
        "total_seconds": round(total, 3),
        "limit_seconds": limit,
        "compiled_for": list(compiled),
    }
    if compiled:
        told = (
            f"this TensorFlow has no code for compute capability {', '.join(sorted(set(compiled)))}: its kernels are "
            f"compiled from PTX, which took {total:.0f} s here and may take half an hour in a new container; "
            "keep ~/.nv/ComputeCache in a volume, and set CUDA_CACHE_MAXSIZE=4294967296"
        )
        return {**measured, "warnings": [told]}
    if total > limit:
        cause = "TensorFlow has code for this GPU, so nothing is compiled: the driver or the disk is slow"
        if not driver.gpus:
            cause = f"PTX is compiled, or the driver or the disk is slow; it could not be asked ({driver.problem})"
        raise CheckFailed(
            f"expected the first kernels within {limit:.0f} s, found {total:.0f} s: {cause}; turn on persistence mode "
            "(nvidia-smi -pm 1) and try again",
            **measured,
        )
    return measured


def memory_growth(_facts: Facts) -> Measured:
    """With memory growth on, a small product leaves more than half of the GPU's free memory to others."""
    # The option is in question, not the variable that the suite itself sets.
    os.environ.pop("TF_FORCE_GPU_ALLOW_GROWTH", None)
    tf = tensorflow()
    devices = listed_gpus(tf)
    for device in devices:
        tf.config.experimental.set_memory_growth(device, True)
    before = free_memory()
    measured = {
        "device": run_product(tf, "/device:GPU:0"),
        "growth": [tf.config.experimental.get_memory_growth(device) for device in devices],
        "free_mib": before // MIB,
        "taken_mib": (before - free_memory()) // MIB,
        "pool_mib": tf.config.experimental.get_memory_info("GPU:0")["peak"] // MIB,
    }
    return judge_memory_growth(measured)


def judge_memory_growth(measured: Measured) -> Measured:
    """What was measured. Raises CheckFailed unless growth is on for each GPU and less than half of the memory taken."""
    if not all(measured["growth"]) or measured["taken_mib"] * 2 >= measured["free_mib"]:
        raise CheckFailed(
            f"expected memory growth on and little taken, found {measured['growth']} and {measured['taken_mib']} of "
            f"{measured['free_mib']} MiB: TensorFlow ignores the option, or another process took memory just now; "
            "try again alone",
            **measured,
        )
    return measured


def nccl(_facts: Facts) -> Measured:
    """A sum over all GPUs, by NCCL, is right on each of them."""
    tf = tensorflow()
    names = several([device.name for device in listed_gpus(tf)], ask_driver())
    return judge_all_reduce(all_reduce(tf, names), len(names))


def several(listed: Sequence[str], driver: Driver) -> Sequence[str]:
    """The names of logical devices for the physical GPUs. Raises CheckFailed where TensorFlow lists only one."""
    if len(listed) == 1:
        raise CheckFailed(
            f"expected TensorFlow to use all {len(driver.gpus)} GPUs of the driver, found 1: TensorFlow ignores "
            "the others, and NCCL adds up over several; name the GPUs to use in CUDA_VISIBLE_DEVICES"
        )
    return [name.replace("/physical_device:", "") for name in listed]


def judge_all_reduce(found: Measured, gpus: int) -> Measured:
    """What was measured. Raises CheckFailed unless NCCL added 1, 2, 3 ... up, and each of so many GPUs has the sum."""
    if NCCL_OPERATION not in found["collectives"]:
        raise CheckFailed(
            f"expected {NCCL_OPERATION} in the graph of the sum, found {found['collectives']}: TensorFlow adds up by "
            "other means, and NCCL was not tried; compare TensorFlow with the lock",
            **found,
        )
    total = gpus * (gpus + 1) / 2
    if found["replicas"] != gpus or found["sums"] != [[total]] * gpus:
        raise CheckFailed(
            f"expected the sum {total} on each of {gpus} GPUs, found {found['sums']}: NCCL does not reach all of "
            "them; run with NCCL_DEBUG=INFO, and give the container more shared memory",
            **found,
        )
    return {"gpus": gpus, **found}


def run_product(tf: Any, device: str) -> str:
    """The device of a small product. TensorFlow would take the CPU where there is no other, unless told not to."""
    with strictly_on(tf, device):
        product = tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
    product.numpy()
    return str(product.device)


def all_reduce(tf: Any, names: Sequence[str]) -> Measured:
    """What each device holds after a sum of 1, 2, 3 ... over all of them, and the graph's operations that add up."""
    strategy, function = trace_all_reduce(tf, names)
    values = strategy.experimental_local_results(function())
    return {
        "collectives": collectives(function),
        "replicas": strategy.num_replicas_in_sync,
        "devices": [value.device for value in values],
        "sums": [sorted(set(value.numpy().tolist())) for value in values],
    }


def trace_all_reduce(tf: Any, names: Sequence[str]) -> Tuple[Any, Any]:
    """A strategy over these devices, and the graph that adds 1, 2, 3 ... up over them with NCCL."""
    strategy = tf.distribute.MirroredStrategy(names, cross_device_ops=tf.distribute.NcclAllReduce())

    def replica() -> Any:
        context = tf.distribute.get_replica_context()
        own = tf.fill([1024], tf.cast(context.replica_id_in_sync_group + 1, tf.float32))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

    # Collectives need all devices to run at once, as they do in a graph.
    return strategy, tf.function(lambda: strategy.run(replica)).get_concrete_function()


def collectives(function: Any) -> Sequence[str]:
    """The types of a graph's operations that add up over devices."""
    types = {operation.type for operation in function.graph.get_operations()}
    return sorted(name for name in types if re.search("Nccl|Collective|AddN", name))


def free_memory() -> int:
    """The free bytes of the first GPU. Raises CheckFailed where the driver does not tell them."""
    try:
        return free_bytes()
    except OSError as error:
        raise CheckFailed(f"expected the driver to report its free memory, found {error}; see nvidia-smi") from None

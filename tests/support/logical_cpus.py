"""Run checks of the suite on a CPU that is not the first: a program for a Python that has TensorFlow.

`python logical_cpus.py RUNS` splits the CPU into logical devices, names the second as the device under test, and runs
checks, each in a fork. RUNS is JSON: a list of [check, function, device], the last two null or a function of
TensorFlow's, such as nn.conv2d, that shall run on that device instead. The end of each check is printed as JSON.
"""

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from check_runner import run_check
from checks import CHECKS, distribution, tpu
from contract import Check, Facts
from framework import TEST_DEVICE, tensorflow
from stream import claim_stdout

COUNT = 8
DEVICE = "/device:CPU:1"


def eight_replicas(_facts: Facts) -> dict[str, Any]:
    """Do what distribution.mirrored does on a machine with eight devices."""
    return distribution.train_on(tensorflow(), [f"CPU:{number}" for number in range(COUNT)])


def tpu_product(_facts: Facts) -> dict[str, Any]:
    """Do what tpu.matmul does once it has a TPU."""
    return tpu.product_on(tensorflow(), DEVICE)


def tpu_strategy(_facts: Facts) -> dict[str, Any]:
    """Do what tpu.strategy does once it has a TPU."""
    tf = tensorflow()
    return tpu.train_under(tf, tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))


PARTS = {
    "eight replicas": Check(eight_replicas),
    "tpu product": Check(tpu_product),
    "tpu strategy": Check(tpu_strategy),
}
TABLE = {**CHECKS, **PARTS}


def split_cpu(tf: Any) -> None:
    """Make several devices of one; TensorFlow must not have been used yet."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * COUNT)


def move(tf: Any, path: str, device: str) -> None:
    """Have one of TensorFlow's functions run on another device than the code names."""
    *folders, name = path.split(".")
    owner = functools.reduce(getattr, folders, tf)
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def moved(*arguments: Any, **options: Any) -> Any:
        # One that takes the device as an argument: prefetch_to_device.
        arguments = tuple(device if isinstance(one, str) and one.endswith("CPU:1") else one for one in arguments)
        with tf.device(device):
            return original(*arguments, **options)

    setattr(owner, name, moved)


def main() -> None:
    """Run the requested checks."""
    os.environ[TEST_DEVICE] = DEVICE
    emit, tf = claim_stdout(), tensorflow()
    for name, path, device in json.loads(sys.argv[1]):
        child = os.fork()
        if not child:
            try:
                split_cpu(tf)
                if path:
                    move(tf, path, device)
                emit({**run_check(name, TABLE[name], Facts(device="cpu")), "moved": path, "device": device})
            finally:
                os._exit(0)
        if os.waitpid(child, 0)[1]:
            emit({"check": name, "outcome": "crashed", "moved": path, "device": device})


if __name__ == "__main__":
    main()

"""The suite's GPU checks in a real TensorFlow without a GPU: what it tells of one, its graphs, its traces."""

import json
import subprocess
from typing import Any

import pytest
from checks import CHECKS

from support.fake_driver import fake_environment
from support.locked_tensorflow import SUITE, locked_releases, run_python, tensorflow_python

pytestmark = pytest.mark.full

OLDEST, *_, NEWEST = locked_releases()
RELEASES = (NEWEST, OLDEST)

# A GPU as TensorFlow 2.21 tells of an H200: its own reader of the capability raises.
HOPPER = """
import json
from tensorflow.python.eager import context
context.pywrap_tfe.TF_ListPhysicalDevices = lambda: [b"/physical_device:CPU:0", b"/physical_device:GPU:0"]
context.pywrap_tfe.TF_GetDeviceDetails = lambda index: {"device_name": "from TensorFlow", "compute_capability": "9.0a"}
from checks import gpu
from contract import Facts
print(json.dumps(gpu.visible(Facts(device="gpu", level="validated"))))
"""


def answer(release: str, script: str, **variables: str) -> Any:
    done = run_python(tensorflow_python(release), script, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("release", RELEASES)
def test_a_gpu_whose_capability_tensorflow_cannot_read_is_visible(release: str) -> None:
    reported = answer(release, HOPPER, **fake_environment("devices=1 name=NVIDIA_H200 major=9 minor=0"))
    assert (reported["gpu"], reported["capability"]) == (["NVIDIA H200"], ["9.0"])


def test_a_gpu_that_nothing_can_describe_is_visible() -> None:
    reported = answer(NEWEST, HOPPER, **fake_environment("cuInit=999"))
    assert (reported["gpu"], reported["capability"]) == (["unknown"], ["unknown"])
    assert "CUDA_ERROR_UNKNOWN" in reported["warnings"][0]


TWO = """
import json
import tensorflow as tf
from checks import gpu_start
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
names = ["/device:CPU:0", "/device:CPU:1"]
"""
COLLECTIVES = """
nccl = gpu_start.trace_all_reduce(tf, names)[1]
tf.distribute.NcclAllReduce = tf.distribute.ReductionToOneDevice
print(json.dumps([gpu_start.collectives(nccl), gpu_start.collectives(gpu_start.trace_all_reduce(tf, names)[1])]))
"""
SUM = """
tf.distribute.NcclAllReduce = tf.distribute.ReductionToOneDevice
print(json.dumps(gpu_start.all_reduce(tf, names)))
"""


@pytest.mark.parametrize("release", RELEASES)
def test_the_graph_of_a_sum_names_nccl_only_where_nccl_adds_up(release: str) -> None:
    nccl, other = answer(release, TWO + COLLECTIVES)
    assert "NcclAllReduce" in nccl
    assert "NcclAllReduce" not in other


def test_a_sum_over_two_devices_is_reported_for_each() -> None:
    reported = answer(NEWEST, TWO + SUM)
    assert (reported["replicas"], reported["sums"]) == (2, [[3.0], [3.0]])


KERNELS = """
print(json.dumps(gpu_start.run_first_kernels(tf, "/device:CPU:1")))
"""


def test_each_first_kernel_runs_on_the_device_it_names() -> None:
    reported = answer(NEWEST, TWO + KERNELS)
    assert reported["device"].endswith("/device:CPU:1")
    assert list(reported["seconds"]) == ["matmul", "reduction", "cast", "convolution"]


PARTS = """
from checks import devices
print(json.dumps([
    gpu_start.run_product(tf, "/device:CPU:1"), devices.refusal(tf, 8), devices.refusal(tf, 2**48)]))
"""


def test_a_product_runs_on_the_device_it_names_and_too_much_memory_is_refused() -> None:
    device, fits, beyond = answer(NEWEST, TWO + PARTS)
    assert device.endswith("/device:CPU:1")
    assert (fits, beyond) == ("no error", "ResourceExhaustedError")


@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_without_an_accelerator_no_check_of_it_is_green(device: str) -> None:
    """A driver that lists two GPUs is not enough; TensorFlow for the processor finds neither kind of device."""
    names = [name for name, check in CHECKS.items() if device in check.devices and check.level == "validated"]
    assert len(names) >= 3
    done = subprocess.run(
        [str(tensorflow_python(NEWEST)), str(SUITE), "--json", "--device", device, "--level", "validated",
         "--only", *names],
        env=fake_environment("devices=2 name=NVIDIA_H200 major=9 minor=0"), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = {event["check"]: event["outcome"] for event in events if event["event"] == "end"}
    assert list(outcomes) == names, done.stderr
    assert set(outcomes.values()) <= {"failed", "skipped"}, outcomes
    assert "failed" in outcomes.values()


# XSpace with a plane of the processor, a GPU's without events, a GPU's with two lines, and an error.
TRACE = """
import json
import tensorflow as tf
from checks import profiler
def field(number, content): return bytes([number << 3 | 2, len(content)]) + content
def plane(name, lines): return field(1, field(2, name) + b"".join(field(3, b"\\x08\\x01") for _ in range(lines)))
space = (plane(b"/host:CPU", 1) + plane(b"/device:GPU:0", 0) + plane(b"/device:GPU:1", 2)
         + field(2, b"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"))
from contract import Facts
print(json.dumps([profiler.read_trace(tf, space), profiler.profiler(Facts(device="cpu", level="validated"))]))
"""


@pytest.mark.parametrize("release", RELEASES)
def test_planes_of_gpus_are_found_in_a_trace(release: str) -> None:
    (lines, errors), traced = answer(release, TRACE)
    assert lines == {"/device:GPU:0": 0, "/device:GPU:1": 2}
    assert errors == ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"]
    assert (traced["named"], traced["gpu_lines"]) == (["tfimg_step", "MatMul"], {})
    assert "warnings" not in traced

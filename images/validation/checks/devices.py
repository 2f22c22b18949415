"""The devices that TensorFlow lists, and limits of their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped, claimed
from framework import PLATFORM, listed_gpus, strictly_on, tensorflow

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from contract import Facts, Measured

TASK = "/job:localhost/replica:0/task:0"
TELLS = {"gpu": "gpu.visible", "tpu": "tpu.cores"}
MIB = 2**20
LIMIT_MIB = 512


def listing(facts: Facts) -> Measured:
    """A CPU is listed always, an accelerator only in the image made for it; each computes under its full name.

    Why the image's own accelerator is absent where it must be there is told once, by the check of that device.
    """
    tf = tensorflow()
    physical, logical = tf.config.list_physical_devices(), tf.config.list_logical_devices()
    kinds = {device.device_type for device in physical}
    measured = {
        "physical": [device.name for device in physical],
        "logical": [device.name for device in logical],
    }
    require_kinds(kinds, facts, measured)
    # A TPU computes only after it was started, which tpu.cores does; TPU_SYSTEM, listed beside it, never.
    names = [one.name for one in logical if one.device_type in ("CPU", "GPU")]
    measured["full"] = _full_names(tf, names)
    if measured["full"] != [TASK + name for name in names]:
        raise CheckFailed(
            f"expected tensors on {measured['logical']} of {TASK}, found them on {measured['full']}: TensorFlow runs "
            "operations on another device than requested; something has connected it to a cluster",
            **measured,
        )
    return measured


def require_kinds(kinds: Collection[str], facts: Facts, measured: Measured) -> None:
    """Raise CheckFailed unless the kinds of devices are those of the image, CheckSkipped where its own is absent."""
    if "CPU" not in kinds:
        raise CheckFailed("expected a CPU, found none: the runtime did not start; read its log", **measured)
    device = claimed(facts.device, "the device")
    if facts.level == "validated" and PLATFORM[device] not in kinds:
        raise CheckSkipped(f"TensorFlow lists no {PLATFORM[device]}; see {TELLS[device]}")
    strangers = {"GPU", "TPU"}.intersection(kinds) - {PLATFORM[device]}
    if strangers:
        raise CheckFailed(
            f"expected no accelerator beside {PLATFORM[device]}, found {sorted(strangers)}: this is the "
            "wheel of another device; install the locked one",
            **measured,
        )


def memory_limit(_facts: Facts) -> Measured:
    """A GPU whose memory is limited gives what fits, and refuses what does not.

    The refusal takes ten seconds: TensorFlow waits for memory to become free.
    """
    tf = tensorflow()
    gpus = listed_gpus(tf)
    limited = tf.config.LogicalDeviceConfiguration(memory_limit=LIMIT_MIB)
    tf.config.set_logical_device_configuration(gpus[0], [limited])
    with strictly_on(tf, "/device:GPU:0"):
        fits = tf.zeros([LIMIT_MIB * MIB // 16])
        measured = {
            "device": fits.device,
            "limit_mib": LIMIT_MIB,
            "beyond": refusal(tf, 2 * LIMIT_MIB * MIB // 4),
        }
    return judge_memory_limit(measured)


def judge_memory_limit(measured: Measured) -> Measured:
    """What was measured. Raises CheckFailed unless what is beyond the limit was refused, on a GPU."""
    if measured["beyond"] != "ResourceExhaustedError" or "GPU" not in measured["device"]:
        raise CheckFailed(
            f"expected {2 * LIMIT_MIB} MiB to be refused on a GPU limited to {LIMIT_MIB} MiB, found "
            f"{measured['beyond']} on {measured['device']}: TensorFlow ignores the limit; another allocator was "
            "chosen (TF_GPU_ALLOCATOR), which takes what it needs",
            **measured,
        )
    return measured


def refusal(tf: Any, numbers: int) -> str:
    """The name of the error with which TensorFlow refuses memory for so many numbers of float32."""
    try:
        tf.zeros([numbers])
    except tf.errors.ResourceExhaustedError as error:
        return type(error).__name__
    return "no error"


def _full_names(tf: Any, names: list[str]) -> list[str]:
    """The device that a sum says it was computed on, where it was asked for on each of these."""
    found = []
    for name in names:
        with strictly_on(tf, name):
            found.append(str(tf.reduce_sum(tf.ones([8])).device))
    return found

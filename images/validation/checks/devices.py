"""Which devices TensorFlow sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract import CheckFailed, claimed
from framework import PLATFORM, tensorflow

if TYPE_CHECKING:
    from contract import Evidence, Facts


def listing(facts: Facts) -> Evidence:
    """A CPU is listed always, an accelerator only in the image made for it.

    To prove the level "validated", the image's own accelerator must be listed; absent is never skipped.
    """
    tf = tensorflow()
    physical = tf.config.list_physical_devices()
    kinds = {device.device_type for device in physical}
    evidence = {
        "physical": [device.name for device in physical],
        "logical": [device.name for device in tf.config.list_logical_devices()],
    }
    if "CPU" not in kinds:
        raise CheckFailed("expected a CPU, found none: the runtime did not start; read its log", **evidence)
    device = claimed(facts.device, "the device")
    if facts.level == "validated" and PLATFORM[device] not in kinds:
        raise CheckFailed(
            f"expected a {PLATFORM[device]}, found {sorted(kinds)}: the container was started without it, "
            "the driver is too old, or a library did not load; read TensorFlow's log lines about it",
            **evidence,
        )
    strangers = kinds & {"GPU", "TPU"} - {PLATFORM[device]}
    if strangers:
        raise CheckFailed(
            f"expected no accelerator beside {PLATFORM[device]}, found {sorted(strangers)}: this is the "
            "wheel of another device; install the locked one",
            **evidence,
        )
    return evidence

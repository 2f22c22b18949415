"""Choose the level that a validation can prove on this host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfimg.core.errors import NoAccelerator, NoContainerToolkit, NoEmulation, UnavailableDriver, UnavailableGpu
from tfimg.engine.machine import EMULATE
from tfimg.engine.protocol import DeviceAccess
from tfimg.host.accelerators import ALL_GPUS, check_gpu, check_tpu, choose_gpu_access
from tfimg.host.survey import TargetHost
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.report import ProvableLevel

Execution = Literal["native", "emulated", "none"]
"""How an engine runs the programs of an image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetLevel:
    """A level to prove and the container's access to the device; `reason` says why the level is not higher.

    `built`: no program of the image can run. `emulated`: its programs run on another processor than theirs.
    """

    level: ProvableLevel | Literal["built"]
    access: DeviceAccess = "none"
    reason: str | None = None
    emulated: bool = False


def choose_target_level(
    spec: ImageSpec, target_host: TargetHost, requested: ProvableLevel | None, execution: Execution = "native"
) -> TargetLevel:
    """Return the requested level, or the highest level that the host can prove.

    Raises the host's deficiency if a level was requested that the host cannot prove.
    """
    if execution != "native":
        return _choose_foreign_level(spec, target_host, requested, execution)
    if spec.device == "cpu" or requested == "linked":
        return TargetLevel(level=requested or "validated")
    try:
        if spec.device == "tpu":
            check_tpu(spec, target_host)
            return TargetLevel(level="validated", access="tpu")
        check_gpu(spec, ALL_GPUS, target_host)
        return TargetLevel(level="validated", access=choose_gpu_access(target_host.toolkit, target_host.host))
    except (NoAccelerator, NoContainerToolkit, UnavailableDriver, UnavailableGpu) as error:
        if requested == "validated":
            raise type(error)(
                error.what,
                next_step="Omit --level to prove everything that works without the device (level linked). "
                f"`tfimg doctor {spec.identifier}` shows the next step for this machine.",
            ) from None
        return TargetLevel(level="linked", reason=error.what)


def _choose_foreign_level(
    spec: ImageSpec, target_host: TargetHost, requested: ProvableLevel | None, execution: Execution
) -> TargetLevel:
    """Return the highest level of an image for another platform: an emulator proves nothing about a processor."""
    native = target_host.toolkit.platform
    what = f"{spec.identifier} is for {spec.platform}, and the engine runs on {native}"
    if execution == "none":
        what = f"{what}, where programs of {spec.platform} do not run."
        if requested:
            raise NoEmulation(what, next_step=f"{EMULATE}; or validate it on a machine of {spec.platform}.")
        return TargetLevel(level="built", reason=f"{what} No check was run. {EMULATE}.")
    what = f"{what}, which emulates {spec.platform}."
    if requested == "validated":
        raise NoEmulation(
            what, next_step=f"Validate it on a machine of {spec.platform}, or omit --level to prove level linked."
        )
    return TargetLevel(level="linked", reason=what, emulated=True)

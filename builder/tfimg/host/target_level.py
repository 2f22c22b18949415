"""Choose the level that a validation can prove on this host."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.core.errors import NoAccelerator, NoContainerToolkit, UnavailableDriver, UnavailableGpu
from tfimg.engine.protocol import DeviceAccess
from tfimg.host.accelerators import ALL_GPUS, check_gpu, check_tpu, choose_gpu_access
from tfimg.host.survey import TargetHost
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.report import ProvableLevel


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetLevel:
    """A level to prove and the container's access to the device; `reason` says why the level is not higher."""

    level: ProvableLevel
    access: DeviceAccess = "none"
    reason: str | None = None


def choose_target_level(spec: ImageSpec, target_host: TargetHost, requested: ProvableLevel | None) -> TargetLevel:
    """Return the requested level, or the highest level that the host can prove.

    Raises the host's deficiency if `validated` was requested and the host cannot prove it.
    """
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

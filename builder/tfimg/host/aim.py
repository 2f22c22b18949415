"""Host + ImageSpec → the level that a validation can show here, and how its container gets at the accelerator."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.core.errors import NoAccelerator, NoToolkit, UnavailableDriver, UnavailableGpu
from tfimg.engine.protocol import Access
from tfimg.host.accelerators import ALL, Surroundings, check_gpu, check_tpu, gpu_access
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.report import Provable


@dataclass(frozen=True, kw_only=True, slots=True)
class Aim:
    """What to prove, and how to get at what that needs; `why` says why it is no more."""

    level: Provable
    access: Access = "none"
    why: str | None = None


def aim(spec: ImageSpec, at: Surroundings, asked: Provable | None) -> Aim:
    """The level that was asked for, else the highest that this machine can show.

    Raises what the machine lacks where `validated` was asked for and cannot be shown.
    """
    if spec.device == "cpu" or asked == "linked":
        return Aim(level=asked or "validated")
    try:
        return Aim(level="validated", access=_access(spec, at))
    except (NoAccelerator, NoToolkit, UnavailableDriver, UnavailableGpu) as lack:
        if asked == "validated":
            raise type(lack)(
                lack.what,
                next_step="Leave --level out, and all that can be proven without the device is: the image is linked. "
                f"`tfimg doctor {spec.identifier}` has this machine's next step.",
            ) from None
        return Aim(level="linked", why=lack.what)


def _access(spec: ImageSpec, at: Surroundings) -> Access:
    if spec.device == "tpu":
        check_tpu(spec, at)
        return "tpu"
    check_gpu(spec, ALL, at)
    return gpu_access(at.toolkit, at.host)

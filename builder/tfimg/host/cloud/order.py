"""What is asked of a machine, and the settings that its steps read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from tfimg.host.cloud.clouds import Cloud
from tfimg.matrix.schema import Device

JUPYTERLAB = "jupyterlab>=4,<5"
"""What is installed where the image has no JupyterLab."""

IDLE_CPU_PERCENT = 5
"""Of one processor. A kernel of Jupyter that waits takes under 1; a program that computes takes far more."""

IDLE_GPU_PERCENT = 5
"""Of the time, as nvidia-smi measures it over the last second at most."""

IDLE_INTERVAL = 60
"""Seconds between two looks: few enough to catch a program that pauses, too many to be felt."""

AZURE = {
    "AZURE_METADATA": "http://169.254.169.254/metadata",
    "AZURE_MANAGEMENT": "https://management.azure.com",
}
"""Where a machine of Azure asks for its own identity, and for its deallocation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineOrder:
    """A machine that runs one image.

    `image` is a reference with a tag or digest, `repository` the part before them; `driver` the lowest NVIDIA driver
    that it runs on, None where that is not known; `key` is the PEM text of the public key that signed its evidence,
    and `require` what that has to show. `tfimg` is what pip installs on the machine. `program` is what runs; None:
    JupyterLab. Seconds without use, and seconds from a boot on, after which the machine shuts down; None: never.
    """

    cloud: Cloud
    image: str
    repository: str
    device: Device
    driver: str | None
    key: str
    require: str | None
    tfimg: str
    program: tuple[str, ...] | None
    idle_seconds: int | None
    limit_seconds: int | None
    install_driver: bool


def settings(order: MachineOrder) -> str:
    """The settings as a piece of shell script: assignments alone, every value quoted."""
    values: Mapping[str, object] = {
        "CLOUD": order.cloud.name,
        "IMAGE": order.image,
        "REPOSITORY": order.repository,
        "DEVICE": order.device,
        "DRIVER_FLOOR": order.driver or "",
        "INSTALL_DRIVER": _word(order.install_driver),
        "REQUIRE": order.require or "",
        "TFIMG": order.tfimg,
        "JUPYTER": _word(order.program is None),
        "JUPYTERLAB": JUPYTERLAB,
        "PROGRAM": shlex.join(order.program or ()),
        "IDLE_SECONDS": order.idle_seconds or "",
        "IDLE_CPU_PERCENT": IDLE_CPU_PERCENT,
        "IDLE_GPU_PERCENT": IDLE_GPU_PERCENT,
        **(AZURE if order.cloud.name == "azure" else {}),
    }
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def _word(yes: bool) -> str:
    return "yes" if yes else "no"

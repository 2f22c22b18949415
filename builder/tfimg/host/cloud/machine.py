"""The settings of a cloud machine that runs one image."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from tfimg.evidence.keys import VerifyingKey
from tfimg.host.cloud.clouds import Cloud
from tfimg.matrix.schema import Device
from tfimg.registry.reference import Reference

JUPYTERLAB = "jupyterlab>=4,<5"
"""The requirement that is installed if the image has no JupyterLab."""

IDLE_CPU_PERCENT = 5
"""Of one processor. An idle kernel of Jupyter takes under 1; a program that computes takes far more."""

IDLE_GPU_PERCENT = 5
"""Of the time, as nvidia-smi measures it over the last second at most."""

WATCH_INTERVAL = 60
"""Seconds between two runs of a timer's step."""

AZURE = {"AZURE_METADATA": "http://169.254.169.254/metadata", "AZURE_MANAGEMENT": "https://management.azure.com"}
"""Services that give a machine of Azure its identity, and deallocate it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudMachine:
    """A machine that runs one image.

    `origin` is the publisher's repository if the image is in a mirror; `driver` is the lowest NVIDIA driver, if known;
    `key` has signed its evidence, and `require` are the conditions on the evidence, as `parse_requirements` reads them;
    `wheel` is an address that `require_wheel` accepts; `program` is None for JupyterLab. The machine shuts down after
    `idle_seconds` without use and after `limit_seconds` of all its boots together; None: never.
    """

    cloud: Cloud
    image: Reference
    origin: Reference | None
    device: Device
    driver: str | None
    key: VerifyingKey
    require: str | None
    wheel: str
    program: tuple[str, ...] | None
    idle_seconds: int | None
    limit_seconds: int | None
    install_driver: bool

    @property
    def shutdown_limits(self) -> Mapping[str, int | None]:
        """The seconds of each step that a timer runs; None if the machine does not need it."""
        return {"idle": self.idle_seconds, "limit": self.limit_seconds}


def format_settings(machine: CloudMachine) -> str:
    """Return the settings as assignments of a shell script, every value quoted."""
    values: Mapping[str, object] = {
        "CLOUD": machine.cloud.name,
        "IMAGE": machine.image,
        "REPOSITORY": machine.image.repository,
        "ORIGIN": machine.origin.repository if machine.origin else "",
        "DEVICE": machine.device,
        "DRIVER_FLOOR": machine.driver or "",
        "INSTALL_DRIVER": "yes" if machine.install_driver else "no",
        "REQUIRE": machine.require or "",
        "TFIMG": machine.wheel,
        "JUPYTER": "yes" if machine.program is None else "no",
        "JUPYTERLAB": JUPYTERLAB,
        "PROGRAM": shlex.join(machine.program or ()),
        "IDLE_SECONDS": machine.idle_seconds or "",
        "IDLE_CPU_PERCENT": IDLE_CPU_PERCENT,
        "IDLE_GPU_PERCENT": IDLE_GPU_PERCENT,
        "LIMIT_SECONDS": machine.limit_seconds or "",
        **(AZURE if machine.cloud.name == "azure" else {}),
    }
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())

"""Clouds: limits of user data, and commands that create a machine; the data is in clouds.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files

from pydantic import BaseModel

from tfimg.matrix.schema import Device

FITTING_IMAGES = "Ubuntu 24.04, Debian 13 with cloud-init, Amazon Linux 2023, AWS's Deep Learning AMI with Ubuntu"

UNFITTING_IMAGE = (
    "Container-Optimized OS: its root file system is read-only, and it has no package manager and no Python, so that "
    "tfimg and NVIDIA's container toolkit cannot be installed"
)
"""The image whose name suggests that it fits, and why it does not."""


class MachineImage(BaseModel, frozen=True):
    """A cloud's machine image: its `options` in the command, and its title."""

    options: str
    title: str


class Cloud(BaseModel, frozen=True):
    """A cloud; clouds.toml describes the fields."""

    name: str
    title: str
    limit: int
    command: str
    tpu_command: str | None = None
    machines: Mapping[Device, str]
    plain: MachineImage
    with_driver: MachineImage
    note: str | None = None

    @property
    def commands(self) -> Mapping[Device, str]:
        """The command that creates a machine, by device."""
        found: dict[Device, str] = {
            device: self.command.replace("{machine}", machine) for device, machine in self.machines.items()
        }
        return {**found, "tpu": self.tpu_command} if self.tpu_command else found

    def machine_image(self, device: Device, *, install_driver: bool) -> MachineImage:
        """Return the machine image, with NVIDIA's driver if the machine needs it and does not install it."""
        return self.with_driver if device == "gpu" and not install_driver else self.plain


CLOUDS: Mapping[str, Cloud] = {
    name: Cloud(name=name, **data)
    for name, data in tomllib.loads(files("tfimg.host.cloud").joinpath("clouds.toml").read_text("utf-8")).items()
}

"""Clouds: limits of user data, and commands that create a machine; the data is in clouds.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from tfimg.matrix.schema import Device

FITTING_IMAGES = "Ubuntu 24.04, Debian 13 with cloud-init, Amazon Linux 2023, AWS's Deep Learning AMI with Ubuntu"

UNFITTING_IMAGE = (
    "Container-Optimized OS: its root file system is read-only, and it has no package manager and no Python, so that "
    "tfimg and NVIDIA's container toolkit cannot be installed"
)
"""The image whose name suggests that it fits, and why it does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineImage:
    """A cloud's machine image: its `options` in the command, and its title."""

    options: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cloud:
    """A cloud, with the limit of user data in bytes, and by device the command that creates a machine."""

    name: str
    title: str
    limit: int
    commands: Mapping[Device, str]
    plain: MachineImage
    with_driver: MachineImage
    note: str | None = None

    def machine_image(self, device: Device, *, install_driver: bool) -> MachineImage:
        """Return the machine image, with NVIDIA's driver if the machine needs it and does not install it."""
        return self.with_driver if device == "gpu" and not install_driver else self.plain


def _load_cloud(name: str, data: Mapping[str, Any]) -> Cloud:
    commands: dict[Device, str] = {
        device: data["command"].replace("{machine}", machine) for device, machine in data["machines"].items()
    }
    if "tpu_command" in data:
        commands["tpu"] = data["tpu_command"]
    return Cloud(
        name=name,
        title=data["title"],
        limit=data["limit"],
        commands=commands,
        plain=MachineImage(**data["plain"]),
        with_driver=MachineImage(**data["with_driver"]),
        note=data.get("note"),
    )


CLOUDS: Mapping[str, Cloud] = {
    name: _load_cloud(name, data)
    for name, data in tomllib.loads(files("tfimg.host.cloud").joinpath("clouds.toml").read_text("utf-8")).items()
}

"""Render user data: a cloud-config that writes settings, key, steps and units, and starts the units."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from tfimg.core.errors import UsageError
from tfimg.core.tar import make_archive
from tfimg.host.cloud.clouds import FITTING_IMAGES, UNFITTING_IMAGE
from tfimg.host.cloud.machine import JUPYTERLAB, WATCH_INTERVAL, CloudMachine, format_settings
from tfimg.recipe.labels import DEVICE_NAMES

STEPS = "/usr/local/lib/tfimg"
UNITS = "/etc/systemd/system"

MIN_RUNS = 5
"""Number of runs of a timer's step, at least, before it can stop the machine."""

ARCHIVE = "/var/lib/cloud/tfimg.tar.gz"
"""Path of the packed steps until they are unpacked."""

READABLE = "/etc/tfimg/"
"""Files below it, the settings and the key, are never packed: people read them."""

COMMENT = re.compile(r"(?m)^ *# .*\n")
"""A line that is removed from packed steps: a quarter of their bytes are comments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFile:
    """A file of the machine; `mode` in octal."""

    path: str
    text: str
    mode: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UserData:
    """The text of the user data, and the command that creates a machine with it in a file called FILE.

    `packed`: the steps are compressed, because the text would exceed the limit. `unproven` are sentences on what no
    test ran, `unpinned` on what the machine installs without a hash.
    """

    text: str
    create_command: str
    machine_image: str
    packed: bool
    unproven: tuple[str, ...]
    unpinned: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes, as the cloud counts them."""
        return len(self.text.encode())


def render_user_data(machine: CloudMachine) -> UserData:
    """Return the user data of a machine. Raises `UsageError` if the cloud lacks the device or the text is too large."""
    cloud = machine.cloud
    if machine.device not in cloud.commands:
        raise UsageError(
            f"{cloud.title} has no machines with a {DEVICE_NAMES[machine.device]}.",
            next_step="Choose another --cloud, or another --device.",
        )
    contents = list_machine_files(machine)
    plain = _render_user_data(machine, contents)
    if plain.size <= cloud.limit:
        return plain
    readable = [file for file in contents if file.path.startswith(READABLE)]
    steps = [replace(file, text=COMMENT.sub("", file.text)) for file in contents if file not in readable]
    packed = _render_user_data(machine, readable, archive=_pack(steps), plain_bytes=plain.size)
    if packed.size > cloud.limit:
        raise UsageError(
            f"The user data takes {packed.size} bytes, packed, and {cloud.title} takes {cloud.limit}.",
            next_step="Shorten --command: let it fetch what it runs.",
        )
    return packed


def _render_user_data(
    machine: CloudMachine, contents: Sequence[MachineFile], *, archive: str | None = None, plain_bytes: int = 0
) -> UserData:
    image = machine.cloud.machine_image(machine.device, install_driver=machine.install_driver)
    description: dict[str, Any] = {
        "machine_image": image.title,
        "create_command": machine.cloud.commands[machine.device].format(image=image.options, file="FILE"),
        "unproven": tuple(_unproven(machine)),
        "unpinned": tuple(_unpinned(machine)),
    }
    text = _template(files("tfimg.host.cloud").joinpath("user-data.j2").read_text("utf-8")).render(
        machine=machine,
        device=DEVICE_NAMES[machine.device],
        files=contents,
        archive=archive,
        archive_path=ARCHIVE,
        plain_bytes=plain_bytes,
        timers=_timers(machine),
        fitting=FITTING_IMAGES,
        unfitting=UNFITTING_IMAGE,
        **description,
    )
    return UserData(text=text, packed=archive is not None, **description)


def list_machine_files(machine: CloudMachine) -> tuple[MachineFile, ...]:
    """Return the files that a machine needs."""
    unneeded = {step for step, seconds in machine.shutdown_limits.items() if not seconds}
    unneeded |= {"driver"} if not machine.install_driver else set()
    unneeded |= {"power-off"} if not _timers(machine) else set()
    steps = {name: text for name, text in _read_folder("steps").items() if name not in unneeded}
    return (
        MachineFile(path=f"{READABLE}settings", text=format_settings(machine), mode="0644"),
        MachineFile(path=f"{READABLE}tfimg.pub", text=machine.key.pem.decode(), mode="0644"),
        *(MachineFile(path=f"{STEPS}/{name}", text=text, mode="0755") for name, text in steps.items()),
        *(MachineFile(path=f"{UNITS}/{name}", text=text, mode="0644") for name, text in _units(machine)),
    )


def _timers(machine: CloudMachine) -> tuple[str, ...]:
    return tuple(f"tfimg-{step}.timer" for step, seconds in machine.shutdown_limits.items() if seconds)


def _units(machine: CloudMachine) -> Iterator[tuple[str, str]]:
    """Render the units; each step with a timer has the same two."""
    texts = _read_folder("units")
    for name in ("tfimg-setup.service", "tfimg.service"):
        yield name, _template(texts[f"{name}.j2"]).render(machine=machine)
    for step, seconds in machine.shutdown_limits.items():
        if seconds:
            interval = max(1, min(WATCH_INTERVAL, seconds // MIN_RUNS))
            for suffix in ("service", "timer"):
                unit = _template(texts[f"tfimg-watch.{suffix}.j2"])
                yield f"tfimg-{step}.{suffix}", unit.render(step=step, interval=interval)


@cache
def _template(text: str) -> Template:
    """Return a template in which an undefined variable is an error."""
    # Neither units nor YAML are HTML: nothing to escape.
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701
    return environment.from_string(text)


@cache
def _read_folder(name: str) -> dict[str, str]:
    found = sorted(files("tfimg.host.cloud").joinpath(name).iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in found}


def _pack(steps: Sequence[MachineFile]) -> str:
    """Return files as base64 of a compressed archive, reproducibly: without times and users."""
    archive = make_archive({file.path: (file.text.encode(), int(file.mode, 8)) for file in steps})
    return base64.b64encode(gzip.compress(archive, 9, mtime=0)).decode()


def _unproven(machine: CloudMachine) -> Iterator[str]:
    """Describe what no test ran: the tests run the steps on machines without a cloud around them."""
    yield f"that {machine.cloud.title} hands this over to cloud-init as its documentation says"
    if machine.device == "gpu":
        yield "the steps with a GPU: a driver's answer, NVIDIA's toolkit with NVIDIA's genuine key"
        if machine.install_driver:
            yield "the installation of the driver"
    if machine.device == "tpu":
        yield "that a TPU VM's image runs cloud-init, and the steps with a TPU"
        if machine.idle_seconds:
            yield "that a TPU in use is visible by its processor, which is all that is measured"
    if machine.cloud.name == "azure" and _timers(machine):
        yield "that Azure deallocates the machine when it asks for it"


def _unpinned(machine: CloudMachine) -> Iterator[str]:
    """Describe what the machine installs without a hash, and what proves it instead."""
    yield "the distribution's packages (Docker, Python, its pip): their signatures by the distribution's own keys"
    if machine.device == "gpu":
        yield "NVIDIA's container toolkit: its repository's signature by the key whose fingerprint is in the steps"
    if machine.install_driver:
        yield "NVIDIA's driver: Ubuntu's signatures"
    if machine.program is None:
        yield f"{JUPYTERLAB} where the image has none: only the package index, and only inside the container"

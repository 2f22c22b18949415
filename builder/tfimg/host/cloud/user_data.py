"""MachineOrder → user data: a cloud-config that writes files and starts units."""

from __future__ import annotations

import base64
import gzip
import io
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from tfimg.core.errors import UsageError
from tfimg.host.cloud.clouds import FITTING_IMAGES, UNFITTING_IMAGE
from tfimg.host.cloud.files import MachineFile, machine_files, template, timers
from tfimg.host.cloud.machine import JUPYTERLAB, CloudMachine
from tfimg.recipe.labels import DEVICE_NAMES

ARCHIVE = "/var/lib/cloud/tfimg.tar.gz"
"""Path of the packed steps until they are unpacked."""

READABLE = "/etc/"
"""Files below it, the settings and the key, are never packed: they are for people to read."""

COMMENT = re.compile(r"(?m)^ *# .*\n")
"""A line of a step that packed steps lack: a quarter of their bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UserData:
    """`text` is what the cloud takes, `make` the command that makes a machine with it in a file called FILE.

    `machine_image` names the machine image of that command. `packed` says that the steps are compressed, because they
    were too large otherwise. `unproven` and `unpinned` are sentences on what no test ran, and on what the machine
    installs without a hash.
    """

    text: str
    make: str
    machine_image: str
    packed: bool
    unproven: tuple[str, ...]
    unpinned: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes, as the cloud counts them."""
        return len(self.text.encode())


def render_user_data(order: CloudMachine) -> UserData:
    """Return the user data of an order. Raises `UsageError` if the cloud lacks the device or the text is too large."""
    if order.device not in order.cloud.make:
        raise UsageError(
            f"{order.cloud.title} has no machines with a {DEVICE_NAMES[order.device]}.",
            next_step="Choose another --cloud, or another --device.",
        )
    written = machine_files(order)
    plain = _render(order, written)
    if plain.size <= order.cloud.limit:
        return plain
    readable = [file for file in written if file.path.startswith(READABLE) and "systemd" not in file.path]
    steps = [replace(file, text=COMMENT.sub("", file.text)) for file in written if file not in readable]
    packed = _render(order, readable, archive=_pack(steps), plain_bytes=plain.size)
    if packed.size > order.cloud.limit:
        raise UsageError(
            f"The user data takes {packed.size} bytes, packed, and {order.cloud.title} takes {order.cloud.limit}.",
            next_step="Shorten --command: let it fetch what it runs.",
        )
    return packed


def _render(
    order: CloudMachine, written: Sequence[MachineFile], *, archive: str | None = None, plain_bytes: int = 0
) -> UserData:
    cloud, facts = order.cloud, (tuple(_unproven(order)), tuple(_unpinned(order)))
    image = cloud.machine_image(order.device, install_driver=order.install_driver).title
    made = UserData(
        text="",
        packed=archive is not None,
        machine_image=image,
        unproven=facts[0],
        unpinned=facts[1],
        make=cloud.command(order.device, install_driver=order.install_driver, file="FILE"),
    )
    text = template(files("tfimg.host.cloud").joinpath("user-data.j2").read_text("utf-8")).render(
        order=order,
        cloud=cloud,
        device=DEVICE_NAMES[order.device],
        made=made,
        files=written,
        archive=archive,
        archive_path=ARCHIVE,
        plain_bytes=plain_bytes,
        timers=timers(order),
        fitting=FITTING_IMAGES,
        unfitting=UNFITTING_IMAGE,
    )
    return replace(made, text=text)


def _pack(steps: Sequence[MachineFile]) -> str:
    """Return files as base64 of a compressed archive: the same bytes for the same files, without times and users."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in steps:
            content = file.text.encode()
            member = tarfile.TarInfo(file.path.lstrip("/"))
            member.size, member.mode = len(content), int(file.mode, 8)
            archive.addfile(member, io.BytesIO(content))
    return base64.b64encode(gzip.compress(plain.getvalue(), 9, mtime=0)).decode()


def _unproven(order: CloudMachine) -> Iterator[str]:
    """Say what no test ran: the tests run the steps on machines without a cloud around them."""
    yield f"that {order.cloud.title} hands this over to cloud-init as its documentation says"
    if order.device == "gpu":
        yield "the steps with a GPU: a driver's answer, NVIDIA's toolkit with NVIDIA's genuine key"
        if order.install_driver:
            yield "the installation of the driver"
    if order.device == "tpu":
        yield "that a TPU VM's image runs cloud-init, and the steps with a TPU"
        if order.idle_seconds:
            yield "that a TPU in use shows by its processor, which is all that is looked at"
    if order.cloud.name == "azure" and timers(order):
        yield "that Azure deallocates the machine when it asks for it"


def _unpinned(order: CloudMachine) -> Iterator[str]:
    """Say what the machine installs without a hash, and what proves that instead."""
    yield "the distribution's packages (Docker, Python, its pip): their signatures by the distribution's own keys"
    if order.device == "gpu":
        yield "NVIDIA's container toolkit: its repository's signature by the key whose fingerprint is in the steps"
    if order.install_driver:
        yield "NVIDIA's driver: Ubuntu's signatures"
    if order.program is None:
        yield f"{JUPYTERLAB} where the image has none: only the package index, and only inside the container"

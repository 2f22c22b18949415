"""MachineOrder → user data that a cloud takes: a cloud-config that writes files and starts units."""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from tfimg.errors import UsageError
from tfimg.host.cloud.files import MachineFile, machine_files, template, timers
from tfimg.host.cloud.order import MachineOrder
from tfimg.recipe.labels import DEVICE_NAMES

ARCHIVE = "/var/lib/cloud/tfimg.tar.gz"
"""Where the packed steps lie until they are unpacked."""

READABLE = "/etc/"
"""What somebody may want to read in the user data, the settings and the key, is never packed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UserData:
    """`text` is what the cloud takes, `make` the command that makes a machine with it in a file called FILE.

    `packed` says that the steps are compressed, because they were too large otherwise; `unproven` what could not be
    tried where it was made, a sentence each.
    """

    text: str
    make: str
    packed: bool
    unproven: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes, as the cloud counts them."""
        return len(self.text.encode())


def user_data(order: MachineOrder) -> UserData:
    """The user data of an order. Raises `UsageError` for a device that the cloud lacks, and when it is too large."""
    if order.device not in order.cloud.make:
        raise UsageError(
            f"{order.cloud.title} has no machines with a {DEVICE_NAMES[order.device]}.",
            next_step="Choose another --cloud, or another device.",
        )
    written = machine_files(order)
    plain = _render(order, written)
    if plain.size <= order.cloud.limit:
        return plain
    readable = [file for file in written if file.path.startswith(READABLE) and "systemd" not in file.path]
    steps = [file for file in written if file not in readable]
    packed = _render(order, readable, archive=_pack(steps), plain_bytes=plain.size)
    if packed.size > order.cloud.limit:
        raise UsageError(
            f"The user data takes {packed.size} bytes, packed, and {order.cloud.title} takes {order.cloud.limit}.",
            next_step="Shorten --command: let it fetch what it runs.",
        )
    return packed


def _render(
    order: MachineOrder, written: Sequence[MachineFile], *, archive: str | None = None, plain_bytes: int = 0
) -> UserData:
    layout = template(files("tfimg.host.cloud").joinpath("user-data.j2").read_text("utf-8"))
    make = order.cloud.make[order.device].format(file="FILE")
    unproven = tuple(_unproven(order))
    text = layout.render(
        order=order, cloud=order.cloud, device=DEVICE_NAMES[order.device], make=make, files=written,
        archive=archive, archive_path=ARCHIVE, plain_bytes=plain_bytes, timers=timers(order), unproven=unproven,
    )  # fmt: skip
    return UserData(text=text, make=make, packed=archive is not None, unproven=unproven)


def _pack(steps: Sequence[MachineFile]) -> str:
    """Files → base64 of a compressed archive, the same for the same files: it knows no time and no user."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in steps:
            content = file.text.encode()
            member = tarfile.TarInfo(file.path.lstrip("/"))
            member.size, member.mode = len(content), int(file.mode, 8)
            archive.addfile(member, io.BytesIO(content))
    return base64.b64encode(gzip.compress(plain.getvalue(), 9, mtime=0)).decode()


def _unproven(order: MachineOrder) -> Iterator[str]:
    """What no test of tfimg's own could try: its tests run the steps on machines without a cloud around them."""
    yield f"that {order.cloud.title} hands this over to cloud-init as its documentation says"
    if order.device == "gpu":
        yield "the steps with a GPU: a driver's answer, NVIDIA's toolkit"
        if order.install_driver:
            yield "the installation of the driver"
    if order.device == "tpu":
        yield "that a TPU VM's image runs cloud-init, and the steps with a TPU"
        if order.idle_seconds:
            yield "that a TPU in use shows by its processor, which is all that is looked at"
    if order.cloud.name == "azure" and timers(order):
        yield "that Azure deallocates the machine when it asks for it"

"""The order for a machine, and the settings that its steps read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfimg.core.errors import UsageError
from tfimg.host.cloud.clouds import Cloud
from tfimg.matrix.schema import Device
from tfimg.registry.reference import parse_reference, parse_repository

JUPYTERLAB = "jupyterlab>=4,<5"
"""The requirement that is installed where the image has no JupyterLab."""

IDLE_CPU_PERCENT = 5
"""Of one processor. A kernel of Jupyter that waits takes under 1; a program that computes takes far more."""

IDLE_GPU_PERCENT = 5
"""Of the time, as nvidia-smi measures it over the last second at most."""

WATCH_INTERVAL = 60
"""Seconds between two runs of a timer's step: few enough to catch a program that pauses, too many to be felt."""

MAX_SECONDS = 366 * 86400
"""The longest time that a machine is given."""

MAX_TEXT = 2000
"""Characters of one setting. The program may be longer: the cloud's limit of user data bounds it."""

WHEEL = re.compile(
    r"(?:https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?|file://)(?:/[A-Za-z0-9._~%+-]+)*"
    r"/tfimg-[A-Za-z0-9.!+_-]+\.whl#sha256=[0-9a-f]{64}"
)
"""An address of a wheel of tfimg with its hash. It has no user name: programs on the machine read user data."""

PUBLIC_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]{1,1000}-----END PUBLIC KEY-----\n?")
DRIVER = re.compile(r"[0-9]+(?:\.[0-9]+)*")

AZURE = {
    "AZURE_METADATA": "http://169.254.169.254/metadata",
    "AZURE_MANAGEMENT": "https://management.azure.com",
}
"""Where a machine of Azure asks for its own identity, and for its deallocation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudMachine:
    """A machine that runs one image.

    `image` is a reference with a tag or digest, and `origin` the publisher's repository if it is in a mirror; `driver`
    the lowest NVIDIA driver that it runs on, None where that is unknown; `key` is the PEM text of the public key that
    signed its evidence, and `require` the conditions that the evidence has to meet. `wheel` is the address of tfimg's
    wheel with `#sha256=`. `program` is None for JupyterLab.
    The machine shuts down after `idle_seconds` without use and after `limit_seconds` of all its boots together; None:
    never. Raises `UsageError` for a value that has no place in a file of the machine.
    """

    cloud: Cloud
    image: str
    origin: str | None
    device: Device
    driver: str | None
    key: str
    require: str | None
    wheel: str
    program: tuple[str, ...] | None
    idle_seconds: int | None
    limit_seconds: int | None
    install_driver: bool

    def __post_init__(self) -> None:
        for name, value, is_valid in _checks(self):
            if not is_valid:
                raise UsageError(
                    f"{name} {str(value)[:200]!r} is not valid in a machine's order.",
                    next_step="`tfimg cloud-init --help` says which form it has.",
                )

    @property
    def repository(self) -> str:
        """The image's name without tag and digest."""
        return parse_reference(self.image).repository


def _checks(order: CloudMachine) -> Iterator[tuple[str, object, bool]]:
    """Name, value and validity of everything that comes from outside."""
    words = order.program or ()
    yield "image", order.image, str(parse_reference(order.image)) == order.image
    yield (
        "origin",
        order.origin,
        order.origin is None or parse_repository(order.origin).repository == order.origin,
    )
    yield "key", order.key, bool(PUBLIC_KEY.fullmatch(order.key))
    yield "wheel", order.wheel, len(order.wheel) <= MAX_TEXT and bool(WHEEL.fullmatch(order.wheel))
    yield "driver", order.driver, order.driver is None or bool(DRIVER.fullmatch(order.driver))
    yield (
        "require",
        order.require,
        len(order.require or "") <= MAX_TEXT and (order.require or "").isprintable(),
    )
    yield "program", words, order.program != () and all(word.isprintable() for word in words)
    for name, seconds in (("idle time", order.idle_seconds), ("time limit", order.limit_seconds)):
        yield name, seconds, seconds is None or 0 < seconds <= MAX_SECONDS


def format_settings(order: CloudMachine) -> str:
    """Return the settings as assignments of a shell script, every value quoted."""
    values: Mapping[str, object] = {
        "CLOUD": order.cloud.name,
        "IMAGE": order.image,
        "REPOSITORY": order.repository,
        "ORIGIN": order.origin or "",
        "DEVICE": order.device,
        "DRIVER_FLOOR": order.driver or "",
        "INSTALL_DRIVER": _word(order.install_driver),
        "REQUIRE": order.require or "",
        "TFIMG": order.wheel,
        "JUPYTER": _word(order.program is None),
        "JUPYTERLAB": JUPYTERLAB,
        "PROGRAM": shlex.join(order.program or ()),
        "IDLE_SECONDS": order.idle_seconds or "",
        "IDLE_CPU_PERCENT": IDLE_CPU_PERCENT,
        "IDLE_GPU_PERCENT": IDLE_GPU_PERCENT,
        "LIMIT_SECONDS": order.limit_seconds or "",
        **(AZURE if order.cloud.name == "azure" else {}),
    }
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def _word(yes: bool) -> str:
    return "yes" if yes else "no"

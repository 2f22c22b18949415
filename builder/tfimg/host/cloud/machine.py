"""The settings of a cloud machine that runs one image."""

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
"""The requirement that is installed if the image has no JupyterLab."""

IDLE_CPU_PERCENT = 5
"""Of one processor. An idle kernel of Jupyter takes under 1; a program that computes takes far more."""

IDLE_GPU_PERCENT = 5
"""Of the time, as nvidia-smi measures it over the last second at most."""

WATCH_INTERVAL = 60
"""Seconds between two runs of a timer's step."""

MAX_SECONDS = 366 * 86400
"""The longest time limit of a machine."""

MAX_TEXT = 2000
"""Characters of one setting. The program may be longer: the cloud's limit of user data bounds it."""

WHEEL = re.compile(
    r"(?:https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?|file://)(?:/[A-Za-z0-9._~%+-]+)*"
    r"/tfimg-[A-Za-z0-9.!+_-]+\.whl#sha256=[0-9a-f]{64}"
)
"""The address of a wheel of tfimg with its hash, without a user name: programs on the machine can read user data."""

WHEEL_HELP = (
    "Give the address of tfimg's wheel with its hash, without a user name, as --tfimg "
    "https://HOST/PATH/tfimg-VERSION-py3-none-any.whl#sha256=HASH. `python -m build --wheel` makes the wheel in a "
    "checkout of tfimg, and `sha256sum dist/tfimg-*.whl` prints the hash."
)

PUBLIC_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]{1,1000}-----END PUBLIC KEY-----\n?")
DRIVER = re.compile(r"[0-9]+(?:\.[0-9]+)*")

AZURE = {"AZURE_METADATA": "http://169.254.169.254/metadata", "AZURE_MANAGEMENT": "https://management.azure.com"}
"""Services that give a machine of Azure its identity, and deallocate it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudMachine:
    """A machine that runs one image. Raises `UsageError` for a value that is not safe in a file of the machine.

    `image` is a reference with a tag or digest, and `origin` the publisher's repository if it is in a mirror; `driver`
    is the lowest NVIDIA driver, if known; `key` is the PEM text of the public key that signed its evidence, and
    `require` the conditions on the evidence; `wheel` is the address of tfimg's wheel with `#sha256=`; `program` is None
    for JupyterLab. The machine shuts down after `idle_seconds` without use and after `limit_seconds` of all its boots
    together; None: never.
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
                step = WHEEL_HELP if name == "wheel" else "`tfimg cloud-init --help` describes its form."
                raise UsageError(f"The {name} {str(value)[:200]!r} is not valid for a cloud machine.", next_step=step)

    @property
    def shutdown_limits(self) -> Mapping[str, int | None]:
        """The seconds of each step that a timer runs; None if the machine does not need it."""
        return {"idle": self.idle_seconds, "limit": self.limit_seconds}


def _checks(machine: CloudMachine) -> Iterator[tuple[str, object, bool]]:
    """Yield name, value and validity of each external value."""
    words, require = machine.program or (), machine.require or ""
    origin = machine.origin
    yield "image", machine.image, str(parse_reference(machine.image)) == machine.image
    yield "origin", origin, origin is None or parse_repository(origin).repository == origin
    yield "key", machine.key, bool(PUBLIC_KEY.fullmatch(machine.key))
    yield "wheel", machine.wheel, len(machine.wheel) <= MAX_TEXT and bool(WHEEL.fullmatch(machine.wheel))
    yield "driver", machine.driver, machine.driver is None or bool(DRIVER.fullmatch(machine.driver))
    yield "require", machine.require, len(require) <= MAX_TEXT and require.isprintable()
    yield "program", words, machine.program != () and all(word.isprintable() for word in words)
    for name, seconds in (("idle time", machine.idle_seconds), ("time limit", machine.limit_seconds)):
        yield name, seconds, seconds is None or 0 < seconds <= MAX_SECONDS


def format_settings(machine: CloudMachine) -> str:
    """Return the settings as assignments of a shell script, every value quoted."""
    values: Mapping[str, object] = {
        "CLOUD": machine.cloud.name,
        "IMAGE": machine.image,
        "REPOSITORY": parse_reference(machine.image).repository,
        "ORIGIN": machine.origin or "",
        "DEVICE": machine.device,
        "DRIVER_FLOOR": machine.driver or "",
        "INSTALL_DRIVER": _word(machine.install_driver),
        "REQUIRE": machine.require or "",
        "TFIMG": machine.wheel,
        "JUPYTER": _word(machine.program is None),
        "JUPYTERLAB": JUPYTERLAB,
        "PROGRAM": shlex.join(machine.program or ()),
        "IDLE_SECONDS": machine.idle_seconds or "",
        "IDLE_CPU_PERCENT": IDLE_CPU_PERCENT,
        "IDLE_GPU_PERCENT": IDLE_GPU_PERCENT,
        "LIMIT_SECONDS": machine.limit_seconds or "",
        **(AZURE if machine.cloud.name == "azure" else {}),
    }
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


def _word(yes: bool) -> str:
    return "yes" if yes else "no"

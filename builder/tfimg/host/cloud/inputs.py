"""Device, program and wheel of a cloud machine, from what the user says."""

from __future__ import annotations

import re
import shlex

from tfimg.core.errors import UsageError, WrongDevice
from tfimg.core.text import quote_value
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DEVICE_NAMES

WHEEL = re.compile(
    r"(?:https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?|file://)(?:/[A-Za-z0-9._~%+-]+)*"
    r"/tfimg-[A-Za-z0-9.!+_-]+\.whl#sha256=[0-9a-f]{64}"
)
"""The address of a wheel of tfimg with its hash, without a user name: programs on the machine can read user data."""


def choose_device(image: str, spec: ImageSpec | None, requested: Device | None) -> Device:
    """Return the device of an image. Raises `UsageError` if it is not known, `WrongDevice` if `requested` differs."""
    device = requested or (spec.device if spec else None)
    if device is None:
        raise UsageError(
            f"{image} does not say which device it is for.",
            next_step="Name it with --device cpu, gpu or tpu, or say what the image is with --as IDENTIFIER.",
        )
    if spec and device != spec.device:
        raise WrongDevice(
            f"{spec.identifier} is for a {DEVICE_NAMES[spec.device]}, but --device is {device}.",
            next_step="Leave the option out, or name another image.",
        )
    return device


def split_program(line: str) -> tuple[str, ...]:
    """Return the words of a program line. Raises `UsageError` for an open quote, and for no word."""
    problem = "it has no word"
    try:
        if words := tuple(shlex.split(line)):
            return words
    except ValueError as error:
        problem = str(error)
    raise UsageError(
        f"--command {line!r}: {problem}.", next_step="Write it as for a shell, with each quotation mark closed."
    )


def require_wheel(address: str) -> str:
    """Return the address of a wheel of tfimg. Raises `UsageError` for another one."""
    if WHEEL.fullmatch(address):
        return address
    raise UsageError(
        f"The wheel {quote_value(address)} is not valid for a cloud machine.",
        next_step="Give the address of tfimg's wheel with its hash, without a user name, as --tfimg "
        "https://HOST/PATH/tfimg-VERSION-py3-none-any.whl#sha256=HASH. `python -m build --wheel` makes the wheel in a "
        "checkout of tfimg, and `sha256sum dist/tfimg-*.whl` prints the hash.",
    )

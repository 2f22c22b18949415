"""Device and program of a cloud machine, from what the user says."""

from __future__ import annotations

import shlex

from tfimg.core.errors import UsageError, WrongDevice
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DEVICE_NAMES


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
    """Return the words of a program line. Raises `UsageError` for an open quote."""
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(
            f"--command {line!r}: {error}.", next_step="Write it as for a shell, with each quotation mark closed."
        ) from None

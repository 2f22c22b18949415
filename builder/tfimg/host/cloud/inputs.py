"""What the user says about a cloud machine, checked and explained before one is made of it."""

from __future__ import annotations

import shlex
from pathlib import Path

from tfimg.core.errors import InvalidKey, UsageError, WrongDevice
from tfimg.evidence.keys import read_verifying_key
from tfimg.host.cloud.machine import PUBLIC_KEY, WHEEL
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


def check_wheel(address: str | None) -> str:
    """Return the address of tfimg's wheel. Raises `UsageError` if it is missing or has no hash."""
    if address and WHEEL.fullmatch(address):
        return address
    raise UsageError(
        f"--tfimg {address!r} is not the address of tfimg's wheel with its hash."
        if address
        else "--tfimg is missing: the machine installs tfimg as root, and takes only bytes with a known hash.",
        next_step="Give the wheel's address, without a user name, as --tfimg "
        "https://HOST/PATH/tfimg-VERSION-py3-none-any.whl#sha256=HASH. `python -m build --wheel` makes the wheel in a "
        "checkout of tfimg, and `sha256sum dist/tfimg-*.whl` prints the hash.",
    )


def read_public_key(path: Path) -> str:
    """Return the PEM text of a public key. Raises `InvalidKey` for a file with anything else in it."""
    text = path.read_text()
    # What else a file holds would become a part of the user data too: a private key above all.
    if not PUBLIC_KEY.fullmatch(text):
        raise InvalidKey(
            f"{path} is not a public key: it must be one PEM block named PUBLIC KEY.",
            next_step="Name the public half of the pair: `tfimg keygen` calls it tfimg.pub, cosign cosign.pub.",
        )
    return read_verifying_key(text.encode(), source=str(path)).pem.decode()


def split_program(line: str) -> tuple[str, ...]:
    """Return the words of a program line. Raises `UsageError` for an open quote or no word."""
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(
            f"--command {line!r}: {error}.", next_step="Write it as for a shell, with each quotation mark closed."
        ) from None
    if not words:
        raise UsageError("--command is empty.", next_step="Name a program, or take --jupyter.")
    return words

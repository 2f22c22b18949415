"""`tfimg cloud-init`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.report_files import require_writable
from tfimg.core.errors import InvalidKey, UsageError, WrongDevice
from tfimg.core.files import write_atomically
from tfimg.evidence.keys import read_verifying_key
from tfimg.evidence.policy import Policy, parse_requirements
from tfimg.host.cloud.clouds import CLOUDS, FITTING_IMAGES, UNFITTING_IMAGE
from tfimg.host.cloud.machine import PUBLIC_KEY, WHEEL, CloudMachine
from tfimg.host.cloud.user_data import UserData, render_user_data
from tfimg.matrix.resolve.selection import find_spec
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DEVICE_NAMES
from tfimg.registry.reference import Reference, parse_reference, parse_repository

if TYPE_CHECKING:
    from tfimg.cli.commands.cloud_init import CloudInit


def cloud_init(command: CloudInit, context: Context) -> int:
    """Print or write the user data of a machine that verifies an image and runs it."""
    output = command.output
    if output is not None:
        require_writable("--output", output)
    user = render_user_data(_describe_machine(command, context))
    if output:
        write_atomically(Path(output), user.text)
    if context.command.json:
        context.emit(_document(user, output))
        return 0
    if not output:
        print(user.text, end="")
    else:
        size = f"{user.size} bytes{', packed' if user.packed else ''}"
        context.say(f"{output}: {size}. Make a machine with it:\n{_command(user, output)}")
        context.say(
            f"Its machine image is {user.machine_image}. Others that fit: {FITTING_IMAGES}. "
            f"Does not fit: {UNFITTING_IMAGE}."
        )
    return 0


def _command(user: UserData, output: str | None) -> str:
    return user.create_command.replace("FILE", shlex.quote(output)) if output else user.create_command


def _document(user: UserData, output: str | None) -> dict[str, object]:
    return {
        "bytes": user.size,
        "packed": user.packed,
        "make": _command(user, output),
        "machine_image": user.machine_image,
        "fitting_images": FITTING_IMAGES,
        "unfitting_image": UNFITTING_IMAGE,
        "unproven": list(user.unproven),
        "unpinned": list(user.unpinned),
        **({"file": output} if output else {"user_data": user.text}),
    }


def _describe_machine(command: CloudInit, context: Context) -> CloudMachine:
    image = parse_reference(command.image)
    if command.require is not None:
        parse_requirements(command.require, policy=Policy())  # refuses a typo before a machine is made
    spec = _find_spec(command, context, image)
    return CloudMachine(
        cloud=CLOUDS[command.cloud],
        image=str(image),
        origin=parse_repository(command.origin).repository if command.origin else None,
        device=_choose_device(image, spec, command.device),
        driver=spec.driver if spec else None,
        key=_read_public_key(Path(command.public_key)),
        require=command.require,
        wheel=_check_wheel(command.tfimg),
        program=None if command.jupyter else _split_command(command.program_line),
        idle_seconds=command.idle_shutdown,
        limit_seconds=command.max_time,
        install_driver=command.install_driver,
    )


def _find_spec(command: CloudInit, context: Context, image: Reference) -> ImageSpec | None:
    """Return the image that --as names, else its tag. None where neither names an image of the matrix."""
    if identifier := command.identifier:
        return context.project.spec(identifier)
    return find_spec(context.project.specs, image.tag) if image.tag else None


def _choose_device(image: Reference, spec: ImageSpec | None, requested: Device | None) -> Device:
    device = requested or (spec.device if spec else None)
    if device is None:
        raise UsageError(
            f"{image} does not say which device it is for.",
            next_step="Name it with --device cpu, gpu or tpu, or say what the image is with --as IDENTIFIER.",
        )
    if spec and device != spec.device:
        raise WrongDevice(
            f"{spec.identifier} is for a {DEVICE_NAMES[spec.device]}, and --device {device} asks for another machine.",
            next_step="Leave the option out, or name another image.",
        )
    return device


def _check_wheel(address: str | None) -> str:
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


def _read_public_key(path: Path) -> str:
    text = path.read_text()
    # What else a file holds would become a part of the user data too: a private key above all.
    if not PUBLIC_KEY.fullmatch(text):
        raise InvalidKey(
            f"{path} is no public key: it is not one PEM block that says PUBLIC KEY.",
            next_step="Name the public half of the pair: `tfimg keygen` calls it tfimg.pub, cosign cosign.pub.",
        )
    return read_verifying_key(text.encode(), source=str(path)).pem.decode()


def _split_command(line: str | None) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(line or ""))
    except ValueError as error:
        raise UsageError(f"--command {line!r}: {error}.", next_step="Close what was opened.") from None
    if not words:
        raise UsageError("--command is empty.", next_step="Name a program, or take --jupyter.")
    return words

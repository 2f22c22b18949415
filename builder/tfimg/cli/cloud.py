"""`tfimg cloud-init`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.errors import KeyRefused, UsageError, WrongDevice
from tfimg.evidence.keys import read_verifying_key
from tfimg.evidence.policy import Policy, parse_requirements
from tfimg.host.cloud.clouds import CLOUDS
from tfimg.host.cloud.order import MachineOrder
from tfimg.host.cloud.user_data import UserData, user_data
from tfimg.matrix.abbreviation import find
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DEVICE_NAMES
from tfimg.registry.reference import Reference, parse
from tfimg.workspace import write_atomically

PUBLIC_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]+-----END PUBLIC KEY-----\n?")


def cloud_init(context: Context) -> int:
    """`tfimg cloud-init`: what is asked, then the user data of a machine that does it."""
    made = user_data(_order(context))
    output = context.arguments.output
    if output:
        write_atomically(Path(output), made.text)
    if context.arguments.json:
        context.emit(_document(made, output))
        return 0
    if not output:
        print(made.text, end="")
    else:
        size = f"{made.size} bytes{', packed' if made.packed else ''}"
        context.say(f"{output}: {size}. Make a machine with it:\n{made.make.replace('FILE', output)}")
    return 0


def _document(made: UserData, output: str | None) -> dict[str, object]:
    return {
        "bytes": made.size,
        "packed": made.packed,
        "make": made.make.replace("FILE", output or "FILE"),
        "unproven": list(made.unproven),
        **({"file": output} if output else {"user_data": made.text}),
    }


def _order(context: Context) -> MachineOrder:
    given = context.arguments
    image = parse(given.image)
    if given.require is not None:
        parse_requirements(given.require, policy=Policy())  # a typo is told here, not by the machine
    spec = _spec(context, image)
    return MachineOrder(
        cloud=CLOUDS[given.cloud],
        image=str(image),
        repository=image.repository,
        device=_device(spec, given.device),
        driver=spec.driver if spec else None,
        key=_key(Path(given.key)),
        require=given.require,
        tfimg=given.tfimg or f"tfimg=={__version__}",
        program=None if given.jupyter else _words(given.program_line),
        idle_seconds=given.idle_shutdown,
        limit_seconds=given.max_time,
        install_driver=given.install_driver,
    )


def _spec(context: Context, image: Reference) -> ImageSpec | None:
    """What the image is: what --as says, else its tag. None where neither names an image of the matrix."""
    if identifier := context.arguments.identifier:
        return context.named(identifier)
    return find(context.specs, image.tag) if image.tag else None


def _device(spec: ImageSpec | None, asked: Device | None) -> Device:
    if spec is None or asked in {None, spec.device}:
        return asked or (spec.device if spec else "cpu")
    raise WrongDevice(
        f"{spec.identifier} is for a {DEVICE_NAMES[spec.device]}, and --{asked} asks for another machine.",
        next_step="Leave the option out, or name another image.",
    )


def _key(path: Path) -> str:
    text = path.read_text()
    # What else a file holds would become a part of the user data too: a private key above all.
    if not PUBLIC_KEY.fullmatch(text):
        raise KeyRefused(
            f"{path} is no public key: it is not one PEM block that says PUBLIC KEY.",
            next_step="Name the public half of the pair: `tfimg keys` calls it tfimg.pub, cosign cosign.pub.",
        )
    return read_verifying_key(text.encode(), source=str(path)).pem.decode()


def _words(line: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"--command {line!r}: {error}.", next_step="Close what was opened.") from None
    if not words:
        raise UsageError("--command is empty.", next_step="Name a program, or take --jupyter.")
    return words

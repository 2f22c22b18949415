"""`tfimg cloud-init`."""

from __future__ import annotations

import re
import shlex
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from tfimg.attestations.keys import read_key_file, read_verifying_key
from tfimg.attestations.policy import Policy, parse_conditions
from tfimg.cli.context import Context
from tfimg.cli.options import Command, flag, option, output_option
from tfimg.cli.values import complete_identifiers, lower_device, parse_seconds, require_printable
from tfimg.core.files import write_atomically
from tfimg.host.cloud import (
    CLOUDS,
    CloudMachine,
    choose_device,
    render_user_data,
    require_wheel,
    split_program,
)
from tfimg.matrix.conditions import find_spec
from tfimg.matrix.devices import Device
from tfimg.registry.reference import parse_reference, parse_repository

MIRROR = re.compile(r"https://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~%+-]+)*")


def parse_mirror(text: str) -> str:
    """Return the address of a mirror without a slash at its end. It has no user name: programs read user data."""
    address = text.rstrip("/")
    if not MIRROR.fullmatch(address):
        raise ValueError(f"{text!r} is not an address of a mirror: write https://HOST/PATH, without a user name")
    return address


@dataclass(frozen=True)
class CloudInit(Command):
    """Print user data for a cloud's virtual machine that verifies an image, pulls it by digest and runs it.

    Examples:
      tfimg cloud-init --cloud gcp --image HOST/team/tensorflow:2.15.1-cuda12.2-py3.11 --public-key tfimg.pub \\
          --require linked --jupyter --tfimg "$WHEEL" --idle-shutdown 30m --max-time 8h --output user-data
      tfimg cloud-init --cloud aws --image HOST/team/tensorflow:2.15 --public-key tfimg.pub \\
          --command 'python train.py' --tfimg https://HOST/tfimg-1.2-py3-none-any.whl#sha256=HASH
    """

    cloud: Literal["gcp", "aws", "azure", "aliyun", "generic"] = option(
        "whose machine; generic: a NoCloud seed", default=MISSING
    )
    image: str = option("REPOSITORY:TAG or REPOSITORY@DIGEST", "REFERENCE", default=MISSING, check=require_printable)
    identifier: str | None = option(
        "what the image is (default: what its tag says)", "IDENTIFIER", name="--as", completer=complete_identifiers
    )
    device: Device | None = option(
        "what the machine computes on (default: what --as or a tag of the matrix says; needed for other tags)",
        parse=lower_device,
    )
    install_driver: bool = flag("let the machine install NVIDIA's driver, on Ubuntu")
    public_key: str = option("public key of the attestations, which the machine verifies", "FILE.pub", default=MISSING)
    origin: str | None = option(
        "the publisher's repository, if --image is in a mirror", "REPOSITORY", check=require_printable
    )
    require: str | None = option(
        "requirements on the attestations: validated,max-age=30d", "CONDITIONS", check=require_printable
    )
    tfimg: str | None = option(
        "the wheel of tfimg that the machine installs to verify with; `sha256sum` prints its hash",
        "URL#sha256=HASH",
        check=require_printable,
    )
    package_index: str | None = option(
        "package index of the machine, such as a mirror in its region (default: pip's)", "URL", parse=parse_mirror
    )
    toolkit_mirror: str | None = option(
        "mirror of the repository of NVIDIA's container toolkit, whose signatures the machine checks",
        "URL",
        parse=parse_mirror,
    )
    jupyter: bool = flag("run JupyterLab, which is reachable through SSH only")
    program_line: str | None = option(
        "run this until it ends well: words as in a shell, without a shell ('sh -c …' is one)",
        "LINE",
        name="--command",
        check=require_printable,
    )
    idle_shutdown: int | None = option(
        "shut down when neither container nor GPU computes and no user is logged in for so long: 30m",
        "TIME",
        parse=parse_seconds,
    )
    max_time: int | None = option(
        "shut down after so much time in all boots together: 8h, 1h30m", "TIME", parse=parse_seconds
    )
    output: str | None = output_option()

    alternatives = (("--jupyter", "jupyter"), ("--command", "program_line"))
    needs_alternative = True

    def run(self, context: Context) -> int:
        file, cloud = self.output, CLOUDS[self.cloud]
        user = render_user_data(self._machine(context))
        create = user.create_command.replace("FILE", shlex.quote(file)) if file else user.create_command
        if file:
            write_atomically(Path(file), user.text)
        if context.json:
            document = {
                "bytes": user.size,
                "packed": user.packed,
                "make": create,
                "machine_image": user.machine_image,
                "before": user.before,
                "credentials": user.credentials,
                "fitting_images": cloud.fitting,
                "unfitting_image": cloud.unfitting,
                "unproven": user.unproven,
                "unpinned": user.unpinned,
            }
            context.emit(document | ({"file": file} if file else {"user_data": user.text}))
        elif not file:
            print(user.text, end="")
        else:
            size = f"{user.size} bytes{', packed' if user.packed else ''}"
            context.say(f"{file}: {size}. Make a machine with it:\n{create}")
            if user.before:
                context.say("Before you run it:\n" + "\n".join(f"  {line}" for line in user.before))
            unfitting = f" Does not fit: {cloud.unfitting}." if cloud.unfitting else ""
            context.say(f"Its machine image is {user.machine_image}. Others that fit: {cloud.fitting}.{unfitting}")
            if user.credentials:
                context.say(f"Credentials: {user.credentials}.")
            if cloud.note:
                context.say(f"When it is stopped: {cloud.note}.")
            if self.jupyter:
                context.say("JupyterLab's token: ssh MACHINE sudo cat /var/lib/tfimg/vm/jupyter-token")
        return 0

    def _machine(self, context: Context) -> CloudMachine:
        image, project = parse_reference(self.image), context.project()
        if self.require is not None:
            parse_conditions(self.require, policy=Policy())  # refuses a typo before a machine is made
        tagged = find_spec(project.specs, image.tag) if image.tag else None
        spec = project.spec(self.identifier) if self.identifier else tagged
        return CloudMachine(
            cloud=CLOUDS[self.cloud],
            image=image,
            origin=parse_repository(self.origin) if self.origin else None,
            device=choose_device(str(image), spec, self.device),
            driver=spec.driver if spec else None,
            key=read_verifying_key(read_key_file(self.public_key), source=self.public_key),
            require=self.require,
            wheel=require_wheel(self.tfimg or ""),
            program=None if self.jupyter else split_program(self.program_line or ""),
            idle_seconds=self.idle_shutdown,
            limit_seconds=self.max_time,
            install_driver=self.install_driver,
            package_index=self.package_index,
            toolkit_mirror=self.toolkit_mirror,
        )

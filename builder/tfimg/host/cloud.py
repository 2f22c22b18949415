"""User data for machines of clouds that pull and run an image."""

from __future__ import annotations

import base64
import gzip
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from pydantic import BaseModel

from tfimg.attestations.keys import VerifyingKey
from tfimg.core.errors import UsageError, WrongDevice
from tfimg.core.tar import make_archive
from tfimg.core.text import quote_value
from tfimg.matrix.devices import CPU, DEVICE_CHOICE, DEVICES, Device
from tfimg.matrix.spec import ImageSpec
from tfimg.registry.reference import Reference


class MachineImage(BaseModel, frozen=True):
    """A cloud's machine image: its `options` in the command, and its title."""

    options: str
    title: str


class CloudRegistry(BaseModel, frozen=True):
    """A cloud's registry, which its machines read as their own identity; clouds.toml describes the fields."""

    title: str
    hosts: str
    helper: str
    package: str = ""
    options: str
    grant: str
    before: Mapping[str, str] = {}

    def has(self, host: str) -> bool:
        """Return whether a host is of this registry."""
        return re.fullmatch(self.hosts, host) is not None


class Cloud(BaseModel, frozen=True):
    """A cloud; clouds.toml describes the fields."""

    name: str
    title: str
    limit: int
    command: str
    machines: Mapping[Device, str]
    other_commands: Mapping[Device, str] = {}
    plain: MachineImage
    with_driver: MachineImage
    fitting: str = "Ubuntu 24.04, Debian 13 with cloud-init"
    unfitting: str | None = None
    note: str | None = None
    before: Mapping[str, str | Mapping[Device, str]] = {}
    registry: CloudRegistry | None = None

    @property
    def commands(self) -> Mapping[Device, str]:
        """The command that creates a machine, by device."""
        named = {device: self.command.replace("{machine}", machine) for device, machine in self.machines.items()}
        return {**named, **self.other_commands}

    def checklist(self, device: Device) -> dict[str, str]:
        """Return what `before` says of a machine with a device, without the registry's placeholders."""
        machine = self.machines.get(device, "").partition(" ")[0]
        texts = {name: text if isinstance(text, str) else text.get(device) for name, text in self.before.items()}
        return {name: text.replace("{machine}", machine) for name, text in texts.items() if text}

    def machine_image(self, device: Device, *, install_driver: bool) -> MachineImage:
        """Return the machine image, with NVIDIA's driver if the machine needs it and does not install it."""
        return self.with_driver if DEVICES[device].needs_driver and not install_driver else self.plain


CLOUDS: Mapping[str, Cloud] = {
    name: Cloud(name=name, **data)
    for name, data in tomllib.loads(files("tfimg.host").joinpath("user_data", "clouds.toml").read_text("utf-8")).items()
}


WHEEL = re.compile(
    r"(?:https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?|file://)(?:/[A-Za-z0-9._~%+-]+)*"
    r"/tfimg-[A-Za-z0-9.!+_-]+\.whl#sha256=[0-9a-f]{64}"
)
"""The address of a wheel of tfimg with its hash, without a user name: programs on the machine can read user data."""

TOOLKIT_REPOSITORY = "https://nvidia.github.io/libnvidia-container"
"""Address of the repository of NVIDIA's container toolkit; a mirror has the same files and the same signatures."""


def choose_device(image: str, spec: ImageSpec | None, requested: Device | None) -> Device:
    """Return the device of an image. Raises `UsageError` if it is not known, `WrongDevice` if `requested` differs."""
    device = requested or (spec.device if spec else None)
    if device is None:
        raise UsageError(
            f"{image} does not say which device it is for.",
            next_step=f"Name it with --device {DEVICE_CHOICE}, or say what the image is with --as IDENTIFIER.",
        )
    if spec and device != spec.device:
        raise WrongDevice(
            f"{spec.identifier} is for a {DEVICES[spec.device].title}, but --device is {device}.",
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


JUPYTERLAB = "jupyterlab>=4,<5"  # the requirement that is installed if the image has no JupyterLab

IDLE_CPU_PERCENT = 5
"""Of one processor. An idle kernel of Jupyter takes under 1; a program that computes takes far more."""

IDLE_GPU_PERCENT = 5  # of the time, as nvidia-smi measures it over the last second at most
WATCH_INTERVAL = 60  # seconds between two runs of a timer's step

SERVICES: Mapping[str, Mapping[str, str]] = {
    "azure": {
        "AZURE_METADATA": "http://169.254.169.254/metadata",
        "AZURE_MANAGEMENT": "https://management.azure.com",
    },
    "gcp": {"GOOGLE_METADATA": "http://metadata.google.internal/computeMetadata/v1"},
}
"""Services of a cloud that give a machine its identity, and on Azure deallocate it."""

PUBLIC_HOSTS = ("public.ecr.aws", "mcr.microsoft.com")  # registries without private repositories


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudMachine:
    """A machine that runs one image.

    `origin` is the publisher's repository if the image is in a mirror; `driver` is the lowest NVIDIA driver, if known;
    `key` has signed its attestations, and `require` are the conditions on those, as `parse_requirements` reads them;
    `wheel` is an address that `require_wheel` accepts; `program` is None for JupyterLab. The machine shuts down after
    `idle_seconds` without use and after `limit_seconds` of all its boots together; None: never. `package_index` and
    `toolkit_mirror` are addresses without a slash at the end; None: those of pip and NVIDIA.
    """

    cloud: Cloud
    image: Reference
    origin: Reference | None
    device: Device
    driver: str | None
    key: VerifyingKey
    require: str | None
    wheel: str
    program: tuple[str, ...] | None
    idle_seconds: int | None
    limit_seconds: int | None
    install_driver: bool
    package_index: str | None = None
    toolkit_mirror: str | None = None

    @property
    def needs_driver(self) -> bool:
        return DEVICES[self.device].needs_driver

    @property
    def registry(self) -> CloudRegistry | None:
        """The registry of the machine's cloud, if the image is there."""
        own = self.cloud.registry
        return own if own and own.has(self.image.host) else None

    @property
    def shutdown_limits(self) -> Mapping[str, int | None]:
        """The seconds of each step that a timer runs; None if the machine does not need it."""
        return {"idle": self.idle_seconds, "limit": self.limit_seconds}


def format_settings(machine: CloudMachine) -> str:
    """Return the settings as assignments of a shell script, every value quoted."""
    values: dict[str, object] = {
        "CLOUD": machine.cloud.name,
        "IMAGE": machine.image,
        "REPOSITORY": machine.image.repository,
        "ORIGIN": machine.origin.repository if machine.origin else "",
        "DEVICE": machine.device,
        "DRIVER_FLOOR": machine.driver or "",
        "INSTALL_DRIVER": "yes" if machine.install_driver else "no",
        "REQUIRE": machine.require or "",
        "TFIMG": machine.wheel,
        "PACKAGE_INDEX": machine.package_index or "",
        "TOOLKIT_REPOSITORY": machine.toolkit_mirror or TOOLKIT_REPOSITORY,
        "JUPYTER": "yes" if machine.program is None else "no",
        "JUPYTERLAB": JUPYTERLAB,
        "PROGRAM": shlex.join(machine.program or ()),
        "IDLE_SECONDS": machine.idle_seconds or "",
        "IDLE_CPU_PERCENT": IDLE_CPU_PERCENT,
        "IDLE_GPU_PERCENT": IDLE_GPU_PERCENT,
        "LIMIT_SECONDS": machine.limit_seconds or "",
        **SERVICES.get(machine.cloud.name, {}),
    }
    if machine.registry:
        values |= {
            "HELPER": machine.registry.helper,
            "HELPER_PACKAGE": machine.registry.package,
            "GRANT": f"To grant them: {machine.registry.grant}",
        }
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())


STEPS = "/usr/local/lib/tfimg"
PROGRAMS = "/usr/local/bin"
UNITS = "/etc/systemd/system"

MIN_RUNS = 5  # number of runs of a timer's step, at least, before it can stop the machine
ARCHIVE = "/var/lib/cloud/tfimg.tar.gz"  # path of the packed steps until they are unpacked
READABLE = "/etc/tfimg/"  # files below it, the settings and the key, are never packed: people read them

COMMENT = re.compile(r"(?m)^ *# .*\n")
"""A line that is removed from packed steps: a quarter of their bytes are comments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFile:
    """A file of the machine; `mode` in octal."""

    path: str
    text: str
    mode: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UserData:
    """The text of the user data, and the command that creates a machine with it in a file called FILE.

    `before` are lines of a checklist: the command's placeholders and where to find them, and what a start needs.
    `packed`: the steps are compressed, because the text would exceed the limit. `credentials` is what the machine needs
    to read the registry, `unproven` are sentences on what no test ran, `unpinned` on what the machine installs without
    a hash.
    """

    text: str
    create_command: str
    machine_image: str
    before: tuple[str, ...]
    credentials: str | None
    packed: bool
    unproven: tuple[str, ...]
    unpinned: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes, as the cloud counts them."""
        return len(self.text.encode())


def render_user_data(machine: CloudMachine) -> UserData:
    """Return the user data of a machine. Raises `UsageError` if the cloud lacks the device or the text is too large."""
    cloud = machine.cloud
    if machine.device not in cloud.commands:
        raise UsageError(
            f"{cloud.title} has no machines with a {DEVICES[machine.device].title}.",
            next_step="Choose another --cloud, or another --device.",
        )
    contents = list_machine_files(machine)
    plain = _render_user_data(machine, contents)
    if plain.size <= cloud.limit:
        return plain
    readable = [file for file in contents if file.path.startswith(READABLE)]
    steps = [replace(file, text=COMMENT.sub("", file.text)) for file in contents if file not in readable]
    archive = make_archive({file.path: (file.text.encode(), int(file.mode, 8)) for file in steps})
    text = base64.b64encode(gzip.compress(archive, 9, mtime=0)).decode()  # reproducible: without times and users
    packed = _render_user_data(machine, readable, archive=text, plain_bytes=plain.size)
    if packed.size > cloud.limit:
        raise UsageError(
            f"The user data takes {packed.size} bytes, packed, and {cloud.title} takes {cloud.limit}.",
            next_step="Shorten --command: let it fetch what it runs.",
        )
    return packed


def _render_user_data(
    machine: CloudMachine, contents: Sequence[MachineFile], *, archive: str | None = None, plain_bytes: int = 0
) -> UserData:
    image = machine.cloud.machine_image(machine.device, install_driver=machine.install_driver)
    command = machine.cloud.commands[machine.device].format(image=image.options, file="FILE")
    if machine.registry:
        command = f"{command} {machine.registry.options}"
    description: dict[str, Any] = {
        "machine_image": image.title,
        "create_command": command,
        "before": tuple(_checklist(machine, command)),
        "credentials": describe_credentials(machine),
        "unproven": tuple(_unproven(machine)),
        "unpinned": tuple(_unpinned(machine)),
    }
    text = _template(files("tfimg.host").joinpath("user_data", "user-data.j2").read_text("utf-8")).render(
        machine=machine,
        device=DEVICES[machine.device].title,
        files=contents,
        archive=archive,
        archive_path=ARCHIVE,
        plain_bytes=plain_bytes,
        timers=_timers(machine),
        **description,
    )
    return UserData(text=text, packed=archive is not None, **description)


def _checklist(machine: CloudMachine, command: str) -> Iterator[str]:
    """Yield the points of the checklist: first the placeholders of the command."""
    placeholders = re.findall(r"\b[A-Z][A-Z_]+\b", command)
    registry = machine.registry.before if machine.registry else {}
    points = {**machine.cloud.checklist(machine.device), **registry}
    yield from (f"{name}: {text}" for name, text in points.items() if name.isupper() and name in placeholders)
    if machine.device not in machine.cloud.machines:  # the other points are about the usual command
        return
    has_mirrors = machine.package_index and (machine.toolkit_mirror or not machine.needs_driver)
    hidden = {"mirrors"} if has_mirrors else set()
    yield from (f"{name}: {text}" for name, text in points.items() if not name.isupper() and name not in hidden)


def list_machine_files(machine: CloudMachine) -> tuple[MachineFile, ...]:
    unneeded = {step for step, seconds in machine.shutdown_limits.items() if not seconds}
    unneeded |= {"driver"} if not machine.install_driver else set()
    unneeded |= {"power-off"} if not _timers(machine) else set()
    helper = machine.registry.helper if machine.registry else None
    unneeded |= {"credentials"} if not helper else set()
    steps = {name: text for name, text in _read_folder("steps").items() if name not in unneeded}
    programs = {name: text for name, text in _read_folder("bin").items() if name == f"docker-credential-{helper}"}
    return (
        MachineFile(path=f"{READABLE}settings", text=format_settings(machine), mode="0644"),
        MachineFile(path=f"{READABLE}tfimg.pub", text=machine.key.pem.decode(), mode="0644"),
        *(MachineFile(path=f"{STEPS}/{name}", text=text, mode="0755") for name, text in steps.items()),
        *(MachineFile(path=f"{PROGRAMS}/{name}", text=text, mode="0755") for name, text in programs.items()),
        *(MachineFile(path=f"{UNITS}/{name}", text=text, mode="0644") for name, text in _units(machine)),
    )


def _timers(machine: CloudMachine) -> tuple[str, ...]:
    return tuple(f"tfimg-{step}.timer" for step, seconds in machine.shutdown_limits.items() if seconds)


def _units(machine: CloudMachine) -> Iterator[tuple[str, str]]:
    """Render the units; each step with a timer has the same two."""
    texts = _read_folder("units")
    for name in ("tfimg-setup.service", "tfimg.service"):
        yield name, _template(texts[f"{name}.j2"]).render(machine=machine)
    for step, seconds in machine.shutdown_limits.items():
        if seconds:
            interval = max(1, min(WATCH_INTERVAL, seconds // MIN_RUNS))
            for suffix in ("service", "timer"):
                unit = _template(texts[f"tfimg-watch.{suffix}.j2"])
                yield f"tfimg-{step}.{suffix}", unit.render(step=step, interval=interval)


@cache
def _template(text: str) -> Template:
    # Neither units nor YAML are HTML: nothing to escape.
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701
    return environment.from_string(text)


@cache
def _read_folder(name: str) -> dict[str, str]:
    found = sorted(files("tfimg.host").joinpath("user_data", name).iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in found}


def describe_credentials(machine: CloudMachine) -> str | None:
    """Return what the machine needs to read the image's registry; None if that is public."""
    host = machine.image.host
    if host in PUBLIC_HOSTS:
        return None
    if machine.registry:
        return f"{host} is read as the machine's own identity: {machine.registry.grant}"
    login = f"as root on the machine, run `docker login {host}`, then `systemctl restart tfimg-setup tfimg`"
    foreign = next((cloud.registry for cloud in CLOUDS.values() if cloud.registry and cloud.registry.has(host)), None)
    if foreign:
        return f"{host} is {foreign.title}, which only machines of that cloud read as their own identity: {login}"
    return f"If {machine.image.repository} is private, the machine cannot read it yet: {login}"


def _unproven(machine: CloudMachine) -> Iterator[str]:
    """Describe what no test ran: the tests run the steps on machines without a cloud around them."""
    yield f"that {machine.cloud.title} hands this over to cloud-init as its documentation says"
    if machine.needs_driver:
        yield "the steps with a GPU: a driver's answer, NVIDIA's toolkit with NVIDIA's genuine key"
        if machine.install_driver:
            yield "the installation of the driver"
    elif machine.device != CPU:
        name = machine.device.upper()
        yield f"that a {name} VM's image runs cloud-init, and the steps with a {name}"
        if machine.idle_seconds:
            yield f"that a {name} in use is visible by its processor, which is all that is measured"
    if machine.registry:
        yield f"that {machine.registry.title} lets the machine's identity in"
    if machine.cloud.name == "azure" and _timers(machine):
        yield "that Azure deallocates the machine when it asks for it"


def _unpinned(machine: CloudMachine) -> Iterator[str]:
    """Describe what the machine installs without a hash, and what proves it instead."""
    yield "the distribution's packages (Docker, Python, its pip): their signatures by the distribution's own keys"
    if machine.needs_driver:
        yield "NVIDIA's container toolkit: its repository's signature by the key whose fingerprint is in the steps"
    if machine.install_driver:
        yield "NVIDIA's driver: Ubuntu's signatures"
    if machine.program is None:
        yield f"{JUPYTERLAB} where the image has none: only the package index, and only inside the container"

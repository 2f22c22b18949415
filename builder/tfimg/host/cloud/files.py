"""MachineOrder → the files that it puts on a machine: settings, key, steps and units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from tfimg.host.cloud.order import IDLE_INTERVAL, MachineOrder, settings

STEPS = "/usr/local/lib/tfimg"
UNITS = "/etc/systemd/system"

LOOKS = 5
"""How often at least is looked for a use in the time that makes a machine idle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFile:
    """A file of the machine; `mode` in octal."""

    path: str
    text: str
    mode: str


def machine_files(order: MachineOrder) -> tuple[MachineFile, ...]:
    """What an order needs, and no more."""
    return (
        MachineFile(path="/etc/tfimg/settings", text=settings(order), mode="0644"),
        MachineFile(path="/etc/tfimg/tfimg.pub", text=order.key, mode="0644"),
        *(
            MachineFile(path=f"{STEPS}/{name}", text=text, mode="0755")
            for name, text in _folder("steps").items()
            if name not in _needless_steps(order)
        ),
        *(
            MachineFile(path=f"{UNITS}/{name}", text=text, mode="0644")
            for name, text in _units(order)
            if not name.startswith(_needless_units(order))
        ),
    )


def timers(order: MachineOrder) -> tuple[str, ...]:
    """The timers that bound how long the machine runs."""
    given = {"tfimg-idle.timer": order.idle_seconds, "tfimg-limit.timer": order.limit_seconds}
    return tuple(name for name, seconds in given.items() if seconds)


def _needless_steps(order: MachineOrder) -> set[str]:
    needless = set() if order.install_driver else {"driver"}
    if not order.idle_seconds:
        needless.add("idle")
    return needless if timers(order) else needless | {"power-off"}


def _needless_units(order: MachineOrder) -> tuple[str, ...]:
    given = {"tfimg-idle.": order.idle_seconds, "tfimg-limit.": order.limit_seconds}
    return tuple(prefix for prefix, seconds in given.items() if not seconds)


def _units(order: MachineOrder) -> Iterator[tuple[str, str]]:
    interval = max(1, min(IDLE_INTERVAL, (order.idle_seconds or 0) // LOOKS))
    for name, text in _folder("units").items():
        yield name.removesuffix(".j2"), template(text).render(order=order, interval=interval)


@cache
def template(text: str) -> Template:
    """A template of these machines' files, in which a missing variable is an error."""
    # Neither units nor YAML are HTML: nothing to escape.
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701
    return environment.from_string(text)


@cache
def _folder(name: str) -> dict[str, str]:
    """Texts of a folder's files by name."""
    found = sorted(files("tfimg.host.cloud").joinpath(name).iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in found}

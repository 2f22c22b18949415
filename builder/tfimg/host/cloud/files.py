"""MachineOrder → the files that it puts on a machine: settings, key, steps and units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template

from tfimg.host.cloud.machine import WATCH_INTERVAL, CloudMachine, format_settings

STEPS = "/usr/local/lib/tfimg"
UNITS = "/etc/systemd/system"

MIN_RUNS = 5
"""How often a timer's step runs at least in the time that ends a machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineFile:
    """A file of the machine; `mode` in octal."""

    path: str
    text: str
    mode: str


def machine_files(order: CloudMachine) -> tuple[MachineFile, ...]:
    """Return the files that an order needs, and no more."""
    return (
        MachineFile(path="/etc/tfimg/settings", text=format_settings(order), mode="0644"),
        MachineFile(path="/etc/tfimg/tfimg.pub", text=order.key, mode="0644"),
        *(
            MachineFile(path=f"{STEPS}/{name}", text=text, mode="0755")
            for name, text in _folder("steps").items()
            if name not in _needless_steps(order)
        ),
        *(MachineFile(path=f"{UNITS}/{name}", text=text, mode="0644") for name, text in _units(order)),
    )


def timers(order: CloudMachine) -> tuple[str, ...]:
    """Return the timers that bound how long the machine runs."""
    return tuple(f"tfimg-{name}.timer" for name, seconds in _limits(order).items() if seconds)


def _limits(order: CloudMachine) -> dict[str, int | None]:
    """Return the seconds of each step that a timer runs, None where the order does not need it."""
    return {"idle": order.idle_seconds, "limit": order.limit_seconds}


def _needless_steps(order: CloudMachine) -> set[str]:
    needless = {name for name, seconds in _limits(order).items() if not seconds}
    if not order.install_driver:
        needless.add("driver")
    return needless if timers(order) else needless | {"power-off"}


def _units(order: CloudMachine) -> Iterator[tuple[str, str]]:
    """Render the units that an order needs; those of a timer are the same for each step that a timer runs."""
    texts = _folder("units")
    for name in ("tfimg-setup.service", "tfimg.service"):
        yield name, _render(texts[f"{name}.j2"], order=order)
    for step, seconds in _limits(order).items():
        if seconds:
            interval = max(1, min(WATCH_INTERVAL, seconds // MIN_RUNS))
            for suffix in ("service", "timer"):
                text = texts[f"tfimg-watch.{suffix}.j2"]
                yield f"tfimg-{step}.{suffix}", _render(text, step=step, interval=interval)


def _render(text: str, **values: object) -> str:
    return template(text).render(values)


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

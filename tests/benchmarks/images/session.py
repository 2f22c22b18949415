"""Engines up, contestants in turns, engines down; what was measured is handed over after every contestant."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.images.contestants import Contestant, Plainly, Tfimg, base, prepare_base
from benchmarks.images.dockerfiles import LAYOUTS
from benchmarks.images.engines import KEPT, SECOND, Docker, engine, remove
from benchmarks.images.figures import Measurement, results
from benchmarks.images.machine import machine
from benchmarks.images.namespace import alone, namespace
from benchmarks.images.registry import Registry
from benchmarks.images.scenarios import Course, run_course
from benchmarks.images.targets import Target, find_knob, target
from tfimg.index.network import read_host_network, read_pip_settings

STORES = ("containerd", "classic")
PYTHONS = ("3.9", "3.11", "3.13")
"""Of the family: those that bootstrapped bases have."""

KEPT_FILE = "kept.tar"
CPU_BESIDE = ("3.11", "3.13")
"""Of a GPU family's images for CPUs."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be measured, and below which folder."""

    tensorflow: str
    python: str
    device: str
    scenarios: Sequence[str]
    contestants: Sequence[str]
    stores: Sequence[str]
    runs: int
    scratch: Path


def everyone() -> list[Contestant]:
    """All contestants, with this machine's way to package indexes."""
    network = read_host_network(os.environ, read_pip_settings())
    return [*(Plainly(layout=layout, network=network) for layout in LAYOUTS.values()), Tfimg()]


def measure_all(order: Order, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure; returns, and passes to `keep` after every contestant, the whole document. Raises `CannotMeasure`."""
    contestants = [one for one in everyone() if one.name in order.contestants]
    one, several = targets(order)
    knob = find_knob(one)
    document: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": machine(),
        "layouts": {name: layout.what for name, layout in LAYOUTS.items()},
        "identifier": one.identifier,
        "knob": knob.requirement,
        "family": [member.identifier for member in several],
    }
    measurements: list[Measurement] = []
    with place(order) as folder:
        for run, store, contestant in turns(order, contestants):
            say(f"run {run + 1} of {order.runs}, {store} store: {contestant.name}")
            with engine(folder / store, store) as docker:
                course = Course(
                    docker=docker, registry=prepare(docker, [one, *several]), target=one, knob=knob, family=several,
                    scenarios=order.scenarios, say=say,
                )  # fmt: skip
                document["engine"] = docker("version", "--format={{.Server.Version}}").strip()
                figures = run_course(course, contestant)
            measurements.append(Measurement(store=store, run=str(run), contestant=contestant.name, figures=figures))
            document["measurements"] = [asdict(measurement) for measurement in measurements]
            document["results"] = [asdict(result) for result in results(measurements)]
            keep(document)
    return document


def turns(order: Order, contestants: Sequence[Contestant]) -> Iterator[tuple[int, str, Contestant]]:
    """Who runs after whom: stores and contestants take turns, and no contestant is always the first."""
    for run in range(order.runs):
        first = run % len(contestants)
        for store in order.stores:
            for contestant in [*contestants[first:], *contestants[:first]]:
                yield run, store, contestant


def targets(order: Order) -> tuple[Target, list[Target]]:
    """The one image, and the family if a scenario needs it."""
    one = target(order.tensorflow, order.python, order.device)
    if not {"second", "family"} & set(order.scenarios):
        return one, []
    kinds = [(python, order.device) for python in PYTHONS]
    kinds += [(python, "cpu") for python in CPU_BESIDE] if order.device == "gpu" else []
    kinds = kinds if "family" in order.scenarios else kinds[:2]
    return one, [target(order.tensorflow, python, device) for python, device in kinds]


@contextmanager
def place(order: Order) -> Iterator[Path]:
    """A network and a folder for the engines. What a killed benchmark left behind goes first."""
    folder = order.scratch.resolve()
    with alone():
        try:
            _clear(folder)
            with namespace():
                yield folder
        finally:
            _clear(folder)
            with suppress(OSError):  # the folder may hold what is not ours
                folder.rmdir()


def _clear(folder: Path) -> None:
    for left in (SECOND, *STORES):
        remove(folder / left)
    (folder / KEPT_FILE).unlink(missing_ok=True)


def prepare(docker: Docker, needed: Sequence[Target]) -> Registry:
    """Have tfimg make the bases of these images, and make the registry's; later engines of the session load them."""
    archive, registry = docker.folder.with_name(KEPT_FILE), Registry(docker=docker)
    if archive.exists():
        docker("load", "--quiet", f"--input={archive}")
        return registry
    for python in sorted({one.python for one in needed}):
        say(f"making the base for Python {python}")
        prepare_base(docker, target(needed[0].tensorflow, python, "cpu"))
    registry.install(base(docker, needed[0].python))
    docker("save", f"--output={archive}", *(name for name in docker.images() if name.startswith(KEPT)))
    return registry


def say(text: str) -> None:
    """Tell people how it goes."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)

"""Who builds: a layout through `docker build`, and tfimg through its own command line."""

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.images.dockerfiles import Layout
from benchmarks.images.engines import BASES, Docker, timed
from benchmarks.images.failure import CannotMeasure
from benchmarks.images.targets import PROGRAM, ROOT, Knob, Target, turned_workspace
from tfimg.core.process import CommandFailed, run
from tfimg.index.network import HostNetwork


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image in an engine's store: the seconds until it was there, and those of its validation."""

    name: str
    seconds: float
    suite: float = 0


class Contestant(Protocol):
    """Builds images on an engine. Raises `CannotMeasure` when it cannot."""

    @property
    def name(self) -> str:
        """What it is called."""

    def build(self, docker: Docker, target: Target, knob: Knob | None = None) -> Built:
        """Build an image, with another version of one package where there is a knob."""

    def ask_again(self, docker: Docker, target: Target) -> float | None:
        """Seconds until it knows that an image is there as it should be; None where it has no such command."""


@dataclass(frozen=True, kw_only=True)
class Plainly:
    """A layout, built with `docker build` and nothing but its defaults."""

    layout: Layout
    network: HostNetwork

    @property
    def name(self) -> str:
        """The layout's."""
        return self.layout.name

    def build(self, docker: Docker, target: Target, knob: Knob | None = None) -> Built:
        """Write the Dockerfile and build it."""
        name = f"bench/{self.name}:{target.identifier}"
        secrets, env = self.network.secrets()
        with tempfile.TemporaryDirectory() as context:
            Path(context, "Dockerfile").write_text(self.layout.text(base(docker, target.python), target, knob))
            shutil.copy(ROOT / "images/build/with-network", context)
            options = [f"--tag={name}", *(f"--secret={secret}" for secret in secrets)]
            return Built(name=name, seconds=timed(lambda: docker("build", *options, context, env=env)))

    def ask_again(self, docker: Docker, target: Target) -> None:
        """`docker build` knows by building."""


@dataclass(frozen=True, kw_only=True)
class Tfimg:
    """`tfimg build` of this checkout."""

    name: str = "tfimg"

    def build(self, docker: Docker, target: Target, knob: Knob | None = None) -> Built:
        """Build, validate and tag; the seconds of the validation are a figure of their own."""
        said: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            workspace = turned_workspace(Path(folder), knob) if knob else ROOT
            argv, env = command(target), environment(docker, workspace)
            seconds = timed(lambda: said.append(_run(argv, env)))
        suite = suite_seconds(json.loads(line) for line in said[0].splitlines())
        return Built(name=f"bench/tfimg:{target.identifier}", seconds=seconds - suite, suite=suite)

    def ask_again(self, docker: Docker, target: Target) -> float:
        """`tfimg build` with a pattern makes only what is not there already."""
        argv, env = [*PROGRAM, "build", target.identifier, *OPTIONS], environment(docker)
        return timed(lambda: _run(argv, env))


OPTIONS = ("--base=bootstrap", "--repository=bench/tfimg", "--json")


def command(target: Target) -> list[str]:
    """The command line of an image."""
    requested = [f"--tf={target.tensorflow}", f"--python={target.python}", f"--device={target.device}"]
    return [*PROGRAM, "build", *requested, *OPTIONS]


def environment(docker: Docker, workspace: Path = ROOT) -> dict[str, str]:
    """The environment of a tfimg of this checkout that uses an engine of the benchmark's."""
    return {**docker.env, "PYTHONPATH": str(ROOT / "builder"), "TFIMG_WORKSPACE": str(workspace)}


def suite_seconds(events: Iterable[dict[str, object]]) -> float:
    """What the suite took of a build that printed these events; nothing where no check ran in it."""
    checked, seconds = False, 0.0
    for event in events:
        checked = checked or event["event"] == "check"
        report = event.get("report")
        if isinstance(report, dict):
            seconds = float(report["seconds"])
    return seconds if checked else 0.0


def prepare_base(docker: Docker, target: Target) -> None:
    """Let tfimg make the base of an image, and interrupt it when the base is there."""
    child = subprocess.Popen(
        command(target), env=environment(docker), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    if any(_has_base(docker, target.python) for _ in child.stdout):
        child.send_signal(signal.SIGINT)
    _, complaint = child.communicate()
    if not _has_base(docker, target.python):
        raise CannotMeasure(f"There is no base to build on: {complaint.strip()}")


def _has_base(docker: Docker, python: str) -> bool:
    return any(_is_base(name, python) for name in docker.images())


def base(docker: Docker, python: str) -> str:
    """The base of a Python in an engine's store, where `prepare_base` has put it."""
    return next(name for name in docker.images() if _is_base(name, python))


def _is_base(name: str, python: str) -> bool:
    return name.startswith(f"{BASES}:") and name.endswith(f"-py{python}")


def _run(argv: Sequence[str], env: dict[str, str]) -> str:
    try:
        return run(argv, env=env)
    except CommandFailed as failed:
        raise CannotMeasure(f"`tfimg {' '.join(argv[3:])}` failed: {failed.stderr.strip()}") from None

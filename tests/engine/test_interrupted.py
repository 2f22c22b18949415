"""A build that was interrupted, or ended by a red step, does not disturb the next one.

The layers are those of a real image; its template has no other steps than copying them and the base, so that most of a
build's time is their transfer.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.cli import NO_ENGINE
from support.docker_daemon import bridge, daemon, find_dockerd, image_tags, wait_until
from support.paths import ROOT
from support.small_workspace import make_workspace
from tfimg.core.paths import state_folder
from tfimg.engine.docker import DockerEngine

pytestmark = [pytest.mark.full, pytest.mark.group("interruptions")]

IDENTIFIER = "2.15.1-cpu-py3.11"
REPOSITORY = "tfimg-test/interrupted"

MOMENTS = 10
"""Moments at which a build is interrupted, spread over the time that an undisturbed one takes."""

TEMPLATE = """\
ARG BASE={{ spec.base.image }}
FROM ${BASE} AS base
RUN --network=none mkdir -p /opt/tensorflow/bin && ln -s /usr/bin/python3 /opt/tensorflow/bin/python \\
    && echo {{ spec.identifier }} >/opt/tensorflow/identifier
FROM base AS system
FROM base AS red
RUN --network=none SECONDS_UNTIL_RED
FROM scratch AS image
ENV PATH=/opt/tensorflow/bin:/usr/bin:/bin
COPY --link --from=system / /
COPY --link --from=red /opt/tensorflow/identifier /red
{% for name, value in labels.items() -%}
LABEL {{ name }}="{{ value }}"
{% endfor -%}
CMD ["python3"]
"""


@dataclass(kw_only=True)
class Engine:
    """An engine of these tests alone. Killed, it starts again where it was."""

    folder: Path
    store: str
    host: str = ""
    _running: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        features = f'{{"features": {{"containerd-snapshotter": {str(self.store == "containerd").lower()}}}}}'
        (self.folder / "daemon.json").write_text(features)
        started = daemon(self.folder, find_dockerd(), f"--config-file={self.folder}/daemon.json")
        self.host = self._running.enter_context(started)

    def kill(self) -> None:
        pid = int((self.folder / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
        self.stop()
        (self.folder / "pid").unlink(missing_ok=True)

    def stop(self) -> None:
        self._running.close()

    @property
    def client(self) -> DockerEngine:
        return DockerEngine(host=self.host, environ=os.environ)


@dataclass(kw_only=True)
class Place:
    """A workspace and a state folder; `engine` builds, unless a builder is named for `host`."""

    folder: Path
    engine: Engine
    host: str | None = None
    environ: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    seconds: float = 0.0

    def spoil(self, seconds: float | None = None) -> None:
        """Let a step fail after some seconds, or none."""
        step = "true" if seconds is None else f"sleep {seconds:.1f} && false"
        templates = make_workspace(self.folder / "workspace").templates
        (templates / "Dockerfile.j2").write_text(TEMPLATE.replace("SECONDS_UNTIL_RED", step))

    def forget(self) -> None:
        """Remove what builds have left in the engines, but not what these keep of interrupted transfers."""
        own = self.engine.client
        for name in image_tags(own):
            if not name.startswith("tfimg/base:"):
                own.remove_with_containers(name)
        if self.host:  # other tests build there too
            DockerEngine(host=self.host, environ=os.environ).remove_with_containers(f"{REPOSITORY}:{IDENTIFIER}")
        subprocess.run(
            ["docker", "--host", self.engine.host, "builder", "prune", "--all", "--force"],
            check=True, capture_output=True,
        )  # fmt: skip

    @property
    def address(self) -> str:
        return self.host or self.engine.host

    def begin(self, state: str = "state") -> subprocess.Popen[str]:
        """Start a build, whose state but the layers is in a folder of its own."""
        home = self.folder / state
        home.mkdir(exist_ok=True)
        if not (home / "layers").exists():
            (home / "layers").symlink_to(state_folder(os.environ) / "layers")
        places = {"TFIMG_WORKSPACE": str(self.folder / "workspace"), "TFIMG_STATE": str(home)}
        line = [sys.executable, "-P", "-m", "tfimg", "build", "--tf", "2.15.1", "--python", "3.11"]
        line += ["--base", "bootstrap", "--repository", REPOSITORY, *self.options]
        environ = {**os.environ, **self.environ, "DOCKER_HOST": self.address, **places}
        return subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def build(self) -> float:
        """Build to the end; return the seconds."""
        began = time.monotonic()
        self.require_green(self.begin())
        return time.monotonic() - began

    def require_green(self, child: subprocess.Popen[str]) -> None:
        said, _ = child.communicate(timeout=300)
        assert child.returncode == 0, said
        assert "again in a minute" not in said

    def interrupt(self, kind: str, seconds: float) -> None:
        """Begin a build, and end it after some seconds by a signal, a red step, or the death of the engine."""
        self.spoil(seconds if kind == "red step" else None)
        child = self.begin()
        try:
            if kind != "red step":
                time.sleep(seconds)
            if kind == "killed engine":
                self.engine.kill()
                self.engine.start()
            elif kind != "red step":
                child.send_signal(getattr(signal, kind))
            child.communicate(timeout=120)
        finally:
            child.kill()
            self.spoil()


@contextmanager
def own_engine(folder: Path, store: str) -> Iterator[Engine]:
    """Start an engine with a store, and end it."""
    engine = Engine(folder=folder, store=store)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def make_place(folder: Path, engine: Engine, **settings: Any) -> Place:
    place = Place(folder=folder, engine=engine, **settings)
    place.spoil()
    locks = folder / "workspace/images/locks" / IDENTIFIER
    shutil.copytree(ROOT / "images/locks" / IDENTIFIER, locks, dirs_exist_ok=True)
    place.build()  # makes the layers, where no build has made them
    place.forget()
    place.seconds = place.build()
    return place


@pytest.fixture(scope="module", params=["containerd", "classic"])
def place(
    request: pytest.FixtureRequest, engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with own_engine(tmp_path_factory.mktemp(request.param), request.param) as own:
        own.client.load(engine.export(base))
        yield make_place(tmp_path_factory.mktemp("place"), own)


@pytest.fixture(scope="module")
def elsewhere(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A builder of another engine builds for the engine at hand."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with (
        tempfile.TemporaryDirectory(prefix="tfimg-") as short,
        own_engine(folder, "containerd") as own,
        bridge(Path(own.host.removeprefix("unix://")), Path(short, "buildkit.sock")),
    ):
        environ = {"DOCKER_CONFIG": f"{short}/config"}
        create = ["docker", "buildx", "create", "--name", "pod", "--driver", "remote", f"unix://{short}/buildkit.sock"]
        subprocess.run(create, env={**os.environ, **environ, "DOCKER_HOST": NO_ENGINE}, check=True, capture_output=True)
        yield make_place(folder, own, host=engine.host, environ=environ, options=("--builder", "pod"))


def assert_works_at_once(place: Place, kind: str, moment: int) -> None:
    """Interrupt a build in which everything has to be transferred, and build again."""
    place.forget()
    place.interrupt(kind, place.seconds * (moment + 0.5) / MOMENTS)
    place.build()


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("kind", ["SIGINT", "SIGTERM", "SIGKILL", "red step", "killed engine"])
def test_the_same_build_works_at_once(place: Place, kind: str, moment: int) -> None:
    if place.engine.store == "classic" and moment % 5:
        pytest.skip("the classic store takes no layers from tfimg: two moments are enough")
    assert_works_at_once(place, kind, moment)


@pytest.mark.parametrize("moment", range(0, MOMENTS, 2))
@pytest.mark.parametrize("kind", ["SIGINT", "SIGKILL"])
def test_the_same_build_works_at_once_on_a_builder_elsewhere(elsewhere: Place, kind: str, moment: int) -> None:
    assert_works_at_once(elsewhere, kind, moment)


@pytest.mark.parametrize("moment", range(0, MOMENTS, 2))
def test_another_build_of_the_same_layers_goes_on(place: Place, moment: int) -> None:
    if place.engine.store == "classic":
        pytest.skip("the classic store takes no layers from tfimg")
    place.forget()
    first = place.begin("first")
    time.sleep(place.seconds * (moment + 0.5) / MOMENTS)
    second = place.begin("second")
    time.sleep(place.seconds * 0.2)
    first.kill()
    first.communicate(timeout=60)
    place.require_green(second)


def test_the_same_build_works_at_once_after_a_full_disk(
    engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The disk fills up while layers arrive, and then gets room again."""
    folder = tmp_path_factory.mktemp("full")
    disk, image = folder / "data", folder / "disk.ext4"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(10 << 30)
    for words in (["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(disk)]):
        subprocess.run(words, check=True, capture_output=True)
    try:
        with own_engine(folder, "containerd") as own:
            own.client.load(engine.export(base))
            place = make_place(tmp_path_factory.mktemp("place"), own)
            place.forget()
            child = place.begin()
            time.sleep(place.seconds * 0.3)
            ballast = disk / "ballast"
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - (20 << 20))
            said, _ = child.communicate(timeout=300)
            ballast.unlink()
            assert child.returncode != 0, said
            assert "disk filled up" in said
            place.build()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False, capture_output=True)


def test_layers_keep_their_digests(place: Place) -> None:
    """An engine gets the same layers as a whole: what it publishes later shares them with other images."""
    if place.engine.store == "classic":
        pytest.skip("the classic store keeps layers unpacked")
    name = f"{REPOSITORY}:{IDENTIFIER}"
    place.forget()
    place.build()
    expected = place.engine.client.read_image(name).layers[:-2]  # all but those of the base and the red stage
    place.forget()
    place.interrupt("SIGKILL", place.seconds * 0.4)
    place.build()
    assert len(expected) > 4
    assert place.engine.client.read_image(name).layers[:-2] == expected

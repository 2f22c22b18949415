"""Engines that the benchmark starts for itself, each on a disk of its own, and removes with all that they hold."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.images.disk import fresh_disk, remove_disk
from benchmarks.images.failure import CannotMeasure
from benchmarks.images.namespace import ENTER
from tfimg.core.process import CommandFailed, run, start_daemon

BASES = "tfimg/base"
REGISTRY = "tfimg-bench/registry"
SECOND = "second"
"""The folder of the engine that pulls."""

SECONDS = 60
"""Until an engine answers, and until it has ended."""

KEPT = (f"{BASES}:", f"{REGISTRY}:")
"""Images that a cold start keeps: the bases are made before the clock starts."""


@dataclass(frozen=True, kw_only=True)
class Docker:
    """The `docker` command on one engine. Failures are raised as `CannotMeasure`."""

    host: str
    folder: Path
    store: str

    @property
    def env(self) -> dict[str, str]:
        """The environment that makes any program use this engine, and keep what it caches beside it."""
        kept = {"TFIMG_STATE": "", "XDG_CACHE_HOME": "cache", "UV_CACHE_DIR": "cache/uv", "PIP_CACHE_DIR": "cache/pip"}
        folders = {name: str(self.state / place) for name, place in kept.items()}
        return {**os.environ, "DOCKER_HOST": self.host, **folders}

    @property
    def state(self) -> Path:
        """What programs keep beside the engine."""
        return self.folder / "state"

    def __call__(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Run it and return what it says on standard output."""
        try:
            return run(["docker", *arguments], env={**self.env, **(env or {})})
        except CommandFailed as failed:
            words = failed.stderr.strip().splitlines()[-25:]
            raise CannotMeasure(f"`docker {' '.join(arguments)}` failed:\n" + "\n".join(words)) from None

    def images(self) -> list[str]:
        """Every name in its store."""
        return self("images", "--format={{.Repository}}:{{.Tag}}").split()

    def forget_images(self) -> None:
        """Remove every image but those that are kept."""
        if unwanted := [name for name in self.images() if not name.startswith((*KEPT, "<none>"))]:
            self("rmi", "--force", *unwanted)
        self("image", "prune", "--force")

    def forget(self) -> None:
        """Remove every image but those that are kept, the whole build cache, and what programs keep beside it."""
        self.forget_images()
        shutil.rmtree(self.state, ignore_errors=True)
        self("builder", "prune", "--all", "--force")
        os.sync()  # what the disk still has to do must not be on the next one's clock

    def import_tensorflow(self, name: str) -> float:
        """Seconds until a new container of an image has imported TensorFlow."""
        return timed(lambda: self("run", "--rm", "--network=none", name, "python", "-c", "import tensorflow"))


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


@contextmanager
def engine(folder: Path, store: str, *options: str) -> Iterator[Docker]:
    """An engine with an image store of the named kind; nothing is left of it and of its folder when it ends."""
    with fresh_disk(folder):
        docker = Docker(host=f"unix://{folder}/docker.sock", folder=folder, store=store)
        try:
            _start(docker, options)
            yield docker
        finally:
            stop(folder)


def _start(docker: Docker, options: Sequence[str]) -> None:
    folder, settings = docker.folder, docker.folder / "daemon.json"
    settings.write_text(json.dumps({"features": {"containerd-snapshotter": docker.store == "containerd"}}))
    start_daemon(
        [
            *ENTER, "dockerd", f"--config-file={settings}", f"--host={docker.host}", f"--data-root={folder}/data",
            f"--exec-root={folder}/exec", f"--pidfile={folder}/pid", *options,
        ],
        log=folder / "log",
    )  # fmt: skip
    deadline = time.monotonic() + SECONDS
    while True:
        with suppress(CannotMeasure):
            docker("version")
            return
        if time.monotonic() > deadline:
            words = (docker.folder / "log").read_text(errors="replace").splitlines()[-5:]
            raise CannotMeasure("An engine of the benchmark's own does not answer:\n" + "\n".join(words))
        time.sleep(0.1)


def remove(folder: Path) -> None:
    """End the engine of a folder, also one that a killed benchmark left behind, and remove all that it held."""
    stop(folder)
    remove_disk(folder)


def stop(folder: Path) -> None:
    """End the engine of a folder, where one runs."""
    pid = _pid(folder)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + SECONDS
        while _pid(folder) is not None and time.monotonic() < deadline:
            time.sleep(0.1)
    # Containers on the engine's own network leave a mount of it behind; deeper ones go first.
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((one for one in mounts if one.startswith(f"{folder}/")), reverse=True):
        with suppress(CommandFailed):
            run(["umount", mount])


def _pid(folder: Path) -> int | None:
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int((folder / "pid").read_text())
        # Ids are used again: only a daemon that was given this folder is ours.
        return pid if f"{folder}/data".encode() in Path(f"/proc/{pid}/cmdline").read_bytes() else None
    return None


def require_space(folder: Path, needed: float, what: str) -> None:
    """Raises `CannotMeasure` when the disk has less than `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CannotMeasure(
            f"{what} needs up to {needed / 1e9:.0f} GB of disk, and {free / 1e9:.0f} GB are free below {folder}. "
            "Free some, or name another folder with --scratch."
        )

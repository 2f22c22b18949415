"""The least that an image's bytes take on this machine, and what tfimg takes for its layers.

    .venv/bin/python tests/benchmarks/floor.py 2.15.1-cuda12.2-py3.11 [--json]

The floor: the wheels are fetched, and, when they are here, each byte in them is inflated, hashed and compressed once,
on all processors, and written once unpacked and once compressed. Rates are measured on the very wheels, one after the
other, right before tfimg makes the layers of them from nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tfimg.layers.layers import DOWNLOADS, LayerStore, WheelSource, fetch_wheel, make_layers
from tfimg.layers.wheel import BlobWriter, unpack_wheel
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.lock import read_packages

SAMPLE = 1_500_000_000
"""Bytes that rates are measured on."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """Seconds that each kind of work takes at the measured rate, on all processors; megabytes moved."""

    fetched_mb: float
    unpacked_mb: float
    packed_mb: float
    fetch_seconds: float
    inflate_seconds: float
    hash_seconds: float
    compress_seconds: float
    write_seconds: float

    @property
    def seconds(self) -> float:
        """Fetching, and after it what can only be done with a wheel that is here."""
        worked = self.inflate_seconds + self.hash_seconds + self.compress_seconds
        return self.fetch_seconds + worked + self.write_seconds


class _Nothing:
    """A layer that is read and not made, so that reading can be timed alone."""

    def __init__(self) -> None:
        self.content: list[bytes] = []
        self.bytes = 0

    def add(self, _path: str, _size: int, pieces: Iterator[bytes], **_: object) -> None:
        for piece in pieces:
            self.bytes += len(piece)
            if self.bytes < SAMPLE:
                self.content.append(piece)


def timed(work: Callable[[], object]) -> float:
    """Seconds of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(project: Project, identifier: str, folder: Path) -> tuple[Floor, float]:
    """The floor of an image's layers, and what making them took."""
    lock = project.workspace.read_lock(identifier)
    index = project.services.index()
    packages = read_packages(lock)
    with ThreadPoolExecutor(DOWNLOADS) as pool:
        wheels: list[Path] = []
        fetching = timed(
            lambda: wheels.extend(
                pool.map(
                    lambda one: fetch_wheel(one, folder / "own", downloads=folder, source=WheelSource(indexes=[index])),
                    packages,
                )
            )
        )
    read = _Nothing()

    def inflate() -> None:
        for wheel in wheels:
            unpack_wheel(wheel, shared=(), into=None, rest=read)  # type: ignore[arg-type]

    inflating = timed(inflate)
    sample = b"".join(read.content)
    hashing = timed(lambda: hashlib.sha256(sample).digest()) * read.bytes / len(sample)
    compressing, packed = _compress(sample, folder)
    writing = timed(lambda: _write(folder / "sample", sample)) / len(sample)
    processors = os.cpu_count() or 1
    total = read.bytes * packed
    floor = Floor(
        fetched_mb=sum(wheel.stat().st_size for wheel in wheels) / 1e6, unpacked_mb=read.bytes / 1e6,
        packed_mb=total / 1e6, fetch_seconds=fetching, inflate_seconds=inflating / processors,
        hash_seconds=hashing / processors, compress_seconds=compressing * read.bytes / len(sample) / processors,
        write_seconds=writing * (read.bytes + total),
    )  # fmt: skip
    making = timed(
        lambda: make_layers(
            lock, LayerStore(folder=folder / "store"), source=WheelSource(indexes=[index]), compression="fast",
            on_event=lambda *_: None,
        )
    )  # fmt: skip
    return floor, making


def _compress(sample: bytes, folder: Path) -> tuple[float, float]:
    """Seconds without those of hashing, and the size as a part of the sample's."""
    with (folder / "packed").open("wb") as sink:
        writer = BlobWriter(sink, "fast")
        seconds = timed(lambda: writer.add("sample", len(sample), [sample]))
        blob = writer.close()
    hashing = timed(lambda: hashlib.sha256(sample).digest())
    return seconds - hashing, blob.size / len(sample)


def _write(file: Path, content: bytes) -> None:
    with file.open("wb") as sink:
        sink.write(content)
        sink.flush()
        os.fsync(sink.fileno())


def main() -> None:
    """Measure and print."""
    named = [word for word in sys.argv[1:] if not word.startswith("-")]
    identifier = named[0] if named else "2.15.1-cpu-py3.11"
    project = Project(services=Services(environ=os.environ))
    with tempfile.TemporaryDirectory(prefix="tfimg-floor-", dir="/var/tmp") as folder:
        floor, making = measure(project, identifier, Path(folder))
    if "--json" in sys.argv:
        print(json.dumps({**asdict(floor), "floor_seconds": floor.seconds, "layers_seconds": making}))
        return
    for name, value in asdict(floor).items():
        print(f"{name:18} {value:8.1f}")
    print(f"{'floor':18} {floor.seconds:8.1f} s")
    print(f"{'layers':18} {making:8.1f} s, {making / floor.seconds:.2f} times the floor")


if __name__ == "__main__":
    main()

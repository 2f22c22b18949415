"""Run programs in containers of a Docker engine."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

import requests
from docker.models.containers import Container
from docker.types import DeviceRequest
from docker.utils.socket import frames_iter

from tfimg.core.cancellation import on_cancel
from tfimg.core.errors import EngineTooOld
from tfimg.core.tar import make_archive
from tfimg.engine.docker.connection import DockerConnection
from tfimg.engine.protocol import DeviceAccess, Exit, Line, RunRequest

DEVICE_OPTIONS: Mapping[DeviceAccess, Mapping[str, Any]] = {
    "none": {},
    "nvidia": {"device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])], "shm_size": "1g"},
    "cdi": {
        "device_requests": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=all"])],
        "shm_size": "1g",
    },
    "tpu": {"privileged": True, "network_mode": "host", "shm_size": "16g"},
}
"""API arguments for all accelerators, as of `docker run --gpus all`, of `--device nvidia.com/gpu=all`, and of Google's
page on containers of TPU VMs."""

OLDEST_CDI_PODMAN = 5
"""Podman 5.4 gives devices of CDI to containers of its Docker-compatible API; 4.3 ignores the request."""

MAX_LINE = 8 << 20
"""Bytes of a line; a longer one is split."""


class DockerContainers(DockerConnection):
    """Implements `ContainerRunner`."""

    def run(self, request: RunRequest, *, timeout: float) -> Generator[Line | Exit, None, None]:
        """See `ContainerRunner`. Raises `EngineTooOld` where a Podman would ignore the request for a GPU."""
        if request.access == "cdi" and self.podman and int(self.podman.partition(".")[0]) < OLDEST_CDI_PODMAN:
            raise EngineTooOld(
                f"Podman {self.podman} at {self.host} gives no GPU to containers that are started through its socket.",
                next_step="Run the suite with its command, or upgrade it: "
                f"`tfimg run {request.image} -- tfimg-selftest`.",
            )
        with self.errors():
            container = self.client.containers.create(
                request.image,
                list(request.command),
                entrypoint=list(request.entrypoint) if request.entrypoint else None,
                environment=dict(request.environment),
                **{"network_mode": request.network, "user": request.user, **DEVICE_OPTIONS[request.access]},
            )
            expired = threading.Event()

            def kill() -> None:
                expired.set()
                with suppress(requests.exceptions.RequestException):
                    container.kill()

            # A silent program sends no events: a timer kills it, which ends the stream.
            timer = threading.Timer(timeout, kill)
            timer.daemon = True
            try:
                container.put_archive("/", make_archive(request.files))
                yield from self._attach(container, timer)
                status = container.wait()["StatusCode"]
                container.reload()
                if expired.is_set():
                    raise TimeoutError(f"no end after {timeout:.0f} s")
                yield Exit(status=int(status), out_of_memory=bool(container.attrs["State"]["OOMKilled"]))
            finally:
                timer.cancel()
                with suppress(requests.exceptions.RequestException):
                    container.remove(force=True, v=True)

    def _attach(self, container: Container, timer: threading.Timer) -> Iterator[Line]:
        # Before the start, so that no line is lost.
        stream: Any = self.client.api.attach_socket(str(container.id), {"stdout": 1, "stderr": 1, "stream": 1})
        with closing(stream), closing(stream._response):
            container.start()
            timer.start()
            with on_cancel(container.kill):
                try:
                    yield from split_lines(frames_iter(stream, tty=False))  # type: ignore[no-untyped-call]
                except OSError as error:
                    raise self.unavailable(error) from None


def split_lines(frames: Iterator[tuple[int, bytes]]) -> Iterator[Line]:
    """Yield whole lines from a stream of frames; a frame's number is that of the file descriptor."""
    open_lines = {1: b"", 2: b""}
    for number, piece in frames:
        *whole, rest = (open_lines[number] + piece).split(b"\n")
        if len(rest) > MAX_LINE:
            whole, rest = [*whole, rest], b""
        open_lines[number] = rest
        yield from (_decode_line(number, line) for line in whole)
    yield from (_decode_line(number, rest) for number, rest in open_lines.items() if rest)


def _decode_line(number: int, line: bytes) -> Line:
    return Line(stream="stdout" if number == 1 else "stderr", text=line.decode(errors="replace"))

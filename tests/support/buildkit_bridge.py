"""An engine's own BuildKit as a builder by itself: what a `remote` builder of buildx connects to.

BuildKit inside Docker speaks gRPC behind `POST /grpc` with an upgrade (moby, api/server/router/grpc). The bridge makes
that step for whoever connects to its socket, and passes bytes on.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UPGRADE = b"POST /grpc HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def bridge(engine: Path, where: Path) -> Iterator[None]:
    """Listen at the socket `where` for as long as the block lasts, for the engine at the socket `engine`."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(where))
        listener.listen()
        threading.Thread(target=_serve, args=(listener, engine), daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            where.unlink()


def _serve(listener: socket.socket, engine: Path) -> None:
    with suppress(OSError):  # closed: the block has ended
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=_join, args=(caller, engine), daemon=True).start()


def _join(caller: socket.socket, engine: Path) -> None:
    with caller, socket.socket(socket.AF_UNIX) as callee, suppress(OSError):
        callee.connect(str(engine))
        callee.sendall(UPGRADE)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += callee.recv(1)
        back = threading.Thread(target=_copy, args=(callee, caller), daemon=True)
        back.start()
        _copy(caller, callee)
        back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)

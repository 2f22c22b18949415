"""An HTTP server in this process, for as long as a block lasts."""

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class AnyMethod(BaseHTTPRequestHandler):
    """Answers every method with `answer`."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True
    """A response in several writes would wait 40 ms for the acknowledgement of the first."""

    def handle_one_request(self) -> None:
        if self.rfile.peek(1)[:1] == b"\x16":  # type: ignore[attr-defined]
            # The client speaks TLS: answered as Go's servers do, instead of waiting for the end of a line.
            self.connection.sendall(
                b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTPS request to an HTTP server.\n"
            )
            self.close_connection = True
            return
        super().handle_one_request()

    def answer(self) -> None:
        raise NotImplementedError

    def reply(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *arguments: object) -> None:
        """Be silent."""


class Server(ThreadingHTTPServer):
    """`subject` is what its handlers are about."""

    daemon_threads = True
    subject: Any = None

    def handle_error(self, *arguments: object) -> None:
        """A connection that ends in the middle is what many tests are about."""

    def shutdown_request(self, request: Any) -> None:
        with suppress(OSError):  # it was reset
            super().shutdown_request(request)


@contextmanager
def serving(
    handler: type[BaseHTTPRequestHandler], subject: object, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[str]:
    """HOST:PORT of a server on an address of this machine."""
    server = Server((host, 0), handler)
    server.subject = subject
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)

"""Why a request or a write failed, read from real sockets, real full disks and recorded output of programs."""

import errno
import os
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import trustme

from tfimg.core.errors import DiskSpaceError, FileError, InternalError, NetworkError
from tfimg.core.failures import disk_error, is_full_disk, network_error, read_failure, read_output, to_tfimg_error
from tfimg.core.files import name_in_errors


def fail(url: str, **options: str) -> NetworkError:
    """Return the error of a request that fails."""
    with pytest.raises(requests.RequestException) as caught:
        requests.get(url, timeout=2, proxies=options).raise_for_status()
    return network_error("Cannot read it", read_failure(caught.value))


@contextmanager
def answering(answer: bytes, *, tls: bool = False) -> Iterator[str]:
    """Serve one answer on loopback, with a certificate of an unknown authority if `tls`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if tls:
            trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

        def serve() -> None:
            connection, _ = server.accept()
            try:
                with context.wrap_socket(connection, server_side=True) if tls else connection as stream:
                    stream.recv(65536)
                    stream.sendall(answer)
            except OSError:
                connection.close()  # the client refuses the certificate

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()


def unused_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_each_stage_of_a_request_is_named_with_its_host() -> None:
    closed = unused_port()
    assert str(fail(f"http://{closed}/x")) == (
        f"Cannot read it: {closed} cannot be reached: connection refused. Check its name and port, and whether this "
        "network needs a proxy (HTTPS_PROXY, NO_PROXY)."
    )
    assert str(fail("https://index.test/x", https=f"http://me:secret@{closed}")) == (
        f"Cannot read it: the proxy {closed} for index.test does not work: connection refused. Check HTTPS_PROXY, "
        "HTTP_PROXY and NO_PROXY, and proxy in pip's configuration."
    )
    with answering(b"HTTP/1.1 403 \x1b[31mred\r\n\r\n") as host:
        assert f"it: {host} answered with HTTP status 403 Forbidden. Check the cred" in str(fail(f"http://{host}"))
    with answering(b"HTTP/1.1 407 No\r\n\r\n") as host:
        error = fail("https://index.test", https=f"http://{host}")
        assert f"the proxy {host} for index.test does not work: 407 No. Put a name and password" in str(error)
    with answering(b"", tls=True) as host:
        error = fail(f"https://{host}")
        assert f"the TLS certificate of {host} is not trusted: unable to get local issuer certificate. For a" in str(
            error
        )
    with answering(b"no TLS\r\n") as host:
        assert f"the TLS handshake with {host} failed: " in str(fail(f"https://{host}"))
    with answering(b"") as host:
        assert f"the connection to {host} was cut: remote end closed connection" in str(fail(f"http://{host}"))


def test_a_name_that_is_not_resolved_is_a_matter_of_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    message = str(fail("https://index.test:8443/x"))
    assert "it: DNS does not resolve the name index.test: temporary failure in name resolution. Check the" in message
    assert "/etc/resolv.conf names" in message
    assert "the proxy proxy.test:1 for index.test" in str(fail("https://index.test/x", https="http://proxy.test:1"))


UV = "error: Failed to fetch: https://a.test/simple/numpy/\n  cause: error sending request for url (https://a.test/x)\n"
PIP = "Retrying (Retry(total=4)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection."


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (f"{UV}  cause: tcp connect error\n  cause: Connection refused (os error 111)",
         "a.test cannot be reached: connection refused"),
        (f"{UV}  cause: failed to lookup address information: Name or service not known",
         "DNS does not resolve the name a.test: name or service not known"),
        (f"{UV}  cause: tunnel error: failed\n  cause: Connection refused (os error 111)",
         "the proxy for a.test does not work: connection refused"),
        (f"{UV}  cause: invalid peer certificate: UnknownIssuer",
         "the TLS certificate of a.test is not trusted: unknown issuer"),
        (f"{PIP}HTTPSConnection object>: Failed to establish a new connection: [Errno 111] Connection refused')'",
         "the server cannot be reached: connection refused"),
        ("error sending request for url (https://ann:pass@word@b.test/x): connection refused",
         "b.test cannot be reached: connection refused"),
        ("fatal: unable to access 'http://b.test/x/': Could not resolve host: b.test",
         "DNS does not resolve the name b.test"),
        ("fatal: unable to access 'https://b.test/x/': server certificate verification failed. CAfile: none",
         "the TLS certificate of b.test is not trusted"),
        ('Get "https://r.test/v2/": dial tcp: lookup r.test on 127.0.0.11:53: no such host',
         "DNS does not resolve the name r.test: no such host"),
        ('Get "https://r.test/v2/": proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused',
         "the proxy 127.0.0.1:1 for r.test does not work: connection refused"),
        ('Get "https://r.test/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority',
         "the TLS certificate of r.test is not trusted: certificate signed by unknown authority"),
        ('Get "https://r.test/v2/": dial tcp 1.2.3.4:443: i/o timeout', "r.test did not answer in time"),
        ("Err:1 http://deb.test/debian bookworm InRelease\n  Temporary failure resolving 'deb.test'",
         "DNS does not resolve the name deb.test: temporary failure resolving"),
    ],
)  # fmt: skip
def test_what_programs_print_is_read_as_well(output: str, says: str) -> None:
    failure = read_output(f"Some line before.\n{output}")
    assert failure is not None
    assert failure.describe() == says


def test_a_program_behind_a_proxy_and_one_that_failed_for_another_reason() -> None:
    failure = read_output(f"{UV}  cause: Connection refused (os error 111)", "http://me:secret@proxy.test:3128")
    assert failure is not None
    assert failure.describe() == "a.test cannot be reached through the proxy proxy.test:3128: connection refused"
    assert read_output("error: no solution; the command timed out, and a pipe was broken: broken pipe") is None


def test_an_exception_of_a_library_becomes_an_error_without_its_representation() -> None:
    with pytest.raises(requests.RequestException) as caught:
        requests.get(f"http://{unused_port()}", timeout=2)
    error = to_tfimg_error(caught.value)
    assert isinstance(error, NetworkError)
    assert "HTTPConnection" not in str(error)
    assert isinstance(to_tfimg_error(KeyError("x")), InternalError)
    assert isinstance(to_tfimg_error(PermissionError(errno.EACCES, "Permission denied", "/x")), FileError)


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_state_folder_that_refuses_writing_is_replaced_by_another_one(reason: int, tmp_path: Path) -> None:
    folders = (tmp_path / "state", tmp_path)
    refused = OSError(reason, os.strerror(reason), str(folders[0] / "batch" / "lock"))
    error = to_tfimg_error(refused, folders)
    assert error.what.startswith(f"The state folder {folders[0]} cannot be used: {refused.filename}: ")
    assert error.next_step == "Make it this user's, or name another folder in TFIMG_STATE."
    refused.filename = str(tmp_path / "state-of-others")
    assert "TFIMG_STATE" not in str(to_tfimg_error(refused, folders))
    missing = FileNotFoundError(errno.ENOENT, "No such file or directory", str(folders[0] / "lock"))
    assert "TFIMG_STATE" not in str(to_tfimg_error(missing, folders))


def test_a_full_disk_is_named_with_its_free_space(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, name_in_errors(tmp_path / "file"):
        os.write(os.open("/dev/full", os.O_WRONLY), b"x")
    error = to_tfimg_error(caught.value)
    assert isinstance(error, DiskSpaceError)
    assert str(error).startswith(f"{tmp_path}/file cannot be written: the disk of {tmp_path} has ")
    assert error.what.endswith(" MB free.")
    unnamed = to_tfimg_error(OSError(errno.ENOSPC, "No space left on device"), [tmp_path])
    assert str(unnamed).startswith(f"A file cannot be written: the disk of {tmp_path} has ")
    needed = disk_error("The wheel a.whl", tmp_path, needed=3 * 10**9, free=10**6)
    assert needed.what == f"The wheel a.whl needs 3,000 MB, and the disk of {tmp_path} has 1 MB free."


def test_a_failure_of_the_network_while_a_file_is_written_does_not_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError) as caught, name_in_errors(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    assert caught.value.filename is None


def test_a_copied_folder_and_a_missing_temporary_folder_have_messages_without_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/file").write_text("x")
    full = OSError(errno.ENOSPC, "No space left on device", "from/file")
    monkeypatch.setattr(shutil, "copy2", lambda *_, **__: (_ for _ in ()).throw(full))
    with pytest.raises(shutil.Error) as caught:
        shutil.copytree(tmp_path / "from", tmp_path / "to", copy_function=shutil.copy2)
    assert is_full_disk(caught.value)
    assert str(to_tfimg_error(caught.value)).startswith(f"{tmp_path}/to/file cannot be written: the disk of ")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    with pytest.raises(FileNotFoundError) as missing:
        tempfile.gettempdir()
    error = to_tfimg_error(missing.value)
    assert isinstance(error, FileError), "no full disk"
    assert str(error) == (
        "No folder for temporary files can be written to, not even /tmp. Name a folder in TMPDIR that you may write "
        "to, on a disk with space."
    )

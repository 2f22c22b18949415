"""The host's network: BuildKit secrets and variables, and the transport of package indexes and registries."""

import gzip
import os
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ProtocolError

from support.cases import cases
from support.http_server import AnyMethod, serving
from support.manifests import LONGEST_WAITS, Slept
from support.messages import exactly
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import FileError, Interrupted
from tfimg.core.failures import innermost
from tfimg.core.retry import RetryPolicy
from tfimg.index.client import Index, make_network_error, read_body
from tfimg.index.network import (
    MAX_STEP_BYTES,
    Confinement,
    DirectSession,
    ForbiddenAddress,
    HostNetwork,
    LimitExceeded,
    Place,
    find_named_place,
    find_place,
    parse_pip_settings,
    read_chunks,
    read_host_network,
    read_pip_settings,
    retry_request,
)

INDEX = "https://index.example.test/simple"
OTHER = "https://other.example.test/simple"
PROXY = "http://user:pa'ss $word@proxy.example.test:3128"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a CA bundle and a .netrc."""
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / ".netrc").write_text("machine index.example.test login me password word\n")
    return tmp_path


def variables(environ: Mapping[str, str], pip: Mapping[str, str] | None = None) -> dict[str, str]:
    return dict(read_host_network({"HOME": "/nowhere", **environ}, pip or {}).variables)


@cases("index_network", "proxies_and_indexes_are_passed_and_the_environment_wins")
def test_proxies_and_indexes_are_passed_and_the_environment_wins(
    environ: dict[str, str], pip: dict[str, str], expected: dict[str, str]
) -> None:
    assert variables(environ, pip) == expected


def test_indexes_on_this_machine_s_disk_are_left_out_and_reported() -> None:
    network = read_host_network(
        {"HOME": "/nowhere"},
        {"index-url": "file:///srv/index", "extra-index-url": f"/srv/more {OTHER} file:///srv/wheels"},
    )
    assert network.variables == {"UV_INDEX": OTHER, "PIP_EXTRA_INDEX_URL": OTHER}
    assert network.left_out == (
        "extra index /srv/more: it is a folder of this host",
        "extra index file:///srv/wheels: it is a folder of this host",
        "index file:///srv/index: it is a folder of this host",
    )


def test_the_ca_bundle_and_netrc_are_the_named_ones_else_pip_s_and_that_of_the_home(home: Path) -> None:
    mine, other, named = home / "ca.pem", home / "other.pem", home / "credentials"
    other.write_text("")
    named.write_text("")
    first = read_host_network({"HOME": str(home), "SSL_CERT_FILE": str(mine)}, {"cert": str(other)})
    assert (first.ca, first.netrc) == (mine, home / ".netrc")
    second = read_host_network({"HOME": str(home), "NETRC": str(named)}, {"cert": str(other)})
    assert (second.ca, second.netrc) == (other, named)
    environ = {"HOME": str(home / "nowhere"), "SSL_CERT_FILE": str(home / "nothing.pem")}
    assert read_host_network(environ, {}).secrets() == ([], {}), "they do not exist"


def test_without_a_named_bundle_it_is_the_system_s(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.index.network.SYSTEM_BUNDLE", home / "ca.pem")
    network = read_host_network({"SSL_CERT_FILE": ""}, {})
    assert network == HostNetwork(ca=home / "ca.pem", netrc=None, variables={}, left_out=()), "none names a home"


def test_options_name_secrets_and_contain_none(home: Path) -> None:
    environ = {
        "HOME": str(home),
        "SSL_CERT_FILE": str(home / "ca.pem"),
        "HTTPS_PROXY": PROXY,
        "UV_DEFAULT_INDEX": "https://me:word@index.example.test/simple",
    }
    options, env = read_host_network(environ, {}).secrets()
    assert options == [f"id=ca,src={home}/ca.pem", f"id=netrc,src={home}/.netrc", "id=network,env=TFIMG_NETWORK_SECRET"]
    assert set(env) == {"TFIMG_NETWORK_SECRET"}
    assert "word" in env["TFIMG_NETWORK_SECRET"]


ODD = {
    "quotes": """it's "so" `odd`""",
    "dollars": "$HOME ${HOME} $(echo no) \\$",
    "signs": "a;b&c|d>e<f*?[g]#h!i~j%k",
    "spaces": "  two  spaces\tand a tab ",
    "lines": "one\ntwo",
    "letters": "grün/日本",
    "empty": "",
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_odd_characters_survive_the_shell(value: str) -> None:
    network = HostNetwork(ca=None, netrc=None, variables={"HTTPS_PROXY": value, "AFTER": "x"}, left_out=())
    _, env = network.secrets()
    script = env["TFIMG_NETWORK_SECRET"] + 'printf "%s\\0%s" "$HTTPS_PROXY" "$AFTER"'
    done = subprocess.run(["sh", "-euc", script], capture_output=True, check=True)
    assert done.stdout.decode() == f"{value}\0x"


def test_uv_gets_no_bundle_of_certificates_where_there_is_none() -> None:
    network = HostNetwork(ca=None, netrc=None, variables={}, left_out=())
    assert network.environment({"LANG": "C", "UV_INDEX_STRATEGY": "x"}) == {"LANG": "C", "UV_INDEX_STRATEGY": "x"}


def test_of_uv_s_variables_only_those_for_connections_are_kept(home: Path) -> None:
    kept = {
        "UV_CACHE_DIR": "/c", "UV_HTTP_TIMEOUT": "9", "UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1",
        "UV_INDEX_CORP_USERNAME": "ann", "UV_KEYRING_PROVIDER": "subprocess", "MY_UV_PRERELEASE": "x",
    }  # fmt: skip
    changing = {"UV_PRERELEASE": "allow", "UV_EXCLUDE_NEWER": "2020-01-01", "UV_INDEX": OTHER, "UV_OVERRIDE": "/o"}
    network = HostNetwork(ca=home / "ca.pem", netrc=None, variables={"HTTPS_PROXY": PROXY}, left_out=())
    settings = {"HTTPS_PROXY": PROXY, "SSL_CERT_FILE": str(home / "ca.pem")}
    before = {"HTTPS_PROXY": "http://before.test", "SSL_CERT_FILE": "/before.pem"}
    assert network.environment({**kept, **changing, **before}) == {**kept, **settings}


def test_uv_on_this_machine_gets_the_same_settings(home: Path) -> None:
    environ = {"HOME": str(home), "SSL_CERT_FILE": str(home / "ca.pem"), "LANG": "C"}
    assert read_host_network(environ, {"index-url": INDEX}).environment(environ) == {
        "HOME": str(home),
        "LANG": "C",
        "SSL_CERT_FILE": str(home / "ca.pem"),
        "UV_DEFAULT_INDEX": INDEX,
        "PIP_INDEX_URL": INDEX,
    }


@cases("index_network", "what_pip_lists_is_read_and_the_environment_wins")
def test_what_pip_lists_is_read_and_the_environment_wins(listed: str, settings: dict[str, str]) -> None:
    assert parse_pip_settings(listed) == settings


PIP_FIX = "`pip config debug` lists its files and variables: correct them."


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b"index-url = https://ann:s3c@ret@x/simple\n",
            "File contains no section headers. file: '{}', line: 1 .*//x/simple",
        ),
        (b"[global]\nindex-url = \xff\n", "invalid UTF-8 characters in {}"),
        (b"[global]\ntimeout = abc\n", "invalid floating-point value: 'abc'"),
        (b"[global]\nindex-url = https://x/simple\0\n", "index-url has a NUL character"),
    ],
)
def test_settings_that_pip_cannot_read_are_an_error_and_not_none(
    content: bytes, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them, packages would come from the public index."""
    file = tmp_path / "pip.conf"
    file.write_bytes(content)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    with pytest.raises(
        FileError, match=rf"^pip's configuration cannot be read: .*{says.format(file)}.*\. {PIP_FIX}$"
    ) as caught:
        read_pip_settings()
    assert ".." not in str(caught.value)
    assert "s3c" not in str(caught.value)
    assert "ret@" not in str(caught.value)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("echo out; echo 'no  file X.' >&2; exit 1", "no file X"),
        ("echo out; exit 1", "out"),
        ("exit 3", "it ended with 3"),
        ("printf '%400s' | tr ' ' x >&2; exit 1", f"{'x' * 300}…"),
    ],
)
def test_pip_s_own_reason_is_shown(program: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_python(program, tmp_path, monkeypatch)
    with pytest.raises(FileError, match=exactly(f"pip's configuration cannot be read: {reason}. {PIP_FIX}")):
        read_pip_settings()


def stand_in_for_python(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a program of the shell answer in place of this Python."""
    file = folder / "python"
    file.write_text(f'#!/bin/sh\necho "$*" >{folder}/arguments\n{program}\n')
    file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(file))


def test_pip_prints_its_effective_settings_and_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_python("echo \"global.index-url='x'\"", tmp_path, monkeypatch)
    assert read_pip_settings() == {"index-url": "x"}
    words = (tmp_path / "arguments").read_text().split()
    assert words == [words[0], "-m", "pip", "--disable-pip-version-check", "config", "list"]
    stand_in_for_python("echo /env/bin/python: No module named pip >&2; exit 1", tmp_path, monkeypatch)
    assert read_pip_settings() == {}, "environments of uv have none"


def test_a_line_of_pip_that_is_no_value_is_an_error() -> None:
    values = ("http://x", "", "'a' 'b", "f()", "{[]}", "-" * 5000 + "1", "-" * 100_000 + "1")
    for line in (f"global.proxy={value}" for value in values):
        with pytest.raises(FileError, match=r"^pip's configuration cannot be read: "):
            parse_pip_settings(line)


MALFORMED = "its name or port is malformed"
NO_HOST = "it has no host, or another scheme than http"


@pytest.mark.parametrize(
    ("address", "shown", "reason"),
    [
        ("http://[::1", "http://[::1", MALFORMED),
        ("http://proxy.test:99999", "http://proxy.test:99999", MALFORMED),
        ("http://ann:s3c@ret@proxy.test:99999", "http://proxy.test:99999", MALFORMED),
        ("http://ann:s3c/ret@proxy.test:3128", "http://proxy.test:3128", MALFORMED),
        ("ann:s3c ret@proxy.test:port", "proxy.test:port", MALFORMED),
        ("%(proxy)s", "%(proxy)s", MALFORMED),
        ("proxy.test:port", "proxy.test:port", MALFORMED),
        ("ftp://proxy.test:1", "ftp://proxy.test:1", NO_HOST),
        (":", ":", NO_HOST),
        ("http://", "http://", NO_HOST),
    ],
)
def test_a_proxy_without_a_valid_address_is_named_and_its_password_is_not(
    address: str, shown: str, reason: str
) -> None:
    form = (
        "Write http://HOST:PORT, or http://NAME:PASSWORD@HOST:PORT with %40 for an @ in the password and %2F for a /."
    )
    for name, environ, pip in (
        ("HTTPS_PROXY", {"https_proxy": address}, {}),
        ("ALL_PROXY", {"ALL_PROXY": address}, {}),
        ("pip's proxy", {}, {"proxy": address}),
    ):
        says = f"{name} is not the address of a proxy: '{shown}', {reason}. {form}"
        with pytest.raises(FileError, match=exactly(says)):
            read_host_network(environ, pip)


@pytest.mark.parametrize("address", ["http://jörg:5€@proxy.test:1", "http://j%C3%B6rg:5%E2%82%AC@proxy.test:1"])
def test_a_proxy_gets_its_password_in_utf_8(address: str) -> None:
    adapter = cast("HTTPAdapter", DirectSession().get_adapter("https://x"))
    header = f"Basic {b64encode('jörg:5€'.encode()).decode()}"
    assert adapter.proxy_headers(address) == {"Proxy-Authorization": header}
    assert adapter.proxy_headers("http://proxy.test:1") == {}


@pytest.mark.parametrize("name", ["NO_PROXY", "UV_INDEX_URL", "UV_INDEX", "UV_INSECURE_HOST"])
def test_a_setting_that_is_not_utf_8_is_refused(name: str) -> None:
    value = os.fsdecode(b"http://ann:s3cret@caf\xe9.test")
    says = r"^The address of a proxy or index is not UTF-8: 'http://caf\\udce9\.test'\. "
    with pytest.raises(FileError, match=says):
        read_host_network({name: value}, {})
    with pytest.raises(FileError, match=says):
        read_host_network({}, {"index-url": value})


def test_any_other_proxy_and_hosts_without_one_are_taken(home: Path) -> None:
    for address in ("proxy.test", "proxy.test:3128", "http://a:b%40c@[::1]:1", "socks5h://p:1", "HTTPS://proxy.test/"):
        assert variables({"HOME": str(home), "HTTPS_PROXY": address})["https_proxy"] == address
    assert variables({"NO_PROXY": "[::1,10.0.0.0/8,*.test"})["no_proxy"] == "[::1,10.0.0.0/8,*.test"


def test_of_two_settings_of_pip_from_one_source_the_last_counts() -> None:
    settings = "global.proxy='http://a'\ninstall.proxy='http://b'\ninstall.proxy='http://c?d=e'\n"
    assert parse_pip_settings(settings) == {"proxy": "http://c?d=e"}


def test_a_module_in_the_current_folder_is_not_executed_in_place_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read_pip_settings()
    for module in ("pip", "json", "sitecustomize"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    assert read_pip_settings() == settings
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("place", "addresses"),
    [
        (Place.MACHINE, "127.0.0.1 127.255.255.254 0.0.0.0 :: ::1 ::ffff:127.0.0.1 ::127.0.0.1 ::ffff:0:127.0.0.1"),
        (Place.MACHINE, "64:ff9b::127.0.0.1 2002:7f00:1:: ::ffff:0.0.0.0"),
        (Place.LINK, "169.254.169.254 ::ffff:169.254.0.1 fe80::1 fe80::1%lo 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::"),
        (Place.LINK, "168.63.129.16 100.100.100.200 fd00:ec2::254 fd20:ce::254"),
        (Place.PRIVATE, "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 198.18.0.1 0.0.0.1 ::ffff:10.1.2.3"),
        (
            Place.PRIVATE,
            "224.0.0.1 255.255.255.255 240.0.0.1 fc00::1 fd12::1 fec0::1 ff02::1 2001::1 2001:db8::1 4000::1",
        ),
        (Place.PRIVATE, "64:ff9b::10.0.0.1 64:ff9b:1::1 2002:a00:1::"),
        (Place.PUBLIC, "9.9.9.9 172.32.0.1 169.253.0.1 2620:fe::fe ::ffff:9.9.9.9 64:ff9b::9.9.9.9 2002:909:909::"),
    ],
)
def test_an_address_is_where_its_bytes_lead_in_any_spelling(place: Place, addresses: str) -> None:
    assert {address: find_place(address) for address in addresses.split()} == dict.fromkeys(addresses.split(), place)


@pytest.mark.parametrize(
    ("place", "hosts"),
    [
        (Place.MACHINE, "127.1 0x7f000001 2130706433 0177.0.0.1 0 ::ffff:127.0.0.1 localhost LocalHost a.localhost"),
        (Place.MACHINE, "localhost.localdomain"),
        (Place.LINK, "169.254.43518 0xa9fea9fe metadata metadata.google.internal Metadata.any.example instance-data"),
        (Place.PRIVATE, "10.1 0x0a000001 registry ip6-localhost registry.corp.internal printer.local"),
        (Place.PUBLIC, f"9.9.9.9 151587081 registry.example metadatas.example localhost-1.example {'a' * 64}.example"),
    ],
)
def test_a_host_behind_a_proxy_is_where_its_text_says(place: Place, hosts: str) -> None:
    assert {host: find_named_place(host) for host in hosts.split()} == dict.fromkeys(hosts.split(), place)


LARGE = bytes(range(256)) * (3 * MAX_STEP_BYTES // 256)
PACKED = gzip.compress(LARGE)


class _Handler(AnyMethod):
    def answer(self) -> None:
        statuses = self.server.subject  # type: ignore[attr-defined]
        if statuses:
            self.reply(statuses.pop(0), {}, b"")
        elif self.path == "/sent":
            self.reply(200, {}, f"{self.command} {self.headers['Name']}".encode())
        elif self.path == "/cookie":
            self.reply(200, {}, str(self.headers["Cookie"]).encode())
        elif self.path == "/large":
            self.reply(200, {}, LARGE)
        elif self.path == "/packed":
            self.reply(200, {"Content-Encoding": "gzip"}, PACKED)
        else:
            self.reply(302, {"Location": "/large", "Set-Cookie": "a=b; Path=/"}, b"elsewhere")


@pytest.fixture
def statuses() -> list[int]:
    """What the server answers first."""
    return []


@pytest.fixture
def address(statuses: list[int]) -> Iterator[str]:
    with serving(_Handler, statuses) as there:
        yield f"http://{there}"


def test_a_body_has_a_largest_size(address: str) -> None:
    with DirectSession() as session:
        assert read_body(session.get(f"{address}/large", stream=True), len(LARGE)) == LARGE
        with pytest.raises(ValueError, match=f"^it has more than {len(LARGE) - 1} bytes$"):
            read_body(session.get(f"{address}/large", stream=True), len(LARGE) - 1)


def test_a_body_is_as_it_arrives_and_unpacked_on_demand(address: str) -> None:
    with DirectSession() as session:
        for options, body in (({}, PACKED), ({"decode": True}, LARGE)):
            response = session.get(f"{address}/packed", stream=True)
            assert b"".join(read_chunks(response, 60, 1, **options)) == body


@dataclass
class _TimedBody:
    """A body whose chunks arrive after so many seconds each."""

    chunks: list[tuple[float, bytes]]
    now: float = 1000.0
    sizes: list[int] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def read1(self, size: int, *, decode_content: bool) -> bytes:
        assert (size, decode_content) == (65536, False)
        return self._give(size)

    def read(self, size: int, *, decode_content: bool) -> bytes:
        assert not decode_content
        return self._give(size)

    def _give(self, size: int) -> bytes:
        self.sizes.append(size)
        seconds, chunk = self.chunks.pop(0) if self.chunks else (0.0, b"")
        self.now += seconds
        return chunk


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        ([(12, b"x" * 100), (8, b"y" * 100)], ""),
        ([(12, b"x" * 100), (9, b"y" * 100)], "it has sent 200 bytes in 21 seconds"),
        ([(11, b"x" * 100), (1, b"")], ""),
        ([(10.6, b"")], "it has sent 0 bytes in 11 seconds"),
    ],
)
def test_a_body_may_take_the_grace_and_as_long_as_its_bytes_need_at_the_lowest_rate(
    chunks: list[tuple[float, bytes]], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = _TimedBody(list(chunks))
    monkeypatch.setattr("tfimg.index.network.time", body)
    response = cast("requests.Response", SimpleNamespace(raw=body))
    received = b""
    with pytest.raises(LimitExceeded, match=exactly(says)) if says else nullcontext() as caught:
        for chunk in read_chunks(response, 10, 20):
            received += chunk
            body.now += 1000  # the caller's own time
    assert received or caught
    if not says:
        assert received == b"".join(chunk for _, chunk in chunks)
    else:
        assert caught.value.seconds == 10


@pytest.mark.parametrize(
    ("seconds", "sizes"),
    [
        (0.032, [*[65536] * 5, 80000, 96000, 100000, 100000]),
        (0.001, [*[65536] * 5, 80000, 96000, 112000, 128000]),
        (0.1, [65536] * 9),
    ],
)
def test_a_body_is_waited_for_in_pieces_of_a_twentieth_of_a_second(
    seconds: float, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = _TimedBody([(seconds, b"x" * 64000)] * 8)
    monkeypatch.setattr("tfimg.index.network.time", body)
    list(read_chunks(cast("requests.Response", SimpleNamespace(raw=body)), 10, 20))
    assert body.sizes == pytest.approx(sizes, abs=1)


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_the_head_of_a_response_has_a_largest_size(more: int, is_read: bool) -> None:
    line = b"a: " + b"b" * 60_000 + b"\r\n"
    start, end = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + line * 17, b"\r\n\r\n"
    filler = b"c: " + b"d" * (MAX_STEP_BYTES - len(start) - 3 - len(end) + more)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool, DirectSession() as session:
        job = pool.submit(session.get, f"http://127.0.0.1:{server.getsockname()[1]}/", stream=True)
        with server.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(start + filler + end)
            if is_read:
                assert job.result(timeout=10).status_code == 200
            else:
                with pytest.raises(requests.ConnectionError, match="more than 1 MiB of headers or framing"):
                    job.result(timeout=10)


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize("first", [b"HTTP/1.1 200 ", HEAD, HEAD + bytes(600_000)], ids=["head", "body", "fast body"])
def test_each_step_of_a_response_has_a_longest_time(first: bytes) -> None:
    session = DirectSession(step_seconds=0.05)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool, session:

        def read() -> list[bytes]:
            response = session.get(f"http://127.0.0.1:{server.getsockname()[1]}/", stream=True)
            return list(read_chunks(response, 60, 1))

        job = pool.submit(read)
        with server.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(first)
            time.sleep(0.1)
            connection.sendall(b"OK\r\n\r\n")
        with pytest.raises((requests.ConnectionError, ProtocolError)) as caught:
            job.result(timeout=10)
    limit = innermost(caught.value)
    assert isinstance(limit, LimitExceeded)
    assert (str(limit), limit.seconds) == ("no answer within 0.05 s", 0.05)


def test_a_name_that_cannot_be_resolved_is_reported() -> None:
    name = f"{'a' * 64}.test"
    says = rf"Connection\(host='{name}', port=80\): Failed to resolve '{name}' \(encoding with 'idna' codec failed"
    with DirectSession(confinement=Confinement()) as session, pytest.raises(requests.ConnectionError, match=says):
        session.get(f"http://{name}/")


def test_behind_a_proxy_a_confinement_judges_names(address: str) -> None:
    with DirectSession(confinement=Confinement()) as session:
        session.proxies["http"] = address
        session.get("http://registry.example/")
        with pytest.raises(ForbiddenAddress, match=exactly("printer.local, an address of a private network")):
            session.get("http://printer.local/")
        session.get("http://other.example/")


def test_no_redirect_is_followed_and_no_cookie_kept(address: str) -> None:
    with DirectSession() as session:
        response = session.get(f"{address}/")
        assert (response.status_code, response.content, response.history) == (302, b"elsewhere", [])
        assert response.next is None
        assert list(session.cookies) == []
        assert session.get(f"{address}/cookie").content == b"None"


def test_the_environment_changes_no_connection(address: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".netrc").write_text("default login me password word\n")
    for name, value in {"http_proxy": "http://127.0.0.1:9", "NETRC": str(home / ".netrc")}.items():
        monkeypatch.setenv(name, value)
    with DirectSession() as session:
        response = session.get(f"{address}/sent")
    assert "Authorization" not in response.request.headers


def test_a_request_is_sent_as_it_is_given_and_its_body_is_left_to_the_caller(address: str) -> None:
    with DirectSession() as session:
        policy = RetryPolicy(attempts=1)
        response = retry_request(session, "PUT", f"{address}/sent", policy, headers={"Name": "me"})
        assert response.raw.read() == b"PUT me"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_request_that_fails_for_the_moment_is_sent_again(status: int, address: str, statuses: list[int]) -> None:
    slept = Slept()
    policy = RetryPolicy(attempts=3, sleep=slept, backoff=LONGEST_WAITS)
    statuses += [status, status]
    with DirectSession() as session:
        assert retry_request(session, "GET", f"{address}/large", policy).content == LARGE
        assert slept == [1, 2]
        statuses += [status] * 3
        with pytest.raises(requests.HTTPError, match=f"^{status} "):
            retry_request(session, "GET", f"{address}/large", policy)
    assert (slept, statuses) == ([1, 2, 1, 2], [])


@pytest.mark.parametrize("status", [302, 401, 403, 404, 501])
def test_another_answer_is_returned_at_once(status: int, address: str, statuses: list[int]) -> None:
    statuses.append(status)
    with DirectSession() as session:
        policy = RetryPolicy(sleep=Slept())
        assert retry_request(session, "GET", address, policy, headers={"A": "b"}, timeout=5).status_code == status


def test_a_request_to_a_server_that_is_down_is_repeated() -> None:
    slept = Slept()
    with DirectSession() as session, pytest.raises(requests.ConnectionError):
        retry_request(session, "GET", "http://127.0.0.1:9/", RetryPolicy(attempts=2, sleep=slept))
    assert len(slept) == 1


def test_cancelled_work_sends_no_request(address: str, statuses: list[int]) -> None:
    statuses.append(200)
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), DirectSession() as session, pytest.raises(Interrupted):
        retry_request(session, "GET", address, RetryPolicy())
    assert statuses == [200]


def test_an_error_shows_no_password_and_nothing_that_changes_a_terminal() -> None:
    error = make_network_error(
        "x", ValueError("no route\n to http://ann:se@cret@proxy.test:1/\x1b[31m"), source="there"
    )
    assert str(error).startswith("Cannot read x from there: no route to http://proxy.test:1/")
    assert "\x1b" not in str(error)


@pytest.mark.timeout(30)
def test_a_request_that_waits_for_its_server_ends_with_the_work_of_its_thread() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        index, cancellation = Index(f"http://127.0.0.1:{server.getsockname()[1]}/simple"), Cancellation()

        def read() -> None:
            with cancellation.activate():
                index.wheels("six")

        job = pool.submit(read)
        with server.accept()[0]:
            cancellation.cancel()
            with pytest.raises(Interrupted):
                job.result(timeout=10)

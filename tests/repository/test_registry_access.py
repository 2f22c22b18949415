"""Who we are to a registry, whom we trust, and the way there."""

import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from urllib3.util import connection

from support.faulty_proxy import Fault, Faulty, faulty
from support.loopback_registry import Loopback, loopback
from support.manifests import ANN, CONTENT, PLAIN, Open, Slept, manifest
from support.messages import exactly
from tfimg.core.errors import FileError, NetworkError, RegistryError
from tfimg.registry.client import HttpRegistry
from tfimg.registry.documents import digest_of
from tfimg.registry.http import ConnectionSettings, TimeBudget
from tfimg.registry.reference import Credentials


@pytest.fixture(params=[False, True], ids=["basic", "token"])
def private_registry(request: pytest.FixtureRequest) -> Iterator[Loopback]:
    with loopback(users={"ann": "secret", "t0ken": ""}, tokens=request.param) as registry:
        yield registry


def test_a_known_user_may_read_and_write(private_registry: Loopback, open_registry: Open) -> None:
    client = open_registry(private_registry.address, credentials=ANN)
    client.put("1", manifest())
    client.put_blob(b"{}")
    assert client.find("1") == manifest()
    assert client.delete_tag("1")
    assert b"".join(client.get_blob(digest_of(b"{}"))) == b"{}"


def test_a_wrong_password_has_its_own_sentence(private_registry: Loopback, open_registry: Open, slept: Slept) -> None:
    client = open_registry(private_registry.address, credentials=replace(ANN, password="wrong"))
    with pytest.raises(
        RegistryError, match=rf"rejected the credentials: 401 .*docker login {private_registry.address}`"
    ) as caught:
        client.put("1", manifest())
    assert "wrong" not in str(caught.value)
    assert slept == []


def test_without_credentials_the_message_names_docker_login(private_registry: Loopback, open_registry: Open) -> None:
    says = rf"requires a login for .*: 401 UNAUTHORIZED: .*`docker login {private_registry.address}`"
    with pytest.raises(RegistryError, match=says):
        open_registry(private_registry.address).find("1")
    assert not [headers for headers in private_registry.headers if "Authorization" in headers]


def test_a_push_with_read_permission_alone_is_refused(open_registry: Open, slept: Slept) -> None:
    with loopback(users={"ann": "secret"}, tokens=True, readers=frozenset({"ann"})) as registry:
        client = open_registry(registry.address, credentials=ANN)
        assert client.list_tags() == ()
        with pytest.raises(RegistryError, match=r"denies permission to write to .*/team/tf: 401 DENIED: requested"):
            client.put("1", manifest())
    assert slept == []


def test_an_identity_token_is_changed_for_another(open_registry: Open) -> None:
    with loopback(users={"t0ken": ""}, tokens=True) as registry:
        open_registry(registry.address, credentials=Credentials(identity_token="t0ken")).put("1", manifest())
        assert "POST /token" in registry.requests


def test_an_expired_token_is_requested_again(open_registry: Open) -> None:
    with loopback(users={"ann": "secret"}, tokens=True, uses=1) as registry:
        open_registry(registry.address, credentials=ANN).put_blob(CONTENT)
        assert registry.blobs[digest_of(CONTENT)] == CONTENT
        assert len(registry.given) == 3, "of HEAD, POST and PUT"


def test_a_token_is_kept_as_long_as_it_lasts(open_registry: Open) -> None:
    with loopback(users={"ann": "secret"}, tokens=True) as registry:
        client = open_registry(registry.address, credentials=ANN)
        for tag in "abc":
            client.put(tag, manifest(tag))
        assert len(registry.given) == 2


def test_a_request_to_a_token_server_that_fails_is_repeated(open_registry: Open, slept: Slept) -> None:
    with loopback(users={"ann": "secret"}, tokens=True) as registry, faulty(registry.address) as between:
        registry.address = between.address  # where it sends those who ask
        between.faults.append(Fault(path="/token", status=503, times=2))
        assert open_registry(between.address, credentials=ANN).list_tags() == ()
    assert slept == [1, 2]


def test_the_time_of_a_token_server_is_part_of_the_registry_s_budget(open_registry: Open) -> None:
    with loopback(users={"ann": "secret"}, tokens=True) as registry, faulty(registry.address) as between:
        registry.address = between.address
        between.faults.append(Fault(path="/token", delay=0.3))
        settings = replace(PLAIN, budget=TimeBudget(seconds=0.2))
        with pytest.raises(NetworkError, match=f"^The registry {registry.address} is too slow: its answers have taken"):
            open_registry(registry.address, credentials=ANN, settings=settings).list_tags()


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_token_server_may_reject_credentials_with_any_of_these(status: int, open_registry: Open) -> None:
    with loopback(users={"ann": "secret"}, tokens=True) as registry, faulty(registry.address) as between:
        registry.address = between.address
        between.faults.append(Fault(path="/token", status=status))
        with pytest.raises(RegistryError, match=f"^The registry {between.address} rejected the credentials: {status} "):
            open_registry(between.address, credentials=ANN).list_tags()


def test_a_refusal_of_a_token_server_names_the_repository(open_registry: Open) -> None:
    with loopback(users={"ann": "secret"}, tokens=True) as registry, faulty(registry.address) as between:
        registry.address = between.address
        between.faults.append(Fault(path="/token", status=403))
        says = f"^The registry {between.address} denies permission to read {between.address}/team/tf: 403 "
        with pytest.raises(RegistryError, match=says):
            open_registry(between.address).list_tags()


@pytest.mark.parametrize("token", ["", "a b", "a" * 32_769], ids=["empty", "blank", "long"])
def test_a_token_that_fits_no_header_is_refused(token: str, open_registry: Open) -> None:
    with loopback(users={"ann": "secret"}, tokens=True) as registry, faulty(registry.address) as between:
        registry.address = between.address
        between.faults.append(Fault(path="/token", status=200, body=json.dumps({"token": token}).encode()))
        says = (
            f"The token server {between.address} of {between.address} sent no valid token: a token has 1 to 32768 "
            "printable characters of ASCII. Run it again later, or ask its owner."
        )
        with pytest.raises(RegistryError, match=exactly(says)):
            open_registry(between.address, credentials=ANN).list_tags()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_follows_up_to_five_redirects(
    method: str, status: int, server: Loopback, proxy: Faulty, client: HttpRegistry
) -> None:
    server.blobs[digest_of(CONTENT)] = CONTENT
    address = f"/v2/team/tf/blobs/{digest_of(CONTENT)}"
    proxy.faults.append(Fault(status=status, headers={"Location": address}, times=5))
    response = client._connection.request(method, address)
    assert response.content == (CONTENT if method == "GET" else b"")
    assert proxy.count(method) == 6


def test_a_redirect_that_may_not_be_followed_is_named(proxy: Faulty, client: HttpRegistry) -> None:
    proxy.faults.append(Fault(status=307, headers={"Location": "https:///x"}))
    says = (
        f"The registry {proxy.address} names 'https:///x' as the target of a redirect: it has no host name. Nothing "
        "was sent there. Check that it is the right registry, and ask its owner."
    )
    with pytest.raises(RegistryError, match=exactly(says)):
        client.list_tags()


def test_a_refused_head_request_is_about_reading(proxy: Faulty, client: HttpRegistry) -> None:
    proxy.faults.append(Fault(method="HEAD", status=403))
    with pytest.raises(RegistryError, match="denies permission to read"):
        client.put_blob(b"{}")


def test_credentials_are_sent_to_the_registry_alone(open_registry: Open) -> None:
    """A registry serves its blobs by the address of another server, and takes them there too."""
    with loopback() as store, loopback(users={"ann": "secret"}) as registry, faulty(registry.address) as between:
        store.blobs[digest_of(CONTENT)] = CONTENT
        away = f"http://{store.address}/v2/a/blobs"
        there = {"Location": f"{away}/{digest_of(CONTENT)}"}
        between.faults.append(Fault(method="GET", path="/blobs/", status=307, headers=there))
        client = open_registry(between.address, credentials=ANN)
        client.list_tags()  # from now on, the client has something to say
        assert b"".join(client.get_blob(digest_of(CONTENT))) == CONTENT
        store.uploads.add("there")
        there = {"Location": f"{away}/uploads/there"}
        between.faults.append(Fault(method="POST", status=202, headers=there))
        client.put_blob(b"{}")
        assert store.blobs[digest_of(b"{}")] == b"{}"
        assert [one for one in store.headers if "Authorization" in one] == []


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def secure(server: Loopback, authority: trustme.CA) -> Iterator[str]:
    """HOST:PORT of a registry with TLS, whose certificate is from an authority of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with faulty(server.address, tls=context) as between:
        yield between.address


def test_an_authority_of_its_own_is_trusted_where_it_is_named(
    secure: str, authority: trustme.CA, open_registry: Open, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    client = open_registry(secure, settings=ConnectionSettings(ca_file=str(tmp_path / "ca.crt")))
    client.put("1", manifest())
    assert client.find("1") == manifest()


def test_any_other_is_not(secure: str, open_registry: Open, slept: Slept, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.crt"))
    for settings in (ConnectionSettings(), ConnectionSettings(ca_file=str(tmp_path / "other.crt"))):
        with pytest.raises(
            NetworkError, match=rf"The TLS certificate of {secure} is not trusted: .*SSL_CERT_FILE.*certs.d/{secure}"
        ):
            open_registry(secure, settings=settings).list_tags()
    assert slept == []


@pytest.mark.parametrize("content", ["", "no certificate\n", "-----BEGIN CERTIFICATE-----\nMIIC\n"])
def test_an_authority_that_cannot_be_read_is_named_and_nothing_is_sent_without_tls(
    content: str, server: Loopback, authority: trustme.CA, open_registry: Open, tmp_path: Path, slept: Slept
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    (tmp_path / "ca.crt").write_text(content)
    with faulty(server.address, tls=context) as between:
        says = (
            f"{tmp_path}/ca.crt has no certificate that can be read, so the certificate of {between.address} cannot be "
            "verified. Replace it with the certificate of the registry's authority, in PEM: "
            "-----BEGIN CERTIFICATE-----."
        )
        client = open_registry(between.address, settings=ConnectionSettings(ca_file=str(tmp_path / "ca.crt")))
        with pytest.raises(FileError, match=exactly(says)):
            client.list_tags()
        assert between.requests == []
    assert slept == []


def test_a_registry_on_loopback_may_have_none(server: Loopback, open_registry: Open) -> None:
    assert open_registry(server.address, settings=ConnectionSettings()).list_tags() == ()
    assert (
        open_registry(server.address.replace("127.0.0.1", "localhost"), settings=ConnectionSettings()).list_tags() == ()
    )


def test_other_hosts_need_tls_unless_plain_http_is_set(
    server: Loopback, open_registry: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfimg.registry.http.is_loopback", lambda _: False)
    with pytest.raises(NetworkError, match=r"The TLS handshake with .* failed: wrong version number"):
        open_registry(server.address, settings=ConnectionSettings()).list_tags()
    assert open_registry(server.address, settings=PLAIN).list_tags() == ()


@pytest.mark.parametrize(("no_proxy", "through"), [("", True), ("registry.invalid", False)])
def test_a_proxy_is_used_and_bypassed_for_no_proxy(
    no_proxy: str, through: bool, server: Loopback, open_registry: Open
) -> None:
    """A request to an HTTP proxy has a whole address, which the registry behind this one does not know."""
    with faulty(server.address) as company:
        settings = replace(PLAIN, proxies={"http": f"http://{company.address}", "no_proxy": no_proxy})
        client = open_registry("registry.invalid:5000", settings=settings)
        if through:
            assert client.list_tags() == ()
            assert company.requests == ["GET http://registry.invalid:5000/v2/team/tf/tags/list"]
        else:
            with pytest.raises(NetworkError, match=r"DNS does not resolve the name registry\.invalid: "):
                client.list_tags()
            assert company.requests == []


def test_a_missing_proxy_is_named_and_not_used_for_loopback(server: Loopback, open_registry: Open) -> None:
    settings = replace(PLAIN, proxies={"http": "http://127.0.0.1:9"})
    assert open_registry(server.address, settings=settings).list_tags() == ()
    says = r"The proxy 127\.0\.0\.1:9 for the registry registry\.invalid does not work: connection refused\. "
    with pytest.raises(NetworkError, match=says):
        open_registry("registry.invalid", settings=settings).list_tags()


@dataclass
class Internet:
    """Names with their addresses, one list for each question, the last for all others; each address is `server`.

    `resolved` are the names that were resolved, `contacted` the addresses that were connected to.
    """

    server: str
    proxy: Faulty
    names: dict[str, list[list[str]]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    resolved: list[str] = field(default_factory=list)
    contacted: list[str] = field(default_factory=list)

    def resolve(self, host: str, port: Any, *arguments: Any, **options: Any) -> Any:
        if host not in self.names:
            return _RESOLVE(host, port, *arguments, **options)
        self.resolved.append(host)
        answers = self.names[host]
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [answer for one in addresses for answer in _RESOLVE(one, port, 0, socket.SOCK_STREAM)]

    def connect(self, address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
        self.contacted.append(address[0])
        if address[0] in self.down:
            raise ConnectionRefusedError(111, "Connection refused")
        host, _, port = self.server.partition(":")
        return _CONNECT((host, int(port)), *arguments, **options)


_RESOLVE, _CONNECT = socket.getaddrinfo, connection.create_connection


@pytest.fixture
def internet(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    """A network of any names and addresses, all of them a proxy before the registry."""
    with faulty(server.address) as between:
        subject = Internet(server=between.address, proxy=between)
        monkeypatch.setattr(socket, "getaddrinfo", subject.resolve)
        monkeypatch.setattr(connection, "create_connection", subject.connect)
        yield subject


PUBLIC, SECOND, OWN, CLOUD, MACHINE = "9.9.9.9", "149.112.112.112", "10.1.2.3", "169.254.169.254", "127.0.0.1"
NEARER = {
    PUBLIC: [OWN, CLOUD, MACHINE, "0.0.0.0", "::ffff:127.0.0.1", "192.168.1.1", "fd00::1", "fe80::1"],
    OWN: [CLOUD, MACHINE, "::1"],
    CLOUD: [MACHINE],
}
AS_NEAR = {PUBLIC: [SECOND, "2620:fe::fe"], OWN: [PUBLIC, "192.168.1.1", "fd00::1"], MACHINE: [MACHINE, OWN, PUBLIC]}


@pytest.mark.parametrize(("own", "other"), [(own, other) for own, others in NEARER.items() for other in others])
@pytest.mark.parametrize("step", ["redirect", "token server", "upload"])
def test_a_registry_points_to_no_address_that_is_nearer_to_this_machine(
    step: str, own: str, other: str, internet: Internet, open_registry: Open
) -> None:
    internet.names = {"registry.test": [[own]], "other.test": [[other]]}
    error = point_to_other(step, internet, open_registry("registry.test"))
    assert str(error).startswith(f"The registry registry.test points to other.test ({other}), an address ")
    assert "Nothing was sent there" in str(error)
    assert set(internet.contacted) == {own}


@pytest.mark.parametrize(("own", "other"), [(own, other) for own, others in AS_NEAR.items() for other in others])
@pytest.mark.parametrize("step", ["redirect", "token server", "upload"])
def test_a_registry_may_point_to_its_own_network_and_to_wider_ones(
    step: str, own: str, other: str, internet: Internet, open_registry: Open
) -> None:
    internet.names = {"registry.test": [[own]], "other.test": [[other]]}
    client = open_registry("registry.test")
    point_to_other(step, internet, client)
    assert internet.contacted[-1] in (own, other)
    assert other in internet.contacted
    client._connection._session.close()
    assert client.list_tags() == (), "its own place is still that of the registry"


def point_to_other(step: str, internet: Internet, client: HttpRegistry) -> RegistryError | None:
    """Let a registry point a client to other.test; return the error that this ends with."""
    there = "https://other.test/token" if step == "token server" else "http://other.test/x"
    fault = {
        "redirect": Fault(method="GET", status=307, headers={"Location": there}),
        "token server": Fault(method="GET", status=401, headers={"WWW-Authenticate": f'Bearer realm="{there}"'}),
        "upload": Fault(method="POST", status=202, headers={"Location": there}),
    }[step]
    internet.proxy.faults.append(fault)
    try:
        client.put_blob(b"{}") if step == "upload" else client.find("1")
    except RegistryError as error:
        return error
    except NetworkError:
        return None  # it was contacted, and has no TLS
    return None


def test_a_name_that_resolves_to_another_address_later_points_nowhere_nearer(
    internet: Internet, open_registry: Open
) -> None:
    """DNS rebinding: the name is that of the registry itself, or was judged a moment ago."""
    internet.names = {"registry.test": [[PUBLIC], [MACHINE]]}
    client = open_registry("registry.test")
    client.list_tags()
    client._connection._session.close()
    with pytest.raises(RegistryError, match=r"points to registry\.test \(127\.0\.0\.1\), an address of this machine"):
        client.list_tags()
    assert set(internet.contacted) == {PUBLIC}
    internet.names = {"registry.test": [[PUBLIC]], "other.test": [[SECOND], [MACHINE]]}
    point_to_other("redirect", internet, open_registry("registry.test"))
    assert internet.resolved.count("other.test") == 1
    assert internet.contacted[-1] == SECOND


def test_of_several_addresses_those_that_are_as_near_are_tried_in_order(
    internet: Internet, open_registry: Open
) -> None:
    internet.names = {"registry.test": [[PUBLIC]], "other.test": [[MACHINE, SECOND, OWN, PUBLIC]]}
    internet.down = {SECOND}
    point_to_other("redirect", internet, open_registry("registry.test"))
    assert internet.contacted == [PUBLIC, SECOND, PUBLIC]


def test_tls_verifies_the_name_and_not_the_address(
    server: Loopback, authority: trustme.CA, open_registry: Open, internet: Internet, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    for certified, is_valid in (("registry.test", True), ("9.9.9.9", False)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(certified).configure_cert(context)
        with faulty(server.address, tls=context) as between:
            internet.server, internet.names = between.address, {"registry.test": [[PUBLIC]]}
            client = open_registry("registry.test", settings=ConnectionSettings(ca_file=str(tmp_path / "ca.crt")))
            if is_valid:
                assert client.list_tags() == ()
            else:
                with pytest.raises(NetworkError, match=r"certificate is not valid for 'registry\.test'"):
                    client.list_tags()
            assert bool(between.requests) is is_valid


def test_past_a_proxy_a_registry_behind_it_points_to_no_private_address(
    internet: Internet, open_registry: Open
) -> None:
    """The proxy resolves the registry's name, which counts as public; NO_PROXY names internal hosts."""
    internet.names = {"proxy.test": [[OWN]], "other.test": [[OWN]]}
    proxies = {"http": "http://proxy.test:3128", "no_proxy": "other.test"}
    error = point_to_other(
        "redirect", internet, open_registry("registry.test", settings=replace(PLAIN, proxies=proxies))
    )
    assert "other.test (10.1.2.3), an address of a private network" in str(error)

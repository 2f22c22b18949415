"""What this machine knows and an image must not hold."""

import base64
import json
import ssl
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from support.cases import cases
from support.tls import CORP, PUBLIC
from tfimg.engine.bases import Mirrors
from tfimg.index.network import HostNetwork, read_host_network
from tfimg.inspect.host_secrets import PEM_VARIABLES, read_host_secrets
from tfimg.inspect.secrets import Search

KEYS: dict[str, Any] = {
    "rsa": rsa.generate_private_key(65537, 2048), "ec": ec.generate_private_key(ec.SECP256R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
}  # fmt: skip
NOWHERE = HostNetwork(ca=None, netrc=None, variables={}, left_out=())


def kinds(
    text: str | bytes, *, root: Path, environ: Mapping[str, str] | None = None, mirrors: Mirrors | None = None,
    network: HostNetwork | None = None,
) -> set[tuple[str, str]]:  # fmt: skip
    """(kind, what) of all that is found in a text on a machine whose files are below `root`."""
    environ = {"HOME": str(root / "root"), **(environ or {})}
    network = network or read_host_network({"SSL_CERT_FILE": "/none", "NETRC": str(root / "netrc"), **environ}, {})
    secrets = read_host_secrets(network, mirrors, environ, public={"index.example"}, root=root)
    content = text if isinstance(text, bytes) else text.encode()
    return {(match.secret.kind, match.secret.what) for match in Search(secrets).matches(content)}


def secret_kinds(text: str, **machine: Any) -> set[str]:
    """The kinds alone."""
    return {kind for kind, _ in kinds(text, **machine)}


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_a_proxys_host_and_password_are_secrets(tmp_path: Path) -> None:
    environ = {"https_proxy": "http://ann:pw%2F7c1e-long@proxy.corp.test:3128"}
    seen = lambda text: {kind for kind, _ in kinds(text, root=tmp_path, environ=environ)}  # noqa: E731
    assert seen("via PROXY.corp.test now") == {"proxy"}
    assert seen("pw%2F7c1e-long") == seen("pw/7c1e-long") == {"credential"}
    assert seen(base64.b64encode(b"ann:pw/7c1e-long").decode()) == {"credential"}
    assert seen("http://user:password@other.test:3128 xproxy.corp.test ann") == set()


@cases("inspect_host_secrets", "an_indexs_host_is_a_secret_however_it_is_named")
def test_an_indexs_host_is_a_secret_however_it_is_named(tmp_path: Path, variable: str, value: str) -> None:
    network = read_host_network({variable: value}, {"index-url": value} if variable.startswith("PIP") else {})
    assert secret_kinds("at index.corp.test/x", root=tmp_path, network=network) == {"index"}


@cases("inspect_host_secrets", "public_indexes_and_loopback_are_not_secrets")
def test_public_indexes_and_loopback_are_not_secrets(tmp_path: Path, value: str) -> None:
    text = f"{value} 127.0.0.1:3141 localhost files.index.example"
    assert kinds(text, root=tmp_path, environ={"UV_DEFAULT_INDEX": value}) == set()


def test_networks_and_domains_of_no_proxy_are_not_secrets(tmp_path: Path) -> None:
    value = "localhost,127.0.0.1,10.0.0.0/8,169.254.169.254,::1,*,.local,build,metadata.google.internal,.corp.test"
    text = value.replace(".corp.test", "") + " build local"
    assert kinds(text, root=tmp_path, environ={"no_proxy": value}) == set()
    assert kinds("db.corp.test", root=tmp_path, environ={"no_proxy": value}) == {("proxy", "the host of no_proxy")}


def test_a_proxy_at_an_address_counts_with_its_port(tmp_path: Path) -> None:
    environ = {"http_proxy": "http://10.1.2.3:3128"}
    assert secret_kinds("10.1.2.3:3128/", root=tmp_path, environ=environ) == {"proxy"}
    assert kinds("10.1.2.3 10.1.2.3:31289 110.1.2.3:3128", root=tmp_path, environ=environ) == set()
    environ = {"http_proxy": "http://[fd00::1]:3128"}
    assert secret_kinds("http://[FD00::1]:3128/", root=tmp_path, environ=environ) == {"proxy"}
    for address in ("http://10.1.2.3", "http://[fd00::1]", "http://[::1]:3128"):
        assert kinds(address, root=tmp_path, environ={"http_proxy": address}) == set()


@pytest.mark.parametrize(
    ("host", "is_secret"),
    [
        ("ab.c.def", True),
        ("a.c.def", False),
        ("notindex.example", True),
        ("index.example", False),
        ("long-name", False),
    ],
)
def test_a_host_is_a_secret_if_it_is_long_and_not_of_a_public_domain(
    tmp_path: Path, host: str, is_secret: bool
) -> None:
    environ = {"UV_DEFAULT_INDEX": f"https://{host}/simple"}
    found = {("index", "the host of UV_DEFAULT_INDEX"), ("index", "the host of PIP_INDEX_URL")}
    assert bool(kinds(host, root=tmp_path, environ=environ)) is is_secret
    assert kinds(host, root=tmp_path, environ=environ) <= found


@pytest.mark.parametrize(
    ("login", "text", "is_secret"),
    [
        ("ab:short", "ab:short", True), ("a:short", "a:short", False), ("a:12345678", "12345678", True),
        ("a:1234567", "1234567", False), ("a%40b:sho%2Frt", "a@b:sho/rt", True),
        ("a%40b:sho%2Frt", "a%40b:sho%2Frt", True),
        ("abcdefghijklmnopqrs", "abcdefghijklmnopqrs", False), ("name-1-token", "name-1-token", True),
        (":name-1-token", "name-1-token", True), ("ann:CHANGEME", "ann:CHANGEME", False),
    ],
)  # fmt: skip
def test_a_login_is_a_secret_if_it_is_long_and_not_a_name(
    tmp_path: Path, login: str, text: str, is_secret: bool
) -> None:
    found = kinds(text, root=tmp_path, environ={"A": f"https://{login}@git.test/x"})
    assert found == ({("credential", "a secret of A")} if is_secret else set())


def test_passwords_of_netrc_and_of_apt_are_secrets(tmp_path: Path) -> None:
    write(tmp_path, "netrc", "machine r.corp.test\n login ann\n password pw-7c1e-netrc\n")
    write(tmp_path, "etc/apt/auth.conf.d/90.conf", "machine https://deb.corp.test/x login bob password short\n")
    assert kinds("x pw-7c1e-netrc", root=tmp_path) == {("credential", "a secret of netrc")}
    assert secret_kinds("bob:short", root=tmp_path) == {"credential"}
    assert kinds("short bob ann", root=tmp_path) == set()
    assert (
        kinds("deb.corp.test", root=tmp_path) == kinds("r.corp.test", root=tmp_path) == {("index", "the host of netrc")}
    )


@pytest.mark.parametrize("name", ["etc/apt/auth.conf", "etc/apt/auth.conf.d/x", "netrc"])
def test_logins_are_read_wherever_they_are(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "machine deb.corp.test login ann password pw-7c1e-abc")
    assert kinds("pw-7c1e-abc deb.corp.test", root=tmp_path) == {
        ("credential", "a secret of netrc"), ("index", "the host of netrc"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["apt.conf", "apt.conf.d/x", "sources.list", "sources.list.d/x"])
def test_the_settings_of_apt_are_read_wherever_they_are(tmp_path: Path, name: str) -> None:
    write(
        tmp_path, f"etc/apt/{name}", 'deb http://ann:pw-7c1e-abc@deb.corp.test/x\nAcquire::Proxy "http://p.corp.test";'
    )
    assert kinds("pw-7c1e-abc p.corp.test", root=tmp_path) == {
        ("credential", "a secret of APT's settings"), ("proxy", "the host of APT's settings"),
    }  # fmt: skip


def test_apts_proxy_and_sources_are_secrets(tmp_path: Path) -> None:
    write(tmp_path, "etc/apt/apt.conf.d/80proxy", 'Acquire::http::Proxy "http://apt.corp.test:3142";\n')
    write(tmp_path, "etc/apt/sources.list.d/x.list", "deb https://tok-7c1e-abcdef@deb.corp.test/debian x main\n")
    assert ("proxy", "the host of APT's settings") in kinds("apt.corp.test", root=tmp_path)
    assert ("credential", "a secret of APT's settings") in kinds("tok-7c1e-abcdef", root=tmp_path)


def test_a_private_mirror_is_a_secret_and_the_distributions_is_not(tmp_path: Path) -> None:
    write(tmp_path, "etc/os-release", 'ID=distro\nHOME_URL="https://www.distro.test/"\n')
    own = Mirrors(archive="http://mirror.corp.test/debian", security="http://security.distro.test/x")
    text = "deb http://mirror.corp.test/debian deb http://security.distro.test/x"
    assert kinds(text, root=tmp_path, mirrors=own) == {("mirror", "the host of APT's sources")}
    assert kinds("security.distro.test", root=tmp_path, mirrors=own) == set()


def test_dockers_passwords_are_secrets(tmp_path: Path) -> None:
    auth = base64.b64encode(b"ann:pw-7c1e-docker").decode()
    auths = {
        "r.test": {"auth": auth}, "s.test": {"identitytoken": "idtoken-7c1e"}, "t.test": {}, "u": None,
        "v.test": {"registrytoken": "token-of-7c1e"},
    }  # fmt: skip
    proxies = {"default": {"httpProxy": "http://ann:pw-7c1e-proxy@proxy.corp.test:3128"}, "other": None}
    write(tmp_path, "root/.docker/config.json", json.dumps({"auths": auths, "proxies": proxies}))
    for text in ("pw-7c1e-docker", auth, "idtoken-7c1e", "token-of-7c1e", "pw-7c1e-proxy"):
        assert secret_kinds(text, root=tmp_path) == {"credential"}
    assert secret_kinds("PROXY.corp.test", root=tmp_path) == {"proxy"}
    write(
        tmp_path, "root/.config/containers/auth.json", json.dumps({"auths": {"r": {"identitytoken": "of-podman-7c"}}})
    )
    assert secret_kinds("of-podman-7c", root=tmp_path) == {"credential"}
    write(tmp_path, "named.json", json.dumps({"auths": {"r": {"identitytoken": "of-buildah-7c"}}}))
    named = {"REGISTRY_AUTH_FILE": str(tmp_path / "named.json")}
    assert kinds("of-buildah-7c", root=tmp_path, environ=named) == {("credential", "a secret of Docker's settings")}
    write(tmp_path, "root/.docker/config.json", "[torn")
    assert kinds("pw-7c1e-docker", root=tmp_path) == set()


@pytest.mark.parametrize(
    "config",
    [
        pytest.param('{"auths": {"a": {"auth": "abc"}, "r": {"auth": "%s"}}}', id="padding"),
        pytest.param('{"auths": {"a": {"auth": 5, "identitytoken": []}, "r": {"auth": "%s"}}}', id="types"),
        pytest.param('{"auths": {"a": {"auth": "\u00e9"}, "a2": [], "r": {"auth": "%s"}}}', id="no base64"),
    ],
)
def test_a_malformed_entry_of_dockers_settings_hides_no_other(tmp_path: Path, config: str) -> None:
    auth = base64.b64encode(b"ann:pw-7c1e-docker").decode()
    write(tmp_path, "root/.docker/config.json", config % auth)
    assert secret_kinds(auth, root=tmp_path) == {"credential"}


@pytest.mark.parametrize(
    "config", ["[" * 100_000, '{"auths": ' + '{"a": ' * 100_000, '{"auths": 1e999}', '{"auths": []}']
)
def test_malformed_settings_of_docker_have_no_passwords(tmp_path: Path, config: str) -> None:
    write(tmp_path, "root/.docker/config.json", config)
    assert kinds("pw-7c1e-docker", root=tmp_path) == set()


def test_secrets_of_the_environment_are_known_by_their_names(tmp_path: Path) -> None:
    environ = {
        "CI_JOB_TOKEN": "value-7c1e-a", "AWS_SECRET_ACCESS_KEY": "value-7c1e-b", "DB_PASSWORD": "value-7c1e-c",
        "URL": "https://ann:value-7c1e-d@host.test/", "TOKEN_FILE": "value-7c1e-e", "PASSWORD": "short",
        "SSH_PRIVATE_KEY": "/home/value-7c1e-f", "GPG_KEY": "value-7c1e-g", "API_KEY": "~/value-7c1e-h",
    }  # fmt: skip
    assert kinds(" ".join(environ.values()), root=tmp_path, environ=environ) == {
        ("credential", f"a secret of {name}")
        for name in ("CI_JOB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "URL")
    }


def test_a_short_password_without_its_user_is_not_a_secret(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PASSWORD": "short"}
    assert read_host_secrets(NOWHERE, None, environ, public=(), root=tmp_path) == ()


def test_passwords_in_the_settings_of_installers_are_secrets(tmp_path: Path) -> None:
    files = {
        "etc/pip.conf": "[global]\nextra-index-url = https://a.test/x\n  https://ann:pw-7c1e-a@b.test/simple\n",
        "root/.config/uv/uv.toml": '[[index]]\nurl = "https://ann:pw-7c1e-b@b.test/simple"\n',
        "root/.pypirc": "[pypi]\nusername = ann\npassword = pw-7c1e-c\n", "named.conf": "proxy = http://a:pw-7c1e-d@p",
    }  # fmt: skip
    for name, text in files.items():
        write(tmp_path, name, text)
    environ = {"PIP_CONFIG_FILE": str(tmp_path / "named.conf"), "LIST": "http://a/,'https://u:pw'7c1e-e@b/',http://c"}
    for letter in "abcd":
        found = {("credential", "a secret of an installer's settings")}
        assert kinds(f"pw-7c1e-{letter}", root=tmp_path, environ=environ) == found
    assert kinds("pw'7c1e-e", root=tmp_path, environ=environ) == {("credential", "a secret of LIST")}


@pytest.mark.parametrize(
    "name", ["etc/pip.conf", "etc/xdg/pip/pip.conf", "root/.pip/pip.conf", "root/.config/pip/pip.conf",
             "etc/uv/uv.toml", "config/uv/uv.toml", "PIP_CONFIG_FILE", "UV_CONFIG_FILE"],
)  # fmt: skip
def test_the_settings_of_installers_are_read_wherever_they_are(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, 'url = "https://ann:pw-7c1e-abc@b.test/simple"')
    environ = {name: str(tmp_path / name)} if name.isupper() else {}
    if name.startswith("config/"):
        environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    assert secret_kinds("pw-7c1e-abc", root=tmp_path, environ=environ) == {"credential"}


@pytest.mark.parametrize("name", PEM_VARIABLES)
def test_certificates_and_keys_that_variables_name_are_secrets(tmp_path: Path, name: str) -> None:
    key = KEYS["ec"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    write(tmp_path, "some.pem", CORP + key)
    environ = {name: str(tmp_path / "some.pem")}
    assert secret_kinds(CORP + key, root=tmp_path, environ=environ, network=NOWHERE) == {"certificate", "private key"}


@pytest.mark.parametrize(
    "environ",
    [
        {"DOCKER_HOST": "ssh://tensorflow@10.0.0.5"}, {"A": "https://tensorflow@git.test/"}, {"A_PASSWORD": "password"},
        {"A_TOKEN": "Disabled"}, {"URL": "https://user:password@git.test"}, {"URL": "https://u:pw@git.test"},
    ],
)  # fmt: skip
def test_names_and_words_that_occur_everywhere_are_not_secrets(tmp_path: Path, environ: dict[str, str]) -> None:
    assert kinds("tensorflow password user:password disabled u:pw pw", root=tmp_path, environ=environ) == set()


@pytest.mark.parametrize("user", ["tok-7c1e-abc", "tok-7c1e-abc:", "abcdefghijklmnopqrst"])
def test_a_token_in_the_place_of_a_user_is_a_secret(tmp_path: Path, user: str) -> None:
    assert secret_kinds(user, root=tmp_path, environ={"URL": f"git+https://{user}@git.test/x"}) == {"credential"}


FORMATS = {
    "pkcs8": PrivateFormat.PKCS8, "openssl": PrivateFormat.TraditionalOpenSSL, "openssh": PrivateFormat.OpenSSH,
}  # fmt: skip


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("key", KEYS)
def test_a_private_key_is_found_in_every_format_and_its_public_half_is_not(
    tmp_path: Path, key: str, stored: str
) -> None:
    if (key, stored) == ("ed25519", "openssl"):
        stored = "pkcs8"
    private = KEYS[key]
    write(tmp_path, "root/.ssh/id_x", private.private_bytes(Encoding.PEM, FORMATS[stored], NoEncryption()).decode())
    for form in FORMATS.values():
        if (key, form) != ("ed25519", PrivateFormat.TraditionalOpenSSL):
            text = private.private_bytes(Encoding.PEM, form, NoEncryption()).decode()
            for content in (text, json.dumps(text), text.replace("\n", "")):
                assert kinds(content, root=tmp_path) == {("private key", "a private key of this machine")}
    assert kinds(private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), root=tmp_path)
    public = private.public_key()
    for encoding, form in ((Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), (Encoding.OpenSSH, PublicFormat.OpenSSH)):
        assert kinds(public.public_bytes(encoding, form), root=tmp_path) == set()


@pytest.mark.parametrize("stored", FORMATS)
def test_an_encrypted_key_is_found_as_it_is(tmp_path: Path, stored: str) -> None:
    encryption = BestAvailableEncryption(b"password-of-the-key")
    text = KEYS["ec"].private_bytes(Encoding.PEM, FORMATS[stored], encryption).decode()
    write(tmp_path, "my.key", text)
    environ = {"TFIMG_KEY": str(tmp_path / "my.key")}
    assert secret_kinds(text, root=tmp_path, environ=environ) == {"private key"}
    assert kinds(text[:200], root=tmp_path, environ=environ) == set()


@pytest.mark.parametrize("place", ["environment", "client", "docker", "home", "variable", "password"])
def test_private_keys_are_collected_where_a_build_may_reach_them(tmp_path: Path, place: str) -> None:
    text = KEYS["ec"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    write(tmp_path, "client.pem", text)
    environ = {"DEPLOY": text} if place == "environment" else {}
    if place == "client":
        write(tmp_path, "etc/pip.conf", f"[global]\nclient_cert = {tmp_path}/client.pem\n")
    elif place == "docker":
        write(tmp_path, "etc/docker/certs.d/r.test/client.key", text)
    elif place == "home":
        write(tmp_path, "root/.docker/key.pem", text)
    elif place == "variable":
        write(tmp_path, "docker/key.pem", text)
        environ = {"DOCKER_CERT_PATH": str(tmp_path / "docker")}
    elif place == "password":
        auth = base64.b64encode(f"_json_key:{json.dumps({'private_key': text})}".encode()).decode()
        write(tmp_path, "root/.docker/config.json", json.dumps({"auths": {"r.test": {"auth": auth}}}))
    found = kinds(text, root=tmp_path, environ=environ)
    assert {kind for kind, _ in found} == {"private key"}
    if place == "password":
        assert found == {("private key", "a private key of Docker's settings")}


@pytest.mark.parametrize("body", ["", "x", "!", "AAAA", "M" * 99])
def test_what_is_no_key_is_ignored(tmp_path: Path, body: str) -> None:
    write(tmp_path, "root/.ssh/id_x", f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
    assert kinds("x", root=tmp_path) == set()


def bodies(pem: str) -> dict[str, bytes]:
    """A certificate as programs keep it."""
    der = ssl.PEM_cert_to_DER_cert(pem)
    text = base64.b64encode(der).decode()
    return {
        "PEM": pem.encode(), "DER": b"\x30\x82" + der, "one line": text.encode(),
        "76 columns": "\n".join(textwrap.wrap(text, 76)).encode(), "escaped": json.dumps(pem).encode(),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["PEM", "DER", "one line", "76 columns", "escaped"])
def test_a_certificate_that_only_this_machine_trusts_is_a_secret(tmp_path: Path, form: str) -> None:
    write(tmp_path, "bundle.pem", f"# what this machine trusts\n{PUBLIC}{CORP}")
    write(tmp_path, "usr/share/ca-certificates/mozilla/public.crt", PUBLIC)
    network = HostNetwork(ca=tmp_path / "bundle.pem", netrc=None, variables={}, left_out=())
    found = {("certificate", "a certificate that this machine trusts")}
    assert kinds(bodies(CORP)[form], root=tmp_path, network=network) == found
    assert kinds(bodies(PUBLIC)[form], root=tmp_path, network=network) == set()


@pytest.mark.parametrize(
    "place", ["usr/local/share/ca-certificates", "etc/pki/ca-trust/source/anchors", "usr/local/share/ca-certificates/x"]
)
def test_a_certificate_that_came_with_the_machine_is_one_too(tmp_path: Path, place: str) -> None:
    write(tmp_path, f"{place}/corp.crt", CORP)
    assert secret_kinds(CORP, root=tmp_path, network=NOWHERE) == {"certificate"}


@pytest.mark.parametrize("place", ["usr/share/pki/ca-trust-source/bundle.p11-kit", "usr/share/ca-certificates/x/x.crt"])
def test_the_certificates_of_the_distribution_are_public(tmp_path: Path, place: str) -> None:
    write(tmp_path, place, PUBLIC)
    write(tmp_path, "bundle.pem", PUBLIC + CORP)
    environ = {"REQUESTS_CA_BUNDLE": str(tmp_path / "bundle.pem")}
    assert secret_kinds(CORP, root=tmp_path, environ=environ) == {"certificate"}
    assert kinds(PUBLIC, root=tmp_path, environ=environ) == set()


def test_a_certificate_in_the_distribution_s_bundle_is_a_secret_unless_it_came_with_it(tmp_path: Path) -> None:
    write(tmp_path, "etc/ssl/certs/ca-certificates.crt", PUBLIC + CORP)
    write(tmp_path, "usr/share/ca-certificates/x.crt", PUBLIC)
    assert secret_kinds(CORP, root=tmp_path, network=NOWHERE) == {"certificate"}
    assert kinds(PUBLIC, root=tmp_path, network=NOWHERE) == set()


def test_the_certificates_of_a_program_are_public(tmp_path: Path) -> None:
    write(tmp_path, "etc/pip.conf", f"[global]\ncert = {tmp_path}/bundle.pem\n")
    write(tmp_path, "bundle.pem", PUBLIC)
    (own,) = read_host_secrets(NOWHERE, None, {}, public=(), root=tmp_path)
    assert own.kind == "certificate"
    assert read_host_secrets(NOWHERE, None, {}, public=(), root=tmp_path, public_certificates=[PUBLIC]) == ()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("name", "text"),
    [("home/.ssh/keys", "-----BEGIN PRIVATE KEY-----\n" * 30_000), ("etc/pip.conf", "\n" * 300_000)],
)
def test_a_large_file_of_this_machine_is_read_in_linear_time(name: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    assert read_host_secrets(NOWHERE, None, {"HOME": f"{tmp_path}/home"}, public=(), root=tmp_path) == ()


def test_the_description_of_a_secret_does_not_show_it(tmp_path: Path) -> None:
    environ = {"https_proxy": "http://ann:pw-7c1e-long@proxy.corp.test:3128"}
    network = read_host_network(environ, {})
    described = " ".join(secret.what for secret in read_host_secrets(network, None, environ, public=(), root=tmp_path))
    assert "pw-7c1e" not in described
    assert "corp" not in described

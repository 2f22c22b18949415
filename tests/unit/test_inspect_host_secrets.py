"""What this machine knows and an image must not."""

from __future__ import annotations

import base64
import json
import ssl
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.cases import cases
from support.tls import CORP, PUBLIC
from tfimg.engine.base_images.debian import Mirrors
from tfimg.index.network import HostNetwork, read_host_network
from tfimg.inspect.secrets.host_secrets import host_secret_rules
from tfimg.inspect.secrets.search import Search

NOWHERE = HostNetwork(ca=None, netrc=None, variables={}, left_out=())


def kinds(
    text: str | bytes, *, root: Path, environ: Mapping[str, str] | None = None, mirrors: Mirrors | None = None,
    network: HostNetwork | None = None,
) -> set[tuple[str, str]]:  # fmt: skip
    """(kind, what) of all that is found in a text on a machine whose files are below `root`."""
    environ = {"HOME": str(root / "root"), **(environ or {})}
    network = network or read_host_network({"SSL_CERT_FILE": "/none", "NETRC": str(root / "netrc"), **environ}, {})
    rules = host_secret_rules(network, mirrors, environ, public={"index.example"}, root=root)
    window = text if isinstance(text, bytes) else text.encode()
    return {(match.kind, match.what) for match in Search(rules).matches(window)} if rules else set()


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


def test_passwords_of_netrc_and_of_apt_are_secrets(tmp_path: Path) -> None:
    write(tmp_path, "netrc", "machine r.corp.test\n login ann\n password pw-7c1e-netrc\n")
    write(tmp_path, "etc/apt/auth.conf.d/90.conf", "machine https://deb.corp.test/x login bob password short\n")
    assert secret_kinds("x pw-7c1e-netrc", root=tmp_path) == {"credential"}
    assert secret_kinds("bob:short", root=tmp_path) == {"credential"}
    assert kinds("short bob ann", root=tmp_path) == set()
    assert secret_kinds("deb.corp.test r.corp.test", root=tmp_path) == {"index"}


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


def test_dockers_passwords_are_secrets(tmp_path: Path) -> None:
    auth = base64.b64encode(b"ann:pw-7c1e-docker").decode()
    auths = {"r.test": {"auth": auth}, "s.test": {"identitytoken": "idtoken-7c1e"}, "t.test": {}, "u": None}
    write(tmp_path, "root/.docker/config.json", json.dumps({"auths": auths}))
    for text in ("pw-7c1e-docker", auth, "idtoken-7c1e"):
        assert secret_kinds(text, root=tmp_path) == {"credential"}
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
        "SSH_PRIVATE_KEY": "/home/value-7c1e-f", "GPG_KEY": "value-7c1e-g",
    }  # fmt: skip
    assert kinds(" ".join(environ.values()), root=tmp_path, environ=environ) == {
        ("credential", f"a secret of {name}")
        for name in ("CI_JOB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "URL")
    }


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


def test_a_certificate_that_came_with_the_machine_is_one_too(tmp_path: Path) -> None:
    write(tmp_path, "usr/local/share/ca-certificates/corp.crt", CORP)
    assert secret_kinds(CORP, root=tmp_path, network=NOWHERE) == {"certificate"}


def test_a_machine_without_secrets_has_none(tmp_path: Path) -> None:
    assert host_secret_rules(NOWHERE, None, {}, public=(), root=tmp_path) == ()


def test_no_secret_is_reported_by_its_rule(tmp_path: Path) -> None:
    environ = {"https_proxy": "http://ann:pw-7c1e-long@proxy.corp.test:3128"}
    network = read_host_network(environ, {})
    rules = host_secret_rules(network, None, environ, public=(), root=tmp_path)
    told = " ".join(rule.what for rule in rules)
    assert "pw-7c1e" not in told
    assert "corp" not in told

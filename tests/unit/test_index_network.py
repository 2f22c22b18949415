"""The host's way to the network → BuildKit secrets and variables; nothing private in an option."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.cases import cases
from tfimg.index.network import HostNetwork, parse_pip_settings, read_host_network, read_pip_settings

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


@cases("index_network", "proxies_are_passed_in_both_cases_and_the_environment_wins")
def test_proxies_are_passed_in_both_cases_and_the_environment_wins(
    environ: dict[str, str], pip: dict[str, str], expected: dict[str, str]
) -> None:
    assert variables(environ, pip) == expected


DEFAULT = {"UV_DEFAULT_INDEX": INDEX, "PIP_INDEX_URL": INDEX}


@cases("index_network", "the_package_index_is_passed_to_uv_and_pip_and_uv_s_own_setting_wins")
def test_the_package_index_is_passed_to_uv_and_pip_and_uv_s_own_setting_wins(
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


def test_the_ca_bundle_is_the_environment_s_then_pip_s(home: Path) -> None:
    mine, other = home / "ca.pem", home / "other.pem"
    other.write_text("")
    environ = {"HOME": str(home), "SSL_CERT_FILE": str(mine)}
    assert read_host_network(environ, {"cert": str(other)}).ca == mine
    assert read_host_network({"HOME": str(home)}, {"cert": str(other)}).ca == other


def test_files_that_are_not_there_are_no_secrets(home: Path) -> None:
    environ = {"HOME": str(home / "nowhere"), "SSL_CERT_FILE": str(home / "nothing.pem")}
    assert read_host_network(environ, {}).secrets() == ([], {})


def test_netrc_is_the_named_one_else_that_of_the_home(home: Path) -> None:
    named = home / "credentials"
    named.write_text("")
    assert read_host_network({"HOME": str(home)}, {}).netrc == home / ".netrc"
    assert read_host_network({"HOME": str(home), "NETRC": str(named)}, {}).netrc == named


def test_options_name_secrets_and_contain_none(home: Path) -> None:
    environ = {
        "HOME": str(home),
        "SSL_CERT_FILE": str(home / "ca.pem"),
        "HTTPS_PROXY": PROXY,
        "UV_DEFAULT_INDEX": "https://me:word@index.example.test/simple",
    }
    options, env = read_host_network(environ, {}).secrets()
    assert options == [
        f"id=ca,src={home}/ca.pem",
        f"id=netrc,src={home}/.netrc",
        "id=network,env=TFIMG_NETWORK_SECRET",
    ]
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


def test_uv_on_this_machine_gets_the_same_settings(home: Path) -> None:
    environ = {"HOME": str(home), "SSL_CERT_FILE": str(home / "ca.pem"), "LANG": "C"}
    assert read_host_network(environ, {"index-url": INDEX}).environment(environ) == {
        "HOME": str(home),
        "LANG": "C",
        "SSL_CERT_FILE": str(home / "ca.pem"),
        **DEFAULT,
    }


@cases("index_network", "what_pip_lists_is_read_and_the_environment_wins")
def test_what_pip_lists_is_read_and_the_environment_wins(listed: str, settings: dict[str, str]) -> None:
    assert parse_pip_settings(listed) == settings


def test_of_two_settings_of_pip_from_one_source_the_last_counts() -> None:
    assert parse_pip_settings("global.proxy='http://a'\ninstall.proxy='http://b'\ninstall.proxy='http://c'\n") == {
        "proxy": "http://c"
    }


def test_the_proxy_of_the_environment_precedes_that_of_pip(home: Path) -> None:
    variables = read_host_network({"HOME": str(home), "HTTPS_PROXY": PROXY}, {"proxy": "http://pip:1"}).variables
    assert variables == {"HTTPS_PROXY": PROXY, "https_proxy": PROXY}


def test_a_module_in_the_current_folder_is_not_executed_in_place_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read_pip_settings()
    for module in ("pip", "json", "sitecustomize"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    assert read_pip_settings() == settings
    assert not (tmp_path / "executed").exists()

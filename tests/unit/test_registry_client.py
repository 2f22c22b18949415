"""From this machine's settings to the client of a registry, without a request to one."""

import json
from base64 import b64encode
from pathlib import Path

import pytest

from support.messages import exactly
from tfimg.core.errors import FileError, RegistryError
from tfimg.index.network import HostNetwork
from tfimg.project.services import Services
from tfimg.registry.client import HttpRegistry, open_registry
from tfimg.registry.http import ConnectionSettings
from tfimg.registry.reference import Credentials, parse_repository

REFERENCE = parse_repository("registry.example:5000/team/tf")


def test_the_authority_that_docker_knows_for_a_registry_is_trusted(tmp_path: Path) -> None:
    own = tmp_path / "registry.example:5000" / "ca.crt"
    own.parent.mkdir()
    own.touch()
    for reference, trusted in ((REFERENCE, str(own)), (parse_repository("other.example/x"), "usual.crt")):
        there = open_registry(
            reference, {}, tmp_path, settings=ConnectionSettings(ca_file="usual.crt"), certificates=tmp_path
        )
        assert there._connection._session.verify == trusted


def test_credentials_of_docker_login_are_used(tmp_path: Path) -> None:
    auths = {"registry.example:5000": {"auth": b64encode(b"ann:secret").decode()}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    for environ, known in (({"DOCKER_CONFIG": str(tmp_path)}, True), ({"HOME": str(tmp_path)}, False)):
        registry = open_registry(REFERENCE, environ, tmp_path, settings=ConnectionSettings())
        assert (registry._connection._credentials is not None) is known


def test_the_settings_of_this_machine_are_those_of_its_registries(tmp_path: Path) -> None:
    variables = {"https_proxy": "http://proxy.example:3128", "no_proxy": "localhost", "UV_DEFAULT_INDEX": "x"}
    network = HostNetwork(ca=Path("/own.crt"), netrc=None, variables=variables, left_out=())
    services = Services(environ={"HOME": str(tmp_path)})
    services.network = network
    there = services.registry(REFERENCE)
    assert isinstance(there, HttpRegistry)
    assert there.repository == "registry.example:5000/team/tf"
    session = there._connection._session
    assert session.proxies == {"https": "http://proxy.example:3128", "no_proxy": "localhost"}
    assert (session.verify, session.trust_env) == ("/own.crt", False)
    assert there._connection.base == "https://registry.example:5000/v2/team/tf/"
    plain = services.registry(REFERENCE, plain=True)
    assert isinstance(plain, HttpRegistry)
    assert plain._connection.base == "http://registry.example:5000/v2/team/tf/"


def test_registries_of_a_command_share_the_time_that_an_option_allows(tmp_path: Path) -> None:
    services = Services(environ={"HOME": str(tmp_path)})
    services.network = HostNetwork(ca=None, netrc=None, variables={}, left_out=())
    first, second = services.registry(REFERENCE), services.registry(REFERENCE, seconds=90)
    assert isinstance(first, HttpRegistry)
    assert isinstance(second, HttpRegistry)
    assert first._connection._budget is second._connection._budget
    assert second._connection._budget.seconds == 90
    assert services.registry(parse_repository("other.example/x")).repository == "other.example/x"
    assert second._connection._budget.seconds == 90


def test_authorities_that_are_named_and_missing_are_an_error(tmp_path: Path) -> None:
    services = Services(environ={"HOME": str(tmp_path), "SSL_CERT_FILE": "/missing/ca.crt"})
    says = "SSL_CERT_FILE names /missing/ca.crt, which is not a file. Correct or unset it."
    with pytest.raises(FileError, match=exactly(says)):
        services.registry(REFERENCE)
    assert services.registry(REFERENCE, plain=True).repository == "registry.example:5000/team/tf"


def test_the_hub_answers_elsewhere_than_its_name_says(tmp_path: Path) -> None:
    there = open_registry(parse_repository("tfimg/tensorflow"), {}, tmp_path, settings=ConnectionSettings())
    assert there._connection.base == "https://registry-1.docker.io/v2/tfimg/tensorflow/"


def test_a_credential_helper_has_the_environment_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "pass"}))
    helper = tmp_path / "bin" / "docker-credential-pass"
    helper.parent.mkdir()
    script = r"""read -r server; echo "{\"Username\": \"$server $1\", \"Secret\": \"$VAULT\"}" """
    helper.write_text(f"#!/bin/sh\n{script}\n")
    helper.chmod(0o755)
    environ = {"DOCKER_CONFIG": str(tmp_path), "PATH": f"{helper.parent}:/usr/bin:/bin", "VAULT": "secret"}
    there = open_registry(REFERENCE, environ, tmp_path, settings=ConnectionSettings())
    expected = Credentials(username="registry.example:5000 get", password="secret")
    assert there._connection._credentials == expected


def test_a_credential_helper_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "slow"}))
    helper = tmp_path / "docker-credential-slow"
    helper.write_text("#!/bin/sh\nexec sleep 20\n")
    helper.chmod(0o755)
    for module in ("client", "reference"):
        monkeypatch.setattr(f"tfimg.registry.{module}.HELPER_SECONDS", 0.5)
    environ = {"DOCKER_CONFIG": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    message = (
        "The credential helper docker-credential-slow returned no credentials for registry.example:5000: it did not "
        "end within 0.5 seconds. Repair it, or remove it from Docker's config.json and log in with `docker login`."
    )
    with pytest.raises(RegistryError, match=exactly(message)):
        open_registry(REFERENCE, environ, tmp_path, settings=ConnectionSettings())


def test_publishers_of_one_machine_share_a_folder_of_locks(tmp_path: Path) -> None:
    there = open_registry(REFERENCE, {}, tmp_path, settings=ConnectionSettings())
    assert there._locks == tmp_path / "registry" / "locks"

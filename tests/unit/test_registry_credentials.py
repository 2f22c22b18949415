"""Who we are to a registry, as Docker's configuration and its helpers tell."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from tfimg.errors import FileError, RegistryRefused
from tfimg.process import CommandFailed, Completed
from tfimg.registry.credentials import Credentials, config_file, find_credentials

AUTH = b64encode(b"ann:secret").decode()
ANN = Credentials(username="ann", password="secret")


def no_helper(argv: list[str], stdin: bytes) -> Completed:
    raise AssertionError(f"{argv} was started")


def completed(argv: list[str], stdout: str, returncode: int = 0) -> Completed:
    return Completed(argv=tuple(argv), returncode=returncode, stdout=stdout, stderr="")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def write(config: Path, **document: object) -> Path:
    config.write_text(json.dumps(document))
    return config


@pytest.mark.parametrize("key", ["r.example:5000", "https://r.example:5000", "https://r.example:5000/v1/"])
def test_what_docker_login_left_is_found(key: str, config: Path) -> None:
    write(config, auths={key: {"auth": AUTH}, "other.example": {"auth": b64encode(b"bob:x").decode()}})
    assert find_credentials("r.example:5000", config, no_helper) == ANN


def test_the_hub_is_known_by_its_old_address(config: Path) -> None:
    write(config, auths={"https://index.docker.io/v1/": {"auth": AUTH}})
    assert find_credentials("docker.io", config, no_helper) == ANN


def test_a_password_may_hold_a_colon(config: Path) -> None:
    write(config, auths={"r.example": {"auth": b64encode(b"ann:a:b").decode()}})
    assert find_credentials("r.example", config, no_helper) == Credentials(username="ann", password="a:b")


def test_an_identity_token_is_one(config: Path) -> None:
    write(config, auths={"r.example": {"identitytoken": "t0ken"}})
    assert find_credentials("r.example", config, no_helper) == Credentials(identity_token="t0ken")


@pytest.mark.parametrize("document", [{}, {"auths": {}}, {"auths": {"other.example": {"auth": AUTH}}}])
def test_nobody_is_known_to_most_registries(document: dict[str, object], config: Path) -> None:
    assert find_credentials("r.example", write(config, **document), no_helper) is None


def test_without_a_file_nobody_is_known(config: Path) -> None:
    assert find_credentials("r.example", config, no_helper) is None


@pytest.mark.parametrize(
    ("settings", "host", "program", "server"),
    [
        ({"credsStore": "pass"}, "r.example", "docker-credential-pass", b"r.example"),
        ({"credHelpers": {"r.example": "gcloud"}}, "r.example", "docker-credential-gcloud", b"r.example"),
        (
            {"credsStore": "pass", "credHelpers": {"r.example": "gcloud"}},
            "r.example", "docker-credential-gcloud", b"r.example",
        ),
        ({"credsStore": "pass"}, "docker.io", "docker-credential-pass", b"https://index.docker.io/v1/"),
    ],
)  # fmt: skip
def test_a_helper_is_asked(
    settings: dict[str, object], host: str, program: str, server: bytes, config: Path
) -> None:
    def helper(argv: list[str], stdin: bytes) -> Completed:
        assert (argv, stdin) == ([program, "get"], server)
        return completed(argv, '{"ServerURL": "", "Username": "ann", "Secret": "secret"}')

    assert find_credentials(host, write(config, **settings), helper) == ANN


def test_a_helper_may_have_a_token(config: Path) -> None:
    def helper(argv: list[str], stdin: bytes) -> Completed:
        return completed(argv, '{"Username": "<token>", "Secret": "t0ken"}')

    write(config, credsStore="pass")
    assert find_credentials("r.example", config, helper) == Credentials(identity_token="t0ken")


def test_what_a_helper_does_not_know_the_file_may(config: Path) -> None:
    def helper(argv: list[str], stdin: bytes) -> Completed:
        raise CommandFailed(completed(argv, "credentials not found in native keychain\n", 1))

    write(config, credsStore="pass", auths={"r.example": {"auth": AUTH}})
    assert find_credentials("r.example", config, helper) == ANN


def test_an_empty_answer_is_none(config: Path) -> None:
    def helper(argv: list[str], stdin: bytes) -> Completed:
        return completed(argv, '{"Username": "", "Secret": ""}')

    assert find_credentials("r.example", write(config, credsStore="pass"), helper) is None


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (FileNotFoundError(), "it is not installed"),
        (TimeoutError(), "it did not end within 60 seconds"),
        (CommandFailed(completed(["x"], "the keychain is locked\n", 1)), "the keychain is locked"),
        (CommandFailed(completed(["x"], "", 3)), "it ended with 3"),
    ],
)
def test_a_helper_that_does_not_help_is_named(raised: Exception, says: str, config: Path) -> None:
    def helper(argv: list[str], stdin: bytes) -> Completed:
        raise raised

    with pytest.raises(RegistryRefused, match=f"docker-credential-pass did not tell .* to r.example: {says}"):
        find_credentials("r.example", write(config, credsStore="pass"), helper)


@pytest.mark.parametrize("said", ["", "[]", "{}", "42", "not JSON"])
def test_a_helper_that_says_something_else_is_named(said: str, config: Path) -> None:
    def helper(argv: list[str], stdin: bytes) -> Completed:
        return completed(argv, said)

    with pytest.raises(RegistryRefused, match="its answer is not what the protocol of helpers has"):
        find_credentials("r.example", write(config, credsStore="pass"), helper)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "\xff",
        '{"auths": [1]}',
        '{"auths": {"r.example": 1}}',
        '{"auths": {"r.example": {"auth": "!"}}}',
    ],
)
def test_a_file_that_cannot_be_understood_is_not_taken_for_an_empty_one(text: str, config: Path) -> None:
    config.write_text(text, encoding="latin-1")
    with pytest.raises(FileError, match=r"config\.json cannot be understood: .*docker login"):
        find_credentials("r.example", config, no_helper)


def test_no_secret_is_in_what_is_printed() -> None:
    assert "secret" not in repr(ANN)
    assert "t0ken" not in repr(Credentials(identity_token="t0ken"))


def test_the_file_is_where_docker_has_it() -> None:
    assert config_file({"HOME": "/home/ann"}) == Path("/home/ann/.docker/config.json")
    assert config_file({"HOME": "/home/ann", "DOCKER_CONFIG": "/d"}) == Path("/d/config.json")

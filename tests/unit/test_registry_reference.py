"""Image references with Docker's defaults, and the credentials that Docker's configuration and helpers have."""

import json
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.messages import exactly
from tfimg.core.errors import FileError, RegistryError, UsageError
from tfimg.core.process import CommandFailed
from tfimg.matrix.schema import check_repository_name
from tfimg.registry.reference import (
    PATH_ADVICE,
    Credentials,
    Reference,
    config_file,
    find_credentials,
    names_registry,
    parse_reference,
    parse_repository,
)

DIGEST = f"sha256:{'a' * 64}"
COMPLETE = "A complete one is registry.example:5000/team/tensorflow:2.15@sha256:…."
TAG_ADVICE = "A tag has up to 128 letters, digits, dots, dashes and underscores; a dot or dash is never first."
DIGEST_ADVICE = "A digest is sha256: and 64 digits of 0-9 and a-f."
PART_ADVICE = (
    f"Name the tag of the build, which ends in -{DIGEST[7:19]} and is listed by `tfimg history r.test/tf`, or all 64 "
    "digits after sha256:."
)
HOST_ADVICE = "A registry is a host name or address, with or without :PORT."


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest"),
        ("tfimg/tensorflow:2.15", "docker.io/tfimg/tensorflow:2.15"),
        ("docker.io/ubuntu", "docker.io/library/ubuntu:latest"),
        ("index.docker.io/tfimg/tensorflow", "docker.io/tfimg/tensorflow:latest"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000/a/b:1", "localhost:5000/a/b:1"),
        ("registry.example/x", "registry.example/x:latest"),
        ("REGISTRY/x", "REGISTRY/x:latest"),
        ("127.0.0.1:5000/x:v1.0_rc-2", "127.0.0.1:5000/x:v1.0_rc-2"),
        ("[::1]:5000/x", "[::1]:5000/x:latest"),
        (f"r.example:5000/team/tf@{DIGEST}", f"r.example:5000/team/tf@{DIGEST}"),
        (f"r.example:5000/team/tf:2.15@{DIGEST}", f"r.example:5000/team/tf:2.15@{DIGEST}"),
        ("a__b/c.d/e---f", "docker.io/a__b/c.d/e---f:latest"),
        (f"registry.example/{'a' * 238}", f"registry.example/{'a' * 238}:latest"),
        (f"r.example/x:{'1' * 128}", f"r.example/x:{'1' * 128}"),
        ("r-1.example:1/x", "r-1.example:1/x:latest"),
        ("r.example:65535/x", "r.example:65535/x:latest"),
    ],
)
def test_a_reference_means_what_it_means_to_docker(text: str, whole: str) -> None:
    assert str(parse_reference(text)) == whole
    assert parse_reference(whole) == parse_reference(text)


@pytest.mark.parametrize(
    ("text", "stated"),
    [("ubuntu", False), ("tfimg/x:2.15", False), ("x:5000", False), ("localhost/x", True), ("r.example/x", True)],
)
def test_a_name_without_a_registry_is_known(text: str, *, stated: bool) -> None:
    assert names_registry(text) == stated


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", f"nothing is not a repository name. {PATH_ADVICE}"),
        ("https://registry.example/x", "it is an address. Remove the part up to ://."),
        ("registry.example/Team/x", "Team/x is not a repository name. Write it in lower case."),
        ("registry.example/", f"nothing is not a repository name. {PATH_ADVICE}"),
        ("a//b", f"a//b is not a repository name. {PATH_ADVICE}"),
        ("a___b", f"a___b is not a repository name. {PATH_ADVICE}"),
        ("-a", f"-a is not a repository name. {PATH_ADVICE}"),
        ("a b", f"a b is not a repository name. {PATH_ADVICE}"),
        ("tfimg:", f"nothing is not a tag. {TAG_ADVICE}"),
        ("tfimg:.1", f".1 is not a tag. {TAG_ADVICE}"),
        (f"tfimg:{'a' * 129}", f"{'a' * 129} is not a tag. {TAG_ADVICE}"),
        ("tfimg@sha256:12", f"sha256:12 is not a digest. {DIGEST_ADVICE}"),
        (f"r.test/tf@{DIGEST[:19]}", f"{DIGEST[:19]} is a part of a digest. {PART_ADVICE}"),  # as `history` prints it
        (f"r.test/tf:2.15@{DIGEST[7:70]}", f"{DIGEST[7:70]} is a part of a digest. {PART_ADVICE}"),
        ("tfimg@", f"nothing is not a digest. {DIGEST_ADVICE}"),
        (f"tfimg@{DIGEST.upper()}", f"{DIGEST.upper()} is not a digest. {DIGEST_ADVICE}"),
        ("registry.example:99999/x", f"registry.example:99999 is not a registry. {HOST_ADVICE}"),
        ("registry.example:65536/x", f"registry.example:65536 is not a registry. {HOST_ADVICE}"),
        ("-registry.example/x", f"-registry.example is not a registry. {HOST_ADVICE}"),
        ("registry-.example/x", f"registry-.example is not a registry. {HOST_ADVICE}"),
        ("registry.example:0/x", f"registry.example:0 is not a registry. {HOST_ADVICE}"),
        ("registry..example/x", f"registry..example is not a registry. {HOST_ADVICE}"),
        (f"registry.example/{'a' * 239}", "its name is longer than 255 characters. Choose a shorter one."),
    ],
)
def test_an_invalid_reference_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert str(caught.value) == f"{text!r} is not an image reference: {why} {COMPLETE}"


def test_the_digest_of_a_reference_is_requested_rather_than_its_tag() -> None:
    assert parse_reference("a/b:1").target == "1"
    assert parse_reference(f"a/b:1@{DIGEST}").target == DIGEST


def test_a_repository_has_neither_tag_nor_digest() -> None:
    assert parse_repository("localhost:5000/team/tf") == Reference(host="localhost:5000", path="team/tf")
    assert parse_repository("tfimg/tensorflow").repository == "docker.io/tfimg/tensorflow"
    for text in ("tfimg/tensorflow:1", f"tfimg/tensorflow@{DIGEST}"):
        with pytest.raises(UsageError) as caught:
            parse_repository(text)
        assert str(caught.value) == (
            f"{text!r} is not a repository: it has a tag or digest. "
            "Write REGISTRY/NAME without them, for example registry.example:5000/team/tensorflow."
        )


@pytest.mark.parametrize("text", ["x" * 100_000, f"{'h' * 100_000}:5000/a", f"a/{'B' * 100_000}", f"a:{'t' * 100_000}"])
def test_a_long_text_is_not_repeated_whole(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert len(str(caught.value)) < 1000


ANN = Credentials(username="ann", password="secret")


def no_helper(argv: list[str], stdin: bytes) -> str:
    raise AssertionError(f"{argv} was started")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


def write(config: Path, **document: object) -> Path:
    config.write_text(json.dumps(document))
    return config


def auth(text: str) -> dict[str, str]:
    return {"auth": b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("host", "key", "entry", "expected"),
    [
        ("r.example:5000", "r.example:5000", auth("ann:secret"), ANN),
        ("r.example:5000", "https://r.example:5000", auth("ann:secret"), ANN),
        ("r.example:5000", "https://r.example:5000/v1/", auth("ann:secret"), ANN),
        ("docker.io", "https://index.docker.io/v1/", auth("ann:secret"), ANN),
        ("r.example", "r.example", auth("ann:a:b"), Credentials(username="ann", password="a:b")),
        ("r.example", "r.example", {"identitytoken": "t0ken"}, Credentials(identity_token="t0ken")),
    ],
)
def test_what_docker_login_left_is_found(
    host: str, key: str, entry: dict[str, str], expected: Credentials, config: Path
) -> None:
    write(config, auths={key: entry, "other.example": auth("bob:x")})
    assert find_credentials(host, config, no_helper) == expected


@pytest.mark.parametrize("document", [{}, {"auths": {}}, {"auths": {"other.example": auth("ann:secret")}}])
def test_most_registries_have_no_credentials(document: dict[str, object], config: Path) -> None:
    assert find_credentials("r.example", config, no_helper) is None, "there is no file"
    assert find_credentials("r.example", write(config, **document), no_helper) is None


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
def test_the_helper_of_the_registry_is_started(
    settings: dict[str, object], host: str, program: str, server: bytes, config: Path
) -> None:
    def helper(argv: list[str], stdin: bytes) -> str:
        assert (argv, stdin) == ([program, "get"], server)
        return '{"ServerURL": "", "Username": "ann", "Secret": "secret"}'

    assert find_credentials(host, write(config, **settings), helper) == ANN


def ask(config: Path, answer: str | Exception, **document: object) -> Credentials | None:
    """Look credentials up where the helper gives an answer or fails."""

    def helper(argv: list[str], stdin: bytes) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return find_credentials("r.example", write(config, credsStore="pass", **document), helper)


def failed(stdout: str, returncode: int = 1) -> CommandFailed:
    return CommandFailed(returncode, ["x"], stdout, "")


def test_a_helper_may_have_a_token_or_nothing(config: Path) -> None:
    token = ask(config, '{"Username": "<token>", "Secret": "t0ken"}')
    assert token == Credentials(identity_token="t0ken")
    assert ask(config, '{"Username": "", "Secret": ""}') is None
    assert ask(config, '{"Username": "ann", "Secret": ""}') == Credentials(username="ann")
    assert ask(config, '{"Username": "", "Secret": "key"}') == Credentials(password="key")


def test_what_a_helper_does_not_know_the_file_may(config: Path) -> None:
    for printed in ("credentials not found in native keychain\n", "Error: credentials not found in native keychain"):
        assert ask(config, failed(printed), auths={"r.example": auth("ann:secret")}) == ANN


HELPER_FAILED = (
    "The credential helper docker-credential-pass returned no credentials for r.example: {}. Repair it, or remove it "
    "from Docker's config.json and log in with `docker login`."
)
INVALID_CONFIG = (
    r"config\.json is not a valid Docker configuration: [^.]*(\..*)?\. "
    r"Correct it, or move it away and log in again with `docker login`\.$"
)


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (FileNotFoundError(), "it is not installed"),
        (TimeoutError(), "it did not end within 60 seconds"),
        (failed("the keychain is locked\n"), "the keychain is locked"),
        (failed("", 3), "it ended with 3"),
    ],
)
def test_a_helper_that_does_not_help_is_named(raised: Exception, says: str, config: Path) -> None:
    with pytest.raises(RegistryError, match=exactly(HELPER_FAILED.format(says))):
        ask(config, raised)


@pytest.mark.parametrize(
    "said",
    [
        *("", "[]", "{}", "42", "not JSON", "[" * 100_000, '{"Username": 7, "Secret": "x"}', '{"Username": "ann"}'),
        *('{"Username": "ann", "Secret": null}', '{"Username": "ann", "Secret": ["x"]}', '"\\ud800"'),
    ],
)
def test_a_helper_that_says_something_else_is_named(said: str, config: Path) -> None:
    says = "its output does not follow the protocol of credential helpers"
    with pytest.raises(RegistryError, match=exactly(HELPER_FAILED.format(says))):
        ask(config, said)


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "\xff", '{"auths": [1]}'),
        *('{"auths": {"r.example": 1}}', '{"auths": {"r.example": {"auth": "!"}}}'),
        *('{"auths": {"r.example": {"auth": 7}}}', '{"auths": {"r.example": {"identitytoken": 7}}}'),
        *('{"credsStore": 7}', '{"credsStore": {}}', '{"credsStore": "../../evil"}', '{"credHelpers": []}'),
        *('{"credHelpers": {"r.example": 7}}', '{"credHelpers": {"r.example": "a/../b"}}', '{"auths": 7}'),
        *("[" * 100_000, '{"a": 1e999}', '{"auths": {"r.example": {"auth": "\\ud800"}}}'),
    ],
)
def test_a_file_that_cannot_be_understood_is_not_taken_for_an_empty_one(text: str, config: Path) -> None:
    config.write_text(text, encoding="latin-1")
    with pytest.raises(FileError, match=INVALID_CONFIG):
        find_credentials("r.example", config, no_helper)


@pytest.mark.parametrize("document", [{}, {"auths": None}, {"credHelpers": None, "credsStore": None}])
def test_an_empty_file_is_not_replaced_by_that_of_the_environment(
    document: dict[str, object], config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The docker package reads the environment's file where it is given an empty one."""
    home = tmp_path / "home" / ".docker"
    home.mkdir(parents=True)
    write(home / "config.json", auths={"r.example": auth("ann:secret")})
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    assert find_credentials("r.example", write(config, **document), no_helper) is None


def test_no_secret_is_in_what_is_printed() -> None:
    assert "secret" not in repr(ANN)
    assert "t0ken" not in repr(Credentials(identity_token="t0ken"))


def test_the_file_is_where_docker_has_it() -> None:
    assert config_file({"HOME": "/home/ann"}) == Path("/home/ann/.docker/config.json")
    assert config_file({"HOME": "/home/ann", "DOCKER_CONFIG": "/d"}) == Path("/d/config.json")


@given(st.text(alphabet="a0.-_/:A ;$\u0661", min_size=1, max_size=9))
@example("a..b")
@example("host:0/a")
@example("a" * 256)
def test_a_repository_of_the_matrix_is_one_of_a_registry(name: str) -> None:
    """The matrix checks names without the modules of registries."""
    try:
        check_repository_name(name)
    except ValueError:
        return
    assert parse_repository(name).path.endswith(name.rpartition("/")[2])

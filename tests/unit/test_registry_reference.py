"""Image references: Docker's defaults, and what is wrong with those that are none."""

from __future__ import annotations

import pytest

from tfimg.core.errors import UsageError
from tfimg.registry.reference import PATH_ADVICE, Reference, names_registry, parse_reference, parse_repository

DIGEST = f"sha256:{'a' * 64}"
COMPLETE = "A complete one is registry.example:5000/team/tensorflow:2.15@sha256:…."
TAG_ADVICE = "A tag has up to 128 letters, digits, dots, dashes and underscores; a dot or dash is never first."
DIGEST_ADVICE = "A digest is sha256: and 64 digits of 0-9 and a-f."
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
        ("a__b/c.d/e--f", "docker.io/a__b/c.d/e--f:latest"),
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
        ("tfimg@", f"nothing is not a digest. {DIGEST_ADVICE}"),
        (f"tfimg@{DIGEST.upper()}", f"{DIGEST.upper()} is not a digest. {DIGEST_ADVICE}"),
        ("registry.example:99999/x", f"registry.example:99999 is not a registry. {HOST_ADVICE}"),
        ("registry.example:0/x", f"registry.example:0 is not a registry. {HOST_ADVICE}"),
        ("registry..example/x", f"registry..example is not a registry. {HOST_ADVICE}"),
        (f"registry.example/{'a' * 240}", "its name is longer than 255 characters. Choose a shorter one."),
    ],
)
def test_an_invalid_reference_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_reference(text)
    assert str(caught.value) == f"{text!r} is not an image reference: {why} {COMPLETE}"


def test_a_registry_is_asked_for_the_digest_where_there_is_one() -> None:
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

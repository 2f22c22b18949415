"""Image references: Docker's defaults, and what is wrong with those that are none."""

from __future__ import annotations

import pytest

from tfimg.core.errors import UsageError
from tfimg.registry.reference import Reference, parse_reference, parse_repository

DIGEST = f"sha256:{'a' * 64}"


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
    ("text", "why"),
    [
        ("", "nothing is not a repository name"),
        ("https://registry.example/x", "it is an address. Remove the part up to ://"),
        ("registry.example/Team/x", "Team/x is not a repository name. Write it in lower case"),
        ("registry.example/", "nothing is not a repository name"),
        ("a//b", "a//b is not a repository name"),
        ("a___b", "a___b is not a repository name"),
        ("-a", "-a is not a repository name"),
        ("a b", "a b is not a repository name"),
        ("tfimg:", "nothing is not a tag"),
        ("tfimg:.1", r"\.1 is not a tag"),
        (f"tfimg:{'a' * 129}", "is not a tag"),
        ("tfimg@sha256:12", "sha256:12 is not a digest"),
        ("tfimg@", "nothing is not a digest"),
        (f"tfimg@{DIGEST.upper()}", "is not a digest"),
        ("registry.example:99999/x", "registry.example:99999 is not a registry"),
        ("registry.example:0/x", "registry.example:0 is not a registry"),
        ("registry..example/x", "registry..example is not a registry"),
        (f"registry.example/{'a' * 240}", "its name is longer than 255 characters"),
    ],
)
def test_what_is_no_reference_is_told_why(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse_reference(text)
    assert str(caught.value).startswith(f"{text!r} is not an image reference: ")


def test_a_registry_is_asked_for_the_digest_where_there_is_one() -> None:
    assert parse_reference("a/b:1").target == "1"
    assert parse_reference(f"a/b:1@{DIGEST}").target == DIGEST
    assert str(parse_reference("a/b:1").at(DIGEST)) == f"docker.io/a/b:1@{DIGEST}"


def test_a_repository_has_neither_tag_nor_digest() -> None:
    assert parse_repository("localhost:5000/team/tf") == Reference(host="localhost:5000", path="team/tf")
    assert parse_repository("tfimg/tensorflow").repository == "docker.io/tfimg/tensorflow"
    for text in ("tfimg/tensorflow:1", f"tfimg/tensorflow@{DIGEST}"):
        with pytest.raises(UsageError, match="a repository has neither tag nor digest"):
            parse_repository(text)

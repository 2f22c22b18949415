"""A search over a stream: everything is found once, wherever the stream is cut."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.cases import cases
from support.tokens import GITHUB
from tfimg.inspect.secrets.rules import MAX_MATCH_BYTES, RULES, Rule, classify_file_name
from tfimg.inspect.secrets.search import MAX_MATCHES, OVERLAP, Search, StreamSearch, mask

TOKEN = GITHUB.encode()
NAME = "a token (betterleaks.github-pat)"
SEARCH = Search(RULES, tokens=True)


SMALL = 8 * MAX_MATCH_BYTES
"""A window, so that a test need not search megabytes."""


def search_stream(stream: bytes, sizes: Sequence[int] = (SMALL,), search: Search = SEARCH) -> list[tuple[int, str]]:
    passing, at = StreamSearch(search, window=SMALL), 0
    for size in itertools.cycle(sizes):
        if at >= len(stream):
            return [(match.offset, match.what) for match in passing.close()]
        passing.feed(stream[at : at + size])
        at += size
    raise AssertionError("no sizes")


@pytest.mark.parametrize("offset", [0, 1, SMALL - 41, SMALL - 40, SMALL - 1, SMALL, SMALL + OVERLAP - 7, 2 * SMALL - 7])
def test_a_token_is_found_wherever_windows_meet(offset: int) -> None:
    stream = b"." * offset + TOKEN + b"." * 2 * OVERLAP
    assert search_stream(stream, (1000,)) == [(offset, NAME)]
    assert search_stream(stream, (SMALL,)) == [(offset, NAME)]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, SMALL + 5000), min_size=1, max_size=5), st.integers(0, SMALL))
def test_however_a_stream_is_cut_the_same_is_found(sizes: list[int], offset: int) -> None:
    stream = b"x " * offset + TOKEN + b" " + b"-" * MAX_MATCH_BYTES + b"Z" + TOKEN + b" " + b"y" * (2 * SMALL - offset)
    assert search_stream(stream, sizes) == [(2 * offset, NAME)]


@pytest.mark.parametrize("at", [SMALL - 1, SMALL, SMALL + 1])
def test_a_letter_before_a_chunk_boundary_prevents_a_match(at: int) -> None:
    assert search_stream(b"." * at + b"Z" + TOKEN + b"." * 2 * OVERLAP) == []


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3 * MAX_MATCH_BYTES), min_size=1, max_size=6))
def test_neighbours_are_all_found(gaps: list[int]) -> None:
    stream, offsets = b"", []
    for gap in gaps:
        stream += b" " * (gap + 1)
        offsets.append(len(stream))
        stream += TOKEN
    assert [offset for offset, _ in search_stream(stream)] == offsets


def test_a_match_may_be_as_long_as_any_rule_allows() -> None:
    long = b"ya29." + b"a" * 512
    passing = StreamSearch(SEARCH, window=SMALL)
    passing.feed(b" " * (SMALL - 200) + long + b" ")
    assert [match.shown for match in passing.close()] == ["ya29… (517 characters)"]


def test_the_number_of_matches_in_memory_is_limited() -> None:
    assert len(search_stream((TOKEN + b" ") * (3 * MAX_MATCHES))) == MAX_MATCHES


def test_a_rule_for_any_case_finds_any() -> None:
    search = Search([Rule(kind="index", what="host", pattern=rb"corp\.test", whole=True, caseless=True)])
    assert [offset for offset, _ in search_stream(b"a CORP.Test/ acorp.test corp.tests", search=search)] == [2]


def test_another_rule_changes_the_fingerprint() -> None:
    assert Search(RULES).fingerprint == Search(RULES).fingerprint != Search(RULES[:-1]).fingerprint


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        (b"abcdefgh", "ab… (8 characters)"),
        (b"abc", "… (3 characters)"),
        (b"{\n\r\x85" * 4, "{  \x85… (16 characters)"),
    ],
)
def test_a_secret_is_not_printed(secret: bytes, shown: str) -> None:
    assert mask(secret) == shown


def test_no_rule_repeats_without_a_bound() -> None:
    assert [rule.what for rule in RULES if re.search(rb"(?<!\\)[*+](?![^\[]*\])", rule.pattern)] == []


def key(name: str) -> bytes:
    return f"-----BEGIN {name}PRIVATE KEY-----\n".encode() + b"MIIEvQIBADANBgkqhkiG9w0BAQEF\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (key(""), "a private key"),
        (key("OPENSSH "), "a private key"),
        (key("ENCRYPTED ").replace(b"\n", b"\\n"), "a private key"),
        (b"-----BEGIN PGP PRIVATE KEY BLOCK-----\r\n\r\nlQOYBGB4aBcDeFgHiJkLmN", "a private key"),
        (b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n", "a private key"),
        (b"AKIA" + b"QWERTYUIOPASDFGH", "an access key of AWS"),
        (b"ya29." + b"a0AfH6SM" * 8, "an access token of Google"),
        (b"AccountKey=" + b"Ab3/" * 21 + b"Ab==", "a storage key of Azure"),
        (b"LTAI" + b"5tAbCdEfGhIjKlMnOpQr", "an access key of Alibaba Cloud"),
        (b'{"auths": {"r.io": {"auth": "dXNlcjpwYXNzd29yZA=="}}}', "a registry password of Docker's configuration"),
        (b"machine r.io\n login ci\n password Qz-7c1e\n", "a password of netrc"),
        (b"//npm.corp.io/:_authToken=0123456789abcdef", "a package index password of npm"),
    ],
)  # fmt: skip
def test_each_form_is_found(text: bytes, what: str) -> None:
    assert [name for _, name in search_stream(b"before " + text + b" after")] == [what]


@cases("inspect_secret_search", "what_documentation_and_programs_write_is_not_found")
def test_what_documentation_and_programs_write_is_not_found(text: bytes) -> None:
    assert search_stream(b" " + text + b" ") == []


@cases("inspect_secret_search", "a_file_that_holds_credentials_is_known_by_its_name")
def test_a_file_that_holds_credentials_is_known_by_its_name(path: str) -> None:
    assert classify_file_name(path)


@cases("inspect_secret_search", "a_file_name_of_packages_is_not_a_secret")
def test_a_file_name_of_packages_is_not_a_secret(path: str) -> None:
    assert classify_file_name(path) is None

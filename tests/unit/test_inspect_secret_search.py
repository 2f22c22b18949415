"""A search over a stream: each value is found in every form, wherever the stream is cut."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shlex
from collections.abc import Sequence
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfimg.inspect.secrets import MAX_MATCHES, MAX_VALUE, MIN_LENGTH, Search, Secret, StreamSearch, list_forms

PASSWORD = "pw/7c1e <Q\"'$x>é"


def password(text: str) -> Secret:
    return Secret(kind="credential", what="a password", value=text.encode())


def host(text: str) -> Secret:
    return Secret(kind="proxy", what="a host", value=text.encode(), word=True)


def find(content: bytes, *secrets: Secret) -> list[tuple[int, str]]:
    return sorted({(match.offset, match.form) for match in Search(secrets).matches(content)})


def encode(before: bytes, value: str = PASSWORD) -> bytes:
    return base64.b64encode(before + value.encode() + b"!")


@pytest.mark.parametrize(
    ("content", "form"),
    [
        pytest.param(PASSWORD.encode(), "as it is", id="plain"),
        pytest.param(quote(PASSWORD, safe="").encode(), "URL-encoded", id="URL"),
        pytest.param(re.sub("%..", lambda found: found[0].lower(), quote(PASSWORD, safe="")).encode(), "URL-encoded",
                     id="URL in lower case"),
        pytest.param(quote(PASSWORD).encode(), "URL-encoded", id="path of a URL"),
        pytest.param(quote_plus(PASSWORD).encode(), "URL-encoded", id="form"),
        pytest.param(PASSWORD.encode("utf-16-le"), "in UTF-16", id="UTF-16"),
        pytest.param(b"\0" + PASSWORD.encode("utf-16-be"), "in UTF-16", id="UTF-16, big-endian"),
        pytest.param(json.dumps(PASSWORD).encode(), "in JSON", id="JSON"),
        pytest.param(json.dumps(PASSWORD, ensure_ascii=False).encode(), "in JSON", id="JSON in UTF-8"),
        pytest.param(json.dumps(PASSWORD).replace("/", "\\/").encode(), "in JSON", id="JSON of PHP"),
        pytest.param(json.dumps(PASSWORD).replace("<", "\\u003c").replace(">", "\\u003e").encode(), "in JSON", id="Go"),
        pytest.param(f"export X={shlex.quote(PASSWORD)}".encode(), "quoted", id="shell"),
        pytest.param(b"'" + PASSWORD.replace("'", "'\\''").encode() + b"'", "quoted", id="shell, single quotes"),
        pytest.param(b"'" + PASSWORD.replace("'", "\\'").encode() + b"'", "quoted", id="single quotes"),
        pytest.param(b'"pw/7c1e <Q\\"\'\\$x>\xc3\xa9"', "quoted", id="shell, double quotes"),
        *(pytest.param(encode(b"user:"[:n]), "in base64", id=f"base64 behind {n}") for n in range(4)),
        pytest.param(base64.urlsafe_b64encode(b"?" + PASSWORD.encode()), "in base64", id="base64 for URLs"),
    ],
)  # fmt: skip
def test_a_password_is_found_in_each_form(content: bytes, form: str) -> None:
    found = [found for _, found in find(b"before " + content + b" after", password(PASSWORD))]
    assert found == [form]


@pytest.mark.parametrize("line", [64, 70, 76])
@pytest.mark.parametrize("before", range(100, 104))
def test_base64_in_lines_is_found(line: int, before: int) -> None:
    value = bytes(range(1, 37))
    text = base64.b64encode(b"x" * before + value + b"y" * 90)
    lines = b"\n".join(text[at : at + line] for at in range(0, len(text), line))
    secret = Secret(kind="private key", what="a key", value=value)
    assert {form for _, form in find(lines, secret)} == {"in base64"}
    assert find(lines.replace(b"\n", b"\\n"), secret)


def test_bytes_that_are_no_text_are_found() -> None:
    secret = Secret(kind="certificate", what="a certificate", value=b"\xff\xfe\x80" * 12)
    assert find(b"." + b"\xff\xfe\x80" * 12, secret) == [(1, "as it is")]


@pytest.mark.parametrize(
    "text",
    ["PROXY.Corp.test", "at proxy.corp.test:80", "http%3A%2F%2Fproxy.corp.test", "a\\nproxy.corp.test",
     "-proxy.corp.test", "\\x0aproxy.corp.test", "\\u000aproxy.corp.test"],
)  # fmt: skip
def test_a_host_is_found_in_any_case_as_a_whole_word(text: str) -> None:
    assert [form for _, form in find(text.encode(), host("proxy.corp.test"))] == ["as it is"]
    assert [form for _, form in find(text.encode("utf-16-le"), host("proxy.corp.test"))] == ["in UTF-16"]


@pytest.mark.parametrize("text", ["xproxy.corp.test", "proxy.corp.tests", "1proxy.corp.test", "proxy-corp.test", "%2proxy.corp.test"])  # fmt: skip  # noqa: E501
def test_a_part_of_a_word_is_not_a_host(text: str) -> None:
    assert find(text.encode(), host("proxy.corp.test")) == []


def test_an_address_of_ipv6_is_found() -> None:
    assert find(b"http://[FD00::1]:3128/", host("[fd00::1]:3128")) == [(7, "as it is")]
    assert find(quote("http://[fd00::1]:3128", safe="").encode(), host("[fd00::1]:3128")) == [(13, "URL-encoded")]


def test_a_form_that_occurs_everywhere_is_not_searched_for() -> None:
    short = "1234567"
    assert len(short) < MIN_LENGTH
    assert find(short.encode(), password(short)) == []
    assert [form for _, form in find(base64.b64encode(short.encode()), password(short))] == ["in base64"]


def test_a_long_value_is_found_by_its_beginning() -> None:
    value = "".join(f"{number:04}" for number in range(MAX_VALUE))
    assert find(value[:MAX_VALUE].encode(), password(value)) == [(0, "as it is")]


ALPHABET = 'aQ"/'


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.text(ALPHABET, min_size=8, max_size=12), st.booleans()), max_size=6),
    st.lists(st.one_of(st.text(ALPHABET, max_size=8), st.integers(0, 100)), max_size=12),
)
@example(values=[("Qaaaaaaaa", False), ("aaaaaaaQ", False)], parts=[0, 1])
def test_the_search_finds_what_a_plain_one_does(values: list[tuple[str, bool]], parts: list[str | int]) -> None:
    secrets = [Secret(kind="index", what=f"{number}", value=text.encode(), word=word)
               for number, (text, word) in enumerate(values)]  # fmt: skip
    forms = [(content, name, secret) for secret in secrets for content, name in list_forms(secret)]
    pieces = (forms[part % len(forms)][0] if isinstance(part, int) and forms else str(part).encode() for part in parts)
    text = b"".join(pieces)
    expected = set()
    for content, _, secret in forms:
        for at in range(len(text) if len(content) >= MIN_LENGTH else 0):
            there, around = (
                text[at : at + len(content)],
                text[max(0, at - 1) : at] + b" " + text[at + len(content) :][:1],
            )
            if secret.word and there.lower() == content.lower() and not any(map(bytes.isalnum, around.split())):
                expected.add((at, len(content), secret))
            if not secret.word and there == content:
                expected.add((at, len(content), secret))
    found = {(match.offset, match.length, match.secret) for match in Search(secrets).matches(text)}
    # The letter of an escape may precede a word.
    assert {one for one in found - expected if not one[2].word or not re.search(rb"[\\%]", text)} == set()
    assert found >= expected


TOKEN = "tok-7c1e-abcdef-QZ"
SEARCH = Search([password(TOKEN), host("proxy.corp.test")])
SMALL = 4096
"""A window, so that a test need not search megabytes."""


def search_stream(stream: bytes, sizes: Sequence[int] = (SMALL,)) -> list[int]:
    passing, at = StreamSearch(SEARCH, window=SMALL), 0
    for size in itertools.cycle(sizes):
        if at >= len(stream):
            return [match.offset for match in passing.close()]
        passing.feed(stream[at : at + size])
        at += size
        assert passing.length == min(at, len(stream))
    raise AssertionError("no sizes")


@pytest.mark.parametrize(
    "offset",
    [0, 1, SMALL - 19, SMALL - 18, SMALL - 1, SMALL, *range(SMALL + SEARCH.overlap - 20, SMALL + SEARCH.overlap + 2)],
)
@pytest.mark.parametrize("size", [1, 1000, SMALL])
def test_a_value_is_found_wherever_windows_meet(offset: int, size: int) -> None:
    assert search_stream(b"." * offset + TOKEN.encode() + b"." * 2 * SMALL, (size,)) == [offset]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 2 * SMALL), min_size=1, max_size=5), st.lists(st.integers(1, SMALL), max_size=5))
def test_however_a_stream_is_cut_the_same_is_found(sizes: list[int], gaps: list[int]) -> None:
    stream, offsets = b"", []
    for gap in gaps:
        stream += b"Q" * gap
        offsets.append(len(stream))
        stream += TOKEN.encode()
    assert search_stream(stream, sizes) == offsets


@pytest.mark.parametrize("at", range(SMALL - 8, SMALL + SEARCH.overlap + 8))
def test_what_adjoins_a_word_counts_across_windows(at: int) -> None:
    assert search_stream(b"." * at + b"aproxy.corp.test" + b"." * SMALL) == []
    assert search_stream(b"." * at + b"proxy.corp.testa" + b"." * SMALL) == []
    assert search_stream(b"." * at + b"\\u000aproxy.corp.test" + b"." * SMALL) == [at + 6]


def test_the_number_of_matches_in_memory_is_limited() -> None:
    assert len(search_stream(TOKEN.encode() * 3 * MAX_MATCHES)) == MAX_MATCHES


def test_secrets_in_a_name_are_hidden() -> None:
    assert SEARCH.hide(f"srv/{TOKEN}/x/PROXY.corp.test/\udcffé") == "srv/…/x/…/\\xffé"


def test_without_secrets_nothing_is_found() -> None:
    assert find(b"anything at all") == []

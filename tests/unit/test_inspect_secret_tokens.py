"""How much the search for tokens finds, and how much that is none: measured on a corpus, with floors."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML

from support.paths import DATA, ROOT
from support.tokens import GITHUB, synthetic
from tfimg.inspect.secrets.rules import RULES
from tfimg.inspect.secrets.search import Match, Search

SAMPLES = 12
"""Tokens of each form, in each context."""

CORPUS: dict[str, Any] = YAML(typ="safe", pure=True).load(DATA / "tokens.yaml")


@cache
def search() -> Search:
    return Search(RULES, tokens=True)


def matches(text: str | bytes) -> Sequence[Match]:
    return list(search().matches(text if isinstance(text, bytes) else text.encode()))


def positives(service: str) -> Iterator[str]:
    for number in range(SAMPLES):
        for form in CORPUS["files"].get(service, ()):
            yield "first line\n" + synthetic(form, number).replace("{{", "{").replace("}}", "}")
        for form in CORPUS["forms"].get(service, ()):
            token = synthetic(form, number)
            yield from (context.replace("{}", token) for context in CORPUS["contexts"])


def negatives() -> Iterator[str]:
    for form in CORPUS["negatives"]:
        times = 200 if ":" in form and synthetic(form) != form else 1
        yield from (synthetic(form, number) + "\n" for number in range(times))


SERVICES = sorted({*CORPUS["forms"], *CORPUS["files"]})


def recall(service: str) -> tuple[int, int]:
    texts = list(positives(service))
    return sum(bool(matches(text)) for text in texts), len(texts)


@pytest.mark.parametrize("service", SERVICES)
def test_each_service_reaches_its_floor(service: str) -> None:
    found, texts = recall(service)
    assert found / texts >= CORPUS["floors"].get(service, 0.97)


@pytest.mark.parametrize("text", sorted(set(CORPUS["negatives"])))
def test_what_is_no_token_is_not_found(text: str) -> None:
    assert [(one.what, one.shown) for number in range(50) for one in matches(synthetic(text, number))] == []


def test_random_bytes_and_text_hold_no_token() -> None:
    noise = b"".join(hashlib.sha512(b"%d" % number).digest() for number in range(1 << 15))
    assert matches(noise) == []
    assert matches(noise.hex()) == []


def test_the_documented_figures_are_those_of_the_corpus(capsys: pytest.CaptureFixture[str]) -> None:
    """Print recall and precision: `pytest -n 0 -rP -k figures tests/unit/test_inspect_secret_tokens.py`."""
    by_service = {service: recall(service) for service in SERVICES}
    right = Counter(one.what for service in SERVICES for text in positives(service) for one in matches(text))
    wrong = Counter(one.what for text in negatives() for one in matches(text))
    for service, (found, texts) in by_service.items():
        print(f"recall     {found / texts:7.1%}  {service} ({texts})")
    for what in sorted(right | wrong):
        print(f"precision  {right[what] / (right[what] + wrong[what]):7.1%}  {what}")
    found, texts = (sum(numbers) for numbers in zip(*by_service.values(), strict=True))
    precision = right.total() / (right.total() + wrong.total())
    figures = f"recall {found / texts:.1%}, precision {precision:.1%}"
    print(f"{figures}: {len(SERVICES)} services, {texts} texts with a token, {sum(1 for _ in negatives())} without")
    assert figures in (ROOT / "docs/how-to/inspect-images.md").read_text()


@pytest.mark.parametrize("mark", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_text_in_utf_16_does_not_hide_a_token_beside_it(mark: str) -> None:
    """The scanner would decode all of a window that it takes for such a text."""
    assert matches(("hello world\n" * 2000).encode(mark) + b"token " + GITHUB.encode() + b"\n")


@pytest.mark.parametrize("before", [b"\\n", b"%3D", b"\\x3d", b"\\u003d", b"=", b"\0", b"\xff", b'"', b"_"])
def test_an_escape_before_a_token_belongs_to_none(before: bytes) -> None:
    assert [one.offset for one in matches(before + GITHUB.encode() + b" ")] == [len(before)]


@pytest.mark.parametrize("before", [b"x", b"9", b"Highs_set", b"\\N"])
def test_a_letter_before_a_token_prevents_a_match(before: bytes) -> None:
    assert matches(before + GITHUB.encode() + b" ") == []

"""The page of published images: what it lists, and that no text of a registry becomes a part of the page."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sphinx.errors import ConfigError

from generator import published as page
from support.published_builds import collect_example
from support.reports import ATTACK
from tfimg.publish.published import PublishedRepository

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Tags(HTMLParser):
    """Count the elements of a page, and the attributes that are scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


@pytest.fixture(scope="module")
def found() -> PublishedRepository:
    return collect_example(NOW)


def rows(part: str) -> list[dict[str, str]]:
    return [
        dict(re.findall(r'data-(\w+)(?:="([^"]*)")?', line)) for line in re.findall(r'<tr class="build"[^>]*>', part)
    ]


def test_each_build_has_a_row_newest_release_first_and_the_present_build_before_earlier_ones(
    found: PublishedRepository,
) -> None:
    described = [
        (row["tensorflow"], row["device"], row["level"], "earlier" in row) for row in rows(page.make_part(found))
    ]
    assert described == [
        ("2.20.0", "cpu", "validated", False), ("2.20.0", "gpu", "linked", False),
        ("2.18.1", "gpu", "validated", False), ("2.15.1", "cpu", "validated", False),
        ("2.15.1", "cpu", "validated", True), ("2.15.1", "gpu", "validated", False),
    ]  # fmt: skip


def test_a_build_has_its_digest_and_commands_to_copy_and_a_withdrawn_one_is_not_pulled(
    found: PublishedRepository,
) -> None:
    part = page.make_part(found)
    copied = {unescape(text) for text in re.findall(r'data-copy="([^"]*)"', part)}
    for image in found.images:
        name = f"{found.repository}@{image.digest}"
        assert {image.digest, f"tfimg verify {name} --public-key tfimg.pub"} <= copied
        assert (f"docker pull {name}" in copied) is (image.withdrawn is None)
    assert [one.build in part for one in found.unproven] == [True, True]
    assert "failed its tests" in part


def test_no_text_of_a_file_becomes_a_part_of_the_page(found: PublishedRepository) -> None:
    attack = f"{ATTACK}\n``````\n<!-- generated: matrix -->\n[x](javascript:1)"
    quiet = Tags(page.make_part(found))
    hostile = found.model_copy(
        update={
            "tfimg": attack,
            "images": tuple(
                one.model_copy(update={"gpu": attack, "driver": attack, "signer": attack, "withdrawn": attack})
                for one in found.images
            ),
            "unproven": tuple(one.model_copy(update={"reason": attack}) for one in found.unproven),
        }
    )
    part = page.make_part(PublishedRepository.model_validate_json(hostile.model_dump_json()))
    loud = Tags(part)
    assert (loud.count["script"], loud.count["img"], loud.count["a"]) == (1, 0, 0)
    assert (quiet.handlers, loud.handlers) == ([], [])
    first, *inside, last = page.embed_html(part).splitlines()
    assert (first.rstrip("} html{raw"), last) == ("`" * 7, "`" * 7)
    assert not [line for line in inside if line.startswith(last)]


def test_without_a_file_it_lists_the_committed_evidence_and_says_that_nothing_is_published() -> None:
    part = page.make_part(None)
    assert "Nothing is published for this checkout." in part
    assert {row["level"] for row in rows(part)} == {"validated", "linked"}
    assert "docker pull" not in part
    assert 'data-copy="tfimg build --tf 2.15.1 --python 3.11"' in part
    assert Tags(part).count["script"] == 1


def test_an_empty_repository_has_a_sentence_and_no_script(found: PublishedRepository) -> None:
    part = page.make_part(found.model_copy(update={"images": (), "unproven": ()}))
    assert "No build has evidence that a trusted key signed." in part
    assert "<script" not in part


@pytest.mark.parametrize(("content", "says"), [(b"{}", "not a list of published images"), (None, "published.json")])
def test_a_file_that_is_no_list_stops_the_site(
    content: bytes | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "published.json"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(page, "_source", [str(file)])
    with pytest.raises(ConfigError, match=says):
        page.published()

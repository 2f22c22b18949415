"""The report's page as text: whole, closed to the outside, and nothing in it but text that came out of a container."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from support.html_page import HtmlPage
from support.reports import ATTACK, BROKEN, DIGEST, ENDS, GREEN, NAMES, PARTIAL, RED, result
from tfimg.core.text import format_value, to_plain_text
from tfimg.validation.report import SIGNS, Report, choose_light, format_page, list_rows, summarize

ALL = {"green": GREEN, "red": RED, "broken": BROKEN, "partial": PARTIAL}


def read(report: Report) -> HtmlPage:
    return HtmlPage(format_page(report))


def text_of(report: Report) -> str:
    return "".join(read(report).text)


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_it_loads_nothing_and_runs_nothing(report: Report) -> None:
    found = read(report)
    assert {"script", "img", "link", "iframe", "object", "form", "base"} & set(found.tags) == set()
    names = {name for _, told in found.elements for name in told}
    assert not {name for name in names if name.startswith("on")} | names & {"src", "srcset"}
    style = format_page(report).partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import|image-set|src\s*:", style)
    (policy,) = (told["content"] for _, told in found.elements if told.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_every_link_has_a_target_in_the_page_and_no_character_is_hidden(report: Report) -> None:
    found = read(report)
    places = [place for _, place in found.having("id")]
    assert len(places) == len(set(places))
    assert {target for _, target in found.having("href")} <= {f"#{place}" for place in places}
    text = format_page(report)
    text.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\ufffe]", text)


def test_each_check_is_a_cell_that_names_it_and_links_to_its_row() -> None:
    cells = [(cell["aria-label"], cell["href"], cell["class"]) for cell in read(RED).of_class("a", "cell")]
    outcomes = {**dict.fromkeys(NAMES, "passed"), **{name: outcome for name, (outcome, _) in ENDS.items()}}
    assert cells == [(f"{name}: {end}", f"#{name}", f"cell {end}") for name, end in outcomes.items()]


def test_what_is_not_green_is_open_and_the_rest_is_folded() -> None:
    assert len(read(RED).having("open")) == len(ENDS)
    assert read(GREEN).having("open") == []


def test_whatever_looks_like_markup_is_shown_as_text() -> None:
    text = text_of(RED)
    # Reason, proof, name and value of measured, output, waived, environment.
    assert text.count(ATTACK) >= 7
    assert "{{ 7 * 7 }}" in text
    assert ATTACK in text_of(BROKEN)


def test_it_says_everything_that_the_report_says() -> None:
    text = text_of(RED)
    for told in (
        "failed", RED.identifier, "built, where linked was to be shown", "3 checks", "standard",
        "2026-01-02 03:04:05 UTC", DIGEST, "A compiled package was built against NumPy 1", "numerics.never_ran",
        "Install numpy<2, as the lock says.",
        "signal 11 (SIGSEGV)", "1.26.4", "gpu.memory_growth", "this release has no Keras format", "NVIDIA T4", "7951",
        "Intel(R) Xeon(R) CPU @ 2.80GHz", "0.0188", "1024, 256, 768",
    ):  # fmt: skip
        assert told in text


def test_evidence_wraps_unless_it_has_lines_of_its_own() -> None:
    measured = {"flat": ["a" * 99, "b" * 99], "lines": "one\ntwo", "deep": [{"x": 1}]}
    text = format_page(replace(GREEN, results=(replace(result("a.b"), measured=measured),)))
    shown = text.partition("Measured</h3>")[2].partition("</dl>")[0]
    assert f'<span class="value">{"a" * 99}, {"b" * 99}</span>' in shown
    assert '<pre tabindex="0">one\ntwo</pre>' in shown
    assert shown.count("<pre") == 2


def test_the_accelerator_is_named() -> None:
    seen = replace(result("gpu.visible"), measured={"gpu": "NVIDIA H100", "driver": "550.54"})
    text = text_of(replace(GREEN, results=(seen,)))
    assert re.search(r"gpu\s*NVIDIA H100\s*driver\s*550.54", text)


CUT_OFF = replace(GREEN, problem="the suite ended")
VERDICTS = {
    "green": (GREEN, "38 of 38 checks passed."),
    "red": (RED, "33 of 38 checks passed. The image is at fault. 3 more need a GPU."),
    "amber": (PARTIAL, "12 of 12 checks passed. 26 required checks did not run, so validated is not proven."),
    "red too": (CUT_OFF, "The suite did not reach its end: the suite ended."),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_is_a_colour_a_sign_and_a_sentence(name: str) -> None:
    (report, sentence), colour = VERDICTS[name], name.split()[0]
    assert (choose_light(report), summarize(report)) == (colour, sentence)
    assert colour in {told.get("class") for tag, told in read(report).elements if tag == "header"}
    assert f"<title>{report.verdict}: {report.identifier}</title>" in format_page(report)


def test_no_two_outcomes_look_the_same_in_print() -> None:
    assert len(set(SIGNS.values())) == len(SIGNS)


def test_bars_are_parts_of_the_longest_and_survive_nonsense() -> None:
    seconds = {"a.one": 2.0, "a.two": 0.5, "a.nan": float("nan"), "a.less": -3.0, "a.endless": float("inf")}
    report = replace(GREEN, results=tuple(result(name, seconds=took) for name, took in seconds.items()))
    parts = {"one": 100, "two": 25, "nan": 0, "less": 0, "endless": 0}
    assert {row.name: row.part for row in list_rows(report)} == parts
    assert all(row.part == 0 for row in list_rows(replace(GREEN, results=(result("a.b", seconds=0.0),))))
    read(report)


def test_unusual_names_have_unique_anchors() -> None:
    names = ("a.b", "a.b", 'x"><b>', "x___b_", "", "é.\x00")
    report = replace(GREEN, results=tuple(map(result, names)))
    assert len({row.anchor for row in list_rows(report)}) == len(names)
    read(report)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nof two lines ✓ é 😀", "plain\ttext\nof two lines ✓ é 😀"),
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07now", "red now"),
        ("a\x00b\rc\x7f", r"a\x00b\x0dc\x7f"),
        ("\u202egnp.exe \ud800", r"\u202egnp.exe \ud800"),
    ],
)
def test_text_is_made_harmless(text: str, shown: str) -> None:
    assert to_plain_text(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "none"), ([], "none"), (1.5, "1.5"), (True, "true"), (float("nan"), "nan"), ("a\x00", r"a\x00"),
        ([1, 2, "x"], "1, 2, x"), ([[1], [2]], "[\n  [\n    1\n  ],\n  [\n    2\n  ]\n]"),
    ],
)  # fmt: skip
def test_evidence_is_readable(value: object, shown: str) -> None:
    assert format_value(value) == shown

"""Reports as errors, JUnit XML and a page, and the inventory that an image prints of itself."""

import ast
import json
import re
import runpy
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from support.html_page import HtmlPage
from support.inventories import INVENTORY
from support.memory_engine import FakeEngine
from support.reports import ATTACK, BROKEN, DIGEST, ENDS, GREEN, NAMES, PARTIAL, RED, reported, result
from tfimg.core.errors import ValidationAborted
from tfimg.core.paths import Workspace
from tfimg.core.text import format_value, to_plain_text
from tfimg.engine.interface import Exit, Line
from tfimg.validation.report import (
    SCRIPT,
    Outcome,
    Report,
    format_junit,
    format_page,
    list_rows,
    summarize,
    take_inventory,
)

KINDS = {"failed": Failure, "crashed": Error, "timed-out": Error, "skipped": Error}


def suite(report: Report) -> TestSuite:
    (only,) = JUnitXml.fromstring(format_junit(report).encode())
    assert isinstance(only, TestSuite)
    return only


def cases(report: Report) -> dict[str, TestCase]:
    return {f"{case.classname}.{case.name}": case for case in suite(report)}


def is_red(report: Report) -> bool:
    found = suite(report)
    return found.errors + found.failures > 0


def test_a_green_report_is_green() -> None:
    found = suite(GREEN)
    assert (found.tests, found.failures, found.errors, found.skipped) == (len(NAMES), 0, 0, 0)
    assert (found.name, found.time, found.timestamp) == ("2.15.1-cpu-py3.11", 14.25, "2026-01-02T03:04:05")
    assert list(cases(GREEN)) == list(NAMES)
    assert ElementTree.fromstring(format_junit(GREEN)).attrib["name"] == "tfimg"  # noqa: S314  (our own text)


def test_a_suite_says_what_it_is_about() -> None:
    properties = {one.name: one.value for one in suite(replace(RED, profile="full")).properties()}
    assert properties == {
        "identifier": "2.15.1-cuda12.2-py3.11", "digest": DIGEST, "lock": DIGEST, "suite": DIGEST, "profile": "full",
        "aim": "linked", "level": "built", "verdict": "failed", "fault": "image",
    }  # fmt: skip


@pytest.mark.parametrize("check", ENDS)
def test_every_end_that_is_not_green_is_a_failure_or_an_error(check: str) -> None:
    outcome = ENDS[check][0]
    (found,) = cases(RED)[check].result
    assert (type(found), found.type) == (KINDS[outcome], outcome)


def test_a_failure_says_the_reason_the_cause_and_what_was_measured_whatever_is_in_them() -> None:
    case = cases(RED)["environment.packages"]
    (found,) = case.result
    assert found.message.startswith("expected numpy 1.26.4, found 2.0.0: ")
    assert ATTACK in found.message
    assert r"red \x00" in found.message
    assert "fix: Install numpy<2, as the lock says." in found.text
    assert 'numpy: {"locked": "1.26.4", "installed": {"version": "2.0.0"}}' in found.text
    assert case.system_out.startswith(f"{ATTACK}\nred ")


def test_an_optional_check_may_be_skipped() -> None:
    skipped = (result(NAMES[0], "skipped", "none"), *GREEN.results[1:])
    report = replace(GREEN, required=NAMES[1:], results=skipped)
    (found,) = cases(report)[NAMES[0]].result
    assert (type(found), found.message, is_red(report)) == (Skipped, "none", False)


def test_a_required_check_that_did_not_run_is_an_error() -> None:
    (found,) = cases(RED)["numerics.never_ran"].result
    assert (type(found), found.type, found.message) == (Error, "missing", "a required check did not run")
    assert (suite(PARTIAL).errors, PARTIAL.passed) == (len(NAMES) - 12, True)


def test_a_suite_that_broke_off_is_an_error() -> None:
    (found,) = cases(BROKEN)["suite.end"].result
    assert type(found) is Error
    assert found.message.startswith("the suite did not start: ")
    ended = replace(GREEN, problem="the suite reported its end, and then died")
    assert [case.name for case in suite(ended) if case.result] == ["end"]


RESULTS = st.builds(
    result,
    st.sampled_from(["a.b", "a.c", "d", "", "e.f.g", "x\x00.\ud800"]),
    st.sampled_from(get_args(Outcome)),
    st.none() | st.text(st.characters(), max_size=9),
    st.floats(),
)
REPORTS = st.builds(
    lambda results, required, problem: replace(
        GREEN, results=tuple(results), required=tuple(required), problem=problem
    ),
    st.lists(RESULTS, max_size=5),
    st.lists(st.sampled_from(["a.b", "a.c", "d"]), unique=True),
    st.none() | st.text(st.characters(), max_size=9),
)


@settings(deadline=None)
@given(REPORTS)
def test_it_is_red_exactly_when_the_report_is_not_green(report: Report) -> None:
    assert is_red(report) is not (report.passed and report.level == report.aim)


ALL = {"green": GREEN, "red": RED, "broken": BROKEN, "partial": PARTIAL}


def read(report: Report) -> HtmlPage:
    return HtmlPage(format_page(report))


def text_of(report: Report) -> str:
    return "".join(read(report).text)


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_it_loads_nothing_and_runs_nothing(report: Report) -> None:
    found = read(report)
    assert {"script", "img", "link", "iframe", "object", "form", "base"} & set(found.tags) == set()
    names = {name for _, attributes in found.elements for name in attributes}
    assert not {name for name in names if name.startswith("on")} | names & {"src", "srcset"}
    style = format_page(report).partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"url\(|@import|image-set|src\s*:", style)
    (policy,) = (one["content"] for _, one in found.elements if one.get("http-equiv"))
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
    for part in (
        "failed", RED.identifier, "built, where linked was to be shown", "3 checks", "standard",
        "2026-01-02 03:04:05 UTC", DIGEST, "A compiled package was built against NumPy 1", "numerics.never_ran",
        "Install numpy<2, as the lock says.",
        "signal 11 (SIGSEGV)", "1.26.4", "gpu.memory_growth", "this release has no Keras format", "NVIDIA T4", "7951",
        "Intel(R) Xeon(R) CPU @ 2.80GHz", "0.0188", "1024, 256, 768",
    ):  # fmt: skip
        assert part in text


def test_measurements_wrap_unless_it_has_lines_of_its_own() -> None:
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
    assert summarize(report) == (colour, sentence)
    assert colour in {attributes.get("class") for tag, attributes in read(report).elements if tag == "header"}
    assert f"<title>{report.verdict}: {report.identifier}</title>" in format_page(report)


def test_bars_are_parts_of_the_longest_and_survive_nonsense() -> None:
    seconds = {"a.one": 2.0, "a.two": 0.5, "a.nan": float("nan"), "a.less": -3.0, "a.endless": float("inf")}
    report = replace(GREEN, results=tuple(result(name, seconds=took) for name, took in seconds.items()))
    parts = {"one": 100, "two": 25, "nan": 0, "less": 0, "endless": 0}
    assert {row.name: row.part for row in list_rows(report)} == parts
    assert all(row.part == 0 for row in list_rows(replace(GREEN, results=(result("a.b", seconds=0.0),))))
    read(report)
    thirds = reported(result("a.b", seconds=3.0), result("a.c", seconds=1.0), result("a.d", seconds=2.0))
    assert [(row.part, row.seconds) for row in list_rows(thirds)] == [
        (100.0, "3.00 s"), (33.3, "1.00 s"), (66.7, "2.00 s"),
    ]  # fmt: skip


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
def test_measurements_are_readable(value: object, shown: str) -> None:
    assert format_value(value) == shown


FINE = Exit(status=0, out_of_memory=False)
BAD = Exit(status=1, out_of_memory=False)


def out(text: str) -> Line:
    return Line(stream="stdout", text=text)


def err(text: str) -> Line:
    return Line(stream="stderr", text=text)


def test_the_inventory_is_the_last_line_of_standard_output() -> None:
    printed = {**INVENTORY, "packages": {"broken": None}, "libraries": {"/a b/ü.so": None}, "imported": ["numpy"]}
    lines = [err("a warning"), out("a library says hello"), out(json.dumps(printed)), out(""), err("bye")]
    engine = FakeEngine(run_output=[*lines, FINE])
    found = take_inventory("some:image", b"print()", engine=engine)
    assert (found.packages, found.libraries) == ({"broken": ""}, {"/a b/ü.so": None})
    assert found.imported == {"numpy"}
    (order,) = engine.ran
    assert (order.image, order.command) == ("some:image", ["python", SCRIPT])
    assert order.files == {SCRIPT: (b"print()", 0o444)}
    assert engine.open_containers == 0


@pytest.mark.parametrize("lost", ["packages", "debian", "system", "libraries", "about"])
def test_an_inventory_of_another_form_is_refused(lost: str) -> None:
    printed = {name: value for name, value in INVENTORY.items() if name != lost}
    with pytest.raises(ValidationAborted, match=rf"\({lost}: field required\)"):
        take_inventory("some:image", b"", engine=FakeEngine(run_output=[out(json.dumps(printed)), FINE]))


NO_TENSORFLOW = "ModuleNotFoundError: No module named 'tensorflow'"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ([out("{}"), out("not JSON"), FINE], "ended with status 0: not JSON (it is not valid JSON: expected ident"),
        ([out("[1]"), FINE], "ended with status 0: [1] (the document: input should be a valid dictionary"),
        ([out('{"packages": 1}'), FINE], 'status 0: {"packages": 1} (packages: input should be a valid dictionary)'),
        ([out('{"packages": ' + "9" * 5000 + "}"), FINE], "(it is not valid JSON: number out of range"),
        ([out("[" * 5000), FINE], "(it is not valid JSON: recursion limit exceeded"),
        ([FINE], "ended with status 0: no output"),
        ([out("{}"), err(NO_TENSORFLOW), BAD], f"ended with status 1: {NO_TENSORFLOW}"),
        ([out("{}"), err("loading"), TimeoutError()], "did not end in 300 s: loading"),
        ([TimeoutError()], "in 300 s: no output"),
    ],
    ids=["garbage", "list", "wrong type", "long", "deep", "silent", "status", "late", "late-and-silent"],
)
def test_an_image_whose_inventory_fails_is_reported_with_its_last_line(
    output: Sequence[Line | Exit | BaseException], why: str
) -> None:
    engine = FakeEngine(run_output=output)
    with pytest.raises(ValidationAborted) as caught:
        take_inventory("some:image", b"", engine=engine)
    assert str(caught.value).startswith("The inventory of some:image ")
    assert why in str(caught.value)
    assert len(str(caught.value)) < 3000
    assert engine.open_containers == 0


@pytest.fixture(scope="module")
def script(workspace: Workspace) -> dict[str, Any]:
    """What images/inventory.py defines; it does nothing when it is only read."""
    return runpy.run_path(str(workspace.images / "inventory.py"))


def test_the_script_imports_nothing_but_the_standard_library_at_first(workspace: Workspace) -> None:
    tree = ast.parse((workspace.images / "inventory.py").read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported < set(sys.stdlib_module_names)


def test_an_accelerators_libraries_are_known_by_name(script: dict[str, Any]) -> None:
    known = [
        *("libcudnn.so.8", "libcudnn_ops_infer.so.8", "libcuda.so.1", "libcudart.so.12", "libcublasLt.so.12"),
        *("libnvJitLink.so.12", "libnvrtc-builtins.so.12.2", "libnccl.so.2", "libtpu.so"),
    ]
    others = ["libcurl.so.4", "libcups.so.2", "libtensorflow_cc.so.2", "libnvidia.txt"]
    assert [name for name in (*known, *others) if script["LIBRARY"].match(name)] == known


def test_a_case_s_name_is_what_follows_the_last_dot() -> None:
    report = reported(result("a.b.c", seconds=0.3), result("alone"))
    found = [(case.classname, case.name, case.time) for case in suite(report)]
    assert found == [("a.b", "c", 0.3), ("suite", "alone", 0.1)]


def test_evidence_and_output_are_readable_text() -> None:
    failed = replace(
        result("a.b", "failed", "no"), measured={"path": "/café/✓"}, output=("first", "second"), explained=()
    )
    (case,) = suite(reported(failed))
    (ending,) = case.result
    assert ending.text == 'no\npath: "/café/✓"'
    assert case.system_out == "first\nsecond"


def test_the_page_counts_checks_by_outcome() -> None:
    report = reported(result("a.b"), result("a.c"), result("a.d", "failed", "no"), result("a.e", "skipped", "none"))
    counts = re.findall(r"</span> (\d+) ([a-z-]+)</li>", format_page(report))
    assert counts == [("2", "passed"), ("1", "failed"), ("1", "skipped")]


def test_the_page_links_to_what_is_not_green_and_to_nothing_else() -> None:
    whole = format_page(reported(result("a.good"), result("a.bad", "failed", "no")))
    summary = whole[: whole.index('<li class="check')]
    assert '<a href="#a.bad"><code>a.bad</code></a>' in summary
    assert '<a href="#a.good"><code>' not in summary


def test_a_place_in_the_page_is_the_check_s_name_where_that_can_be_one() -> None:
    report = reported(result("a.b_C-9"), result("a b/<é>"), result("a.b_C-9"))
    assert [row.anchor for row in list_rows(report)] == ["a.b_C-9", "a-b----", "a.b_C-9--2"]
    names = ("a.b", "a.b", 'x"><b>', "x___b_", "", "é.\x00")
    unusual = replace(GREEN, results=tuple(map(result, names)))
    assert len({row.anchor for row in list_rows(unusual)}) == len(names)
    read(unusual)


def test_the_page_of_a_thousand_skipped_checks_takes_linear_time() -> None:
    names = [f"a.c{number}" for number in range(1000)]
    report = replace(reported(*(result(name, "skipped", "no GPU") for name in names)), required=tuple(names))
    began = time.process_time()
    assert 'href="#a.c999"' in format_page(report)
    assert time.process_time() - began < 3  # 0.2 s when measured; 6 s where each check was compared with all others

"""Validation reports at their edges: lengths, counts and names in the error, the JUnit XML, the page and the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml, TestCase

from support import suite_events as stories
from support.memory_engine import FakeEngine
from support.reports import GREEN, KNOWN, result
from tfimg.core.errors import FileError, UnsuitableHost, ValidationAborted, ValidationFailed
from tfimg.core.levels import Level
from tfimg.engine.interface import Exit
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.record import read_report
from tfimg.validation.report import (
    CheckResult,
    Report,
    format_json,
    format_junit,
    format_page,
    list_rows,
)
from tfimg.validation.run import ValidationRequest, raise_for_verdict, validate


def reported(*results: CheckResult, **others: Any) -> Report:
    return replace(GREEN, results=results, required=tuple(one.check for one in results), **others)


def refusal(report: Report) -> str:
    with pytest.raises((ValidationFailed, ValidationAborted, UnsuitableHost)) as caught:
        raise_for_verdict(report, subject="It was built", consequence="No tag was given.")
    return str(caught.value)


# The error that a report ends a command with


def test_a_green_report_raises_nothing() -> None:
    raise_for_verdict(GREEN, subject="It was built", consequence="No tag was given.")


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("x" * 299, "x" * 299),
        ("x" * 300, "x" * 300),
        ("x" * 301, "x" * 299 + "…"),
        (None, ""),
        ("two\n\n  lines\n", "two lines"),
    ],
)
def test_a_reason_of_up_to_300_characters_is_reported_whole(reason: str | None, shown: str) -> None:
    told = refusal(reported(result("a.b", "failed", reason)))
    assert told.endswith(
        f", and 1 of 1 checks did not pass. a.b failed: {shown}. No tag was given. --report FILE keeps all that was "
        "measured."
    )


@pytest.mark.parametrize(("count", "more"), [(3, "a.2 failed: no"), (4, "a.2 failed: no; and 1 more, see above")])
def test_three_checks_are_named_and_the_others_counted(count: int, more: str) -> None:
    told = refusal(reported(*(result(f"a.{number}", "failed", "no") for number in range(count))))
    assert f"It was built, and {count} of {count} checks did not pass. a.0 failed: no; a.1 failed: no; {more}." in told


def test_each_known_cause_is_reported_once_with_its_fix() -> None:
    other = replace(KNOWN, issue="driver", fault="host", cause="The driver is too old.", fix="Renew it.")
    known = replace(KNOWN, cause="NumPy 2.", fix="Install numpy<2.")
    failed = [
        replace(result(f"a.{name}", "failed", "no"), explained=(one,))
        for name, one in (("x", known), ("y", known), ("z", other))
    ]
    told = refusal(reported(*failed))
    assert told.endswith(
        "a.z failed: no Known cause (image): NumPy 2. Known cause (host): The driver is too old. No tag was given. "
        "Install numpy<2. Renew it."
    )


def test_a_machine_at_fault_is_an_error_of_its_own() -> None:
    failed = replace(result("a.b", "failed", "no"), explained=(replace(KNOWN, fault="host"),))
    with pytest.raises(UnsuitableHost):
        raise_for_verdict(reported(failed), subject="It was built", consequence="No tag was given.")


def test_a_suite_that_broke_is_reported_by_whether_it_began() -> None:
    broken = replace(GREEN, problem="the suite did not start", results=())
    assert refusal(broken) == (
        "It was built, but the suite did not start. No tag was given. Look inside with `docker run --rm -it "
        "--entrypoint sh IMAGE`."
    )
    assert refusal(replace(broken, results=GREEN.results)).endswith(
        "Try again; if it breaks at the same check, the image is at fault."
    )


# JUnit XML


def cases(report: Report) -> list[TestCase]:
    (suite,) = JUnitXml.fromstring(format_junit(report).encode())
    return list(suite)


def test_a_case_s_name_is_what_follows_the_last_dot() -> None:
    report = reported(result("a.b.c"), result("alone"))
    assert [(case.classname, case.name) for case in cases(report)] == [("a.b", "c"), ("suite", "alone")]


def test_evidence_and_output_are_readable_text() -> None:
    failed = replace(
        result("a.b", "failed", "no"), measured={"path": "/café/✓"}, output=("first", "second"), explained=()
    )
    (case,) = cases(reported(failed))
    (ending,) = case.result
    assert ending.text == 'no\npath: "/café/✓"'
    assert case.system_out == "first\nsecond"


def test_a_missing_case_is_marked_as_missing() -> None:
    (_, missing) = cases(replace(reported(result("a.b")), required=("a.b", "a.gone")))
    assert [(one.type, one.message) for one in missing.result] == [("missing", "a required check did not run")]


def test_the_document_is_named_after_the_program() -> None:
    assert ElementTree.fromstring(format_junit(GREEN)).attrib["name"] == "tfimg"  # noqa: S314  (our own text)


# The page


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


def test_a_bar_is_exact_to_a_tenth_of_a_percent() -> None:
    report = reported(result("a.b", seconds=3.0), result("a.c", seconds=1.0), result("a.d", seconds=2.0))
    assert [row.part for row in list_rows(report)] == [100.0, 33.3, 66.7]
    assert [row.seconds for row in list_rows(report)] == ["3.00 s", "1.00 s", "2.00 s"]


# Reading a kept report


@pytest.mark.parametrize("seconds", [0.0, 86_399.9])
def test_a_check_may_take_no_time_and_almost_a_day(seconds: float) -> None:
    report = reported(result("a.b", seconds=seconds))
    assert read_report(format_json(report), source="kept.json").results[0].seconds == seconds


@pytest.mark.parametrize(("seconds", "problem"), [(-0.1, "greater than or equal to 0"), (86_400.0, "less than 86400")])
def test_a_check_that_took_less_than_no_time_or_a_whole_day_is_refused(seconds: float, problem: str) -> None:
    with pytest.raises(FileError, match=rf"results\[0\]\.seconds: input should be {problem}"):
        read_report(format_json(reported(result("a.b", seconds=seconds))), source="kept.json")


def test_a_check_that_ends_twice_is_refused() -> None:
    with pytest.raises(FileError, match=r"results\[1\]\.check: a\.b has ended before"):
        read_report(format_json(reported(result("a.b"), result("a.b"))), source="kept.json")


def test_a_report_that_requires_nothing_is_refused() -> None:
    with pytest.raises(FileError, match="required: a run of the suite requires at least one check"):
        read_report(format_json(replace(GREEN, required=())), source="kept.json")


# Running the suite


@pytest.mark.parametrize("level", [Level.LINKED, Level.VALIDATED])
def test_the_suite_gets_the_level_to_prove(level: Level, specs: Sequence[ImageSpec]) -> None:
    gpu = next(spec for spec in specs if spec.device == "gpu")
    engine = FakeEngine(story=[stories.line(stories.suite("a")), Exit(status=1, out_of_memory=False)])
    report = validate(
        ValidationRequest(
            spec=gpu, lock={"packages": ""}, image="tf:x", digest="sha256:i", suite={}, target_level=level
        ),
        engine,
    )
    (order,) = engine.ran
    assert json.loads(order.files["/tfimg-validation/facts.json"][0])["level"] == report.aim == level

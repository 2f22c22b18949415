"""A report as JUnit XML: what CI shows, and that it is red exactly when the report is not green."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from support.reports import ATTACK, BROKEN, DIGEST, ENDS, GREEN, NAMES, PARTIAL, RED, result
from tfimg.validation.report import Outcome, Report, format_junit

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


def test_a_case_has_the_group_as_its_class_and_the_seconds() -> None:
    case = cases(GREEN)["training.xla"]
    expected = next(one.seconds for one in GREEN.results if one.check == "training.xla")
    assert (case.classname, case.name, case.time) == ("training", "xla", expected)


def test_a_suite_says_what_it_is_about() -> None:
    told = {one.name: one.value for one in suite(replace(RED, profile="full")).properties()}
    assert told == {
        "identifier": "2.15.1-cuda12.2-py3.11", "digest": DIGEST, "lock": DIGEST, "suite": DIGEST, "profile": "full",
        "aim": "linked", "level": "built", "verdict": "failed", "fault": "image",
    }  # fmt: skip


@pytest.mark.parametrize("check", ENDS)
def test_every_end_that_is_not_green_is_a_failure_or_an_error(check: str) -> None:
    outcome = ENDS[check][0]
    (found,) = cases(RED)[check].result
    assert (type(found), found.type) == (KINDS[outcome], outcome)


def test_a_failure_says_the_reason_the_cause_and_the_evidence_whatever_is_in_them() -> None:
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
    assert (type(found), found.message) == (Error, "a required check did not run")
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

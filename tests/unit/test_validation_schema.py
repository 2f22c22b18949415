"""The report's published JSON Schema, and kept reports: believed as a whole or refused by path."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.reports import BROKEN, GREEN, PARTIAL, RED, result
from tfimg.core.errors import FileError
from tfimg.core.paths import Workspace
from tfimg.validation.record import OPTIONAL, read_report, schema_text
from tfimg.validation.report import SCHEMA, Report, format_json

ON_A_GPU = replace(
    RED, results=(replace(result("gpu.visible"), measured={"gpu": "NVIDIA T4", "driver": "535.104.05"}),)
)
ALL = {"green": GREEN, "red": RED, "broken": BROKEN, "partial": PARTIAL, "on a GPU": ON_A_GPU}

Spoil = Callable[[dict[str, Any]], object]


@cache
def validator() -> Any:
    # Its import takes a second, which each worker would need to collect the tests.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema_text()))


def document(report: Report) -> Any:
    return json.loads(format_json(report))


def test_the_schema_is_a_schema_and_the_committed_one(workspace: Workspace) -> None:
    validator().check_schema(validator().schema)
    assert workspace.report_schema.read_text() == schema_text()


def test_it_says_what_every_field_means_and_which_version_it_is() -> None:
    fields = validator().schema["properties"]
    assert fields.keys() == {*GREEN.to_json(), *OPTIONAL}
    assert all(field["description"] for field in fields.values())
    assert fields["schema"]["const"] == SCHEMA


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_a_real_report_is_of_the_schema_and_read_as_it_was(report: Report) -> None:
    validator().validate(document(report))
    text = format_json(report)
    read = read_report(text, source="report.json")
    assert (format_json(read), read.passed, read.level) == (text, report.passed, report.level)


SPOILT: dict[str, Spoil] = {
    "a field is missing": lambda it: it.pop("waived"),
    "a result's field is missing": lambda it: it["results"][0].pop("output"),
    "another schema": lambda it: it.update(schema=1),
    "a field of nobody's": lambda it: it.update(extra=1),
    "a result's field of nobody's": lambda it: it["results"][0].update(extra=1),
    "an outcome of nobody's": lambda it: it["results"][0].update(outcome="fine"),
    "a text for a number": lambda it: it.update(seconds="1"),
    "a verdict of nobody's": lambda it: it.update(verdict="fine"),
    "an explanation by halves": lambda it: it["results"][2]["explained"][0].pop("fix"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_an_invalid_report_is_refused_by_schema_and_reader(spoil: Spoil) -> None:
    told = document(RED)
    spoil(told)
    assert not validator().is_valid(told)
    with pytest.raises(FileError):
        read_report(json.dumps(told), source="report.json")


def refusal_of(text: str) -> str:
    with pytest.raises(FileError) as caught:
        read_report(text, source="report.json")
    return str(caught.value)


def test_every_problem_is_reported_by_its_path() -> None:
    told = document(GREEN)
    told["results"][3]["outcome"], told["aim"], told["date"] = "fine", None, 7
    assert refusal_of(json.dumps(told)) == (
        "report.json is not a valid validation report:\n"
        "  date: input should be a valid string\n"
        "  results[3].outcome: input should be 'passed', 'failed', 'crashed', 'timed-out' or 'skipped'\n"
        "  aim: input should be 'linked' or 'validated'\n"
        "Write it again with `tfimg validate --report`."
    )


def test_a_report_cannot_say_better_than_its_results() -> None:
    told = document(RED)
    told |= {"passed": True, "verdict": "passed", "level": "linked"}
    message = refusal_of(json.dumps(told))
    assert "\n  passed: it is true, and follows as false from the results\n" in message
    assert '\n  level: it is "linked", and follows as "built" from the results\n' in message


def test_another_version_is_reported_as_such() -> None:
    assert refusal_of('{"schema": 1, "results": []}') == (
        "report.json is a report of schema 1, and this version of tfimg reads 2. Validate the image again with "
        "--report FILE, or read it with the version that wrote it."
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not valid JSON: EOF"), ("[1]", "it has no results"), ("{}", "it has no results"),
        ('{"results": NaN}', "it is not valid JSON"), ("[" * 100_000, "it is not valid JSON"),
        ('{"results": 1e999}', "number that is too large"), ('{"results": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"results": "\ud800"}', "not valid JSON"), ('{"results": "\\ud800"}', "not valid JSON"),
    ],
    ids=["empty", "a list", "an object", "NaN", "deep", "infinite", "long", "half a character", "its escape"],
)  # fmt: skip
def test_a_file_that_is_not_a_report_is_an_error(text: str, problem: str) -> None:
    assert problem in refusal_of(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_evidence_can_be_kept_and_read_again(value: Any) -> None:
    report = replace(GREEN, results=(replace(result("a.b"), measured={"value": value}),))
    text = format_json(report)
    validator().validate(json.loads(text))
    assert format_json(read_report(text, source="report.json")) == text

"""The summary of a run over many images, in both forms: none is green where an image is not there."""

import json
import re
from dataclasses import replace
from typing import get_args

import pytest
from junitparser import JUnitXml, TestSuite

from support.reports import ATTACK, CONTROLS
from tfimg.build.results import (
    BatchResult,
    ImageResult,
    Status,
    count_by_status,
    count_words,
    failed_result,
    format_summary,
    junit,
    raise_for_results,
)
from tfimg.core.errors import (
    BaseImageError,
    BaseUnavailable,
    BatchFailed,
    BuildError,
    Interrupted,
    LockError,
    TfimgError,
    UnsupportedPlatform,
    ValidationFailed,
)
from tfimg.core.levels import Level

BUILT = ImageResult(
    identifier="2.15.1-cpu-py3.11", status="built", seconds=12.345, engine="unix:///e", digest="sha256:1",
    tags=("tf:1",), level=Level.VALIDATED, proven="2026-01-02T03:04:05+00:00", checks=70,
    unpacked_bytes=1_400_000_000, compressed_bytes=300_000_000,
)  # fmt: skip
UNCHANGED = replace(BUILT, identifier="2.15.1-cpu-py3.9", status="unchanged", seconds=0.0, checks=None, reused=True)
RECORDED = replace(UNCHANGED, identifier="2.15.1-cpu-py3.10", status="recorded", tags=(), engine=None)
FAILED = ImageResult(
    identifier="2.14.1-cpu-py3.11", status="failed", seconds=3.0,
    failure=ValidationFailed(f"It was built, and {ATTACK} {CONTROLS}.", next_step="Look."),
)  # fmt: skip
UNBUILDABLE = ImageResult(
    identifier="2.14.1-cpu-py3.11-arm64", status="unbuildable", seconds=0.0,
    failure=LockError("It is for arm64.", next_step="Ask for amd64."),
)  # fmt: skip
INTERRUPTED = ImageResult(
    identifier="2.13.1-cpu-py3.11", status="interrupted", seconds=1.0,
    failure=Interrupted("Interrupted.", next_step="Again."),
)  # fmt: skip
ALL = (BUILT, UNCHANGED, RECORDED, FAILED, UNBUILDABLE, INTERRUPTED)


def summary(*results: ImageResult) -> BatchResult:
    return BatchResult(results=results, date="2026-01-02T03:04:05+00:00", seconds=20.25)


def test_counts_are_reported_in_one_order() -> None:
    assert list(count_by_status((FAILED, BUILT, BUILT))) == ["built", "failed"]
    assert count_words((FAILED, BUILT, BUILT)) == "3 images: 2 built, 1 failed"
    assert summary(BUILT).sentence == "1 image: 1 built in 20.2 s"


def test_json_has_everything_and_is_strict() -> None:
    document = json.loads(format_summary(summary(*ALL), "summary.json"), parse_constant=pytest.fail)
    assert (document["schema"], document["green"], document["seconds"]) == (1, False, 20.25)
    assert document["counts"] == dict.fromkeys(get_args(Status), 1)
    first, *_, last = document["images"]
    assert first == {
        "identifier": "2.15.1-cpu-py3.11", "status": "built", "seconds": 12.35, "engine": "unix:///e",
        "digest": "sha256:1", "tags": ["tf:1"], "level": "validated",
        "proven": "2026-01-02T03:04:05+00:00", "checks": 70, "reused": False,
        "unpacked_bytes": 1_400_000_000, "compressed_bytes": 300_000_000, "green": True, "error": None,
        "exit_code": 0, "reason": None,
    }  # fmt: skip
    assert (last["error"], last["exit_code"], last["reason"]) == ("Interrupted", 130, "Interrupted. Again.")


def suite(*results: ImageResult) -> TestSuite:
    (only,) = JUnitXml.fromstring(junit(summary(*results)).encode())
    assert isinstance(only, TestSuite)
    return only


def test_junit_has_a_case_for_each_image_with_its_time() -> None:
    found = suite(*ALL)
    assert (found.tests, found.failures, found.errors, found.skipped) == (6, 1, 1, 1)
    assert [(case.name, case.time) for case in found][:2] == [("2.15.1-cpu-py3.11", 12.345), ("2.15.1-cpu-py3.9", 0.0)]
    (failure,) = next(case for case in found if case.name == FAILED.identifier).result
    assert (failure.type, ATTACK in failure.text, "\\x07" in failure.text) == ("ValidationFailed", True, True)


@pytest.mark.parametrize("result", ALL, ids=lambda result: result.status)
def test_no_form_is_green_where_the_image_is_not_there(result: ImageResult) -> None:
    green = result in (BUILT, UNCHANGED, RECORDED)
    assert result.is_green is green
    assert json.loads(format_summary(summary(result), "summary.json"))["green"] is green
    found = suite(result)
    assert (found.failures + found.errors + found.skipped == 0) is green


def test_what_a_container_said_is_text_in_junit() -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", junit(summary(FAILED)))


@pytest.mark.parametrize(("name", "start"), [("a.json", "{"), ("a.XML", "<?xml")])
def test_a_file_s_name_chooses_the_form(name: str, start: str) -> None:
    assert format_summary(summary(*ALL), name).startswith(start)


# The end of the command


def test_one_that_is_not_there_ends_the_command_with_its_own_error() -> None:
    raise_for_results([BUILT, UNCHANGED])
    with pytest.raises(ValidationFailed) as caught:
        raise_for_results([BUILT, FAILED])
    assert caught.value is FAILED.failure


def test_what_this_engine_cannot_build_is_no_failure_of_a_run_over_all_that_can() -> None:
    raise_for_results([BUILT, UNBUILDABLE], needs_all=False)
    for results in ([UNBUILDABLE], [UNBUILDABLE, UNBUILDABLE]):
        with pytest.raises((LockError, BatchFailed)):
            raise_for_results(results, needs_all=False)
    with pytest.raises(ValidationFailed):
        raise_for_results([BUILT, UNBUILDABLE, FAILED], needs_all=False)
    with pytest.raises(LockError):
        raise_for_results([BUILT, UNBUILDABLE])


@pytest.mark.parametrize("failure", [LockError, BaseUnavailable, UnsupportedPlatform])
def test_what_no_retry_can_build_is_unbuildable(failure: type[TfimgError]) -> None:
    assert failed_result("x", failure("No.", next_step="")).status == "unbuildable"
    assert failed_result("x", BaseImageError("The mirror broke off.", next_step="")).status == "failed"


def test_the_summary_names_each_reason_once_with_some_of_its_images() -> None:
    other = replace(UNBUILDABLE, identifier="2.9", failure=BaseUnavailable("Debian \x07 lacks it.", next_step=""))
    many = [replace(UNBUILDABLE, identifier=f"i{number}") for number in range(7)]
    assert summary(BUILT, *many, other).summary.splitlines() == [
        "9 images: 1 built, 8 unbuildable in 20.2 s",
        "unbuildable: i0, i1, i2, i3, i4 and 2 more: It is for arm64.",
        "unbuildable: 2.9: Debian \\x07 lacks it.",
    ]
    assert summary(BUILT, FAILED).summary == summary(BUILT, FAILED).sentence


def test_several_are_listed_up_to_a_bound() -> None:
    many = [replace(UNBUILDABLE, identifier=f"i{number}") for number in range(12)]
    with pytest.raises(BatchFailed) as caught:
        raise_for_results([BUILT, *many])
    lines = str(caught.value).splitlines()
    assert lines[0] == "12 of 13 images were not built:"
    assert lines[1:11] == [f"  i{number}: It is for arm64." for number in range(10)]
    assert lines[11:] == [
        "  and 2 more",
        "Run the same command again to build only these; --report FILE.json keeps every reason.",
    ]


def test_an_interruption_is_reported_before_anything_else() -> None:
    other = replace(FAILED, failure=BuildError("No.", next_step=""))
    with pytest.raises(
        Interrupted, match=r"^Stopped\. 3 images: 1 failed, 1 unbuildable, 1 interrupted\. Run the same"
    ):
        raise_for_results([other, INTERRUPTED, UNBUILDABLE])

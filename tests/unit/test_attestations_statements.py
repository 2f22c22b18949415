"""Statements about an image: what was tested and what was not, where and when; how it came to be."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from support.reports import BROKEN, DIGEST, GREEN, NAMES, PARTIAL, RED, result
from support.statements import RAN, SUBJECT
from tfimg.attestations.envelopes import Statement
from tfimg.attestations.predicates import (
    SELF_SIGNED,
    BuildRecord,
    make_provenance,
    make_report_statement,
    make_test_result,  # pytest would take the term for a test
)
from tfimg.core.levels import Level
from tfimg.validation.report import CheckResult, Report

SEEN = CheckResult(
    check="gpu.visible", outcome="passed", reason=None, seconds=1.0,
    measured={"gpu": ["NVIDIA H100", "NVIDIA T4"], "capability": ["9.0", "7.5"], "driver": "535.104.05"},
)  # fmt: skip


def predicate_of(statement: Statement) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(statement.content)
    assert document["subject"] == [{"name": SUBJECT.name, "digest": {"sha256": SUBJECT.digest.removeprefix("sha256:")}}]
    assert document["predicateType"] == statement.predicate_type
    predicate: dict[str, Any] = document["predicate"]
    return predicate


def outcome(report: Report) -> dict[str, Any]:
    statement = make_test_result(report, subject=SUBJECT, ran=RAN)
    assert statement.predicate_type == "https://in-toto.io/attestation/test-result/v0.1"
    return predicate_of(statement)


def test_a_green_report_is_a_pass_with_all_that_in_toto_asks_for() -> None:
    told = outcome(GREEN)
    assert told["result"] == "PASSED"
    assert told["passedTests"] == list(NAMES)
    assert (told["warnedTests"], told["failedTests"], told["skippedTests"]) == ([], [], [])
    suite, lock = told["configuration"]
    assert suite["digest"] == lock["digest"] == {"sha256": DIGEST.removeprefix("sha256:")}
    assert suite["annotations"] == {"version": "0.1.0"}
    assert (told["level"], told["profile"], told["identifier"]) == ("validated", "standard", GREEN.identifier)


def test_it_says_where_it_ran_and_when() -> None:
    told = outcome(GREEN)
    where = told["environment"]
    assert (where["host"], where["engine"], where["tfimg"]) == ("gpu-runner-3", "Docker 26.1.5", "0.1.0")
    assert where["kernel"] == "Linux 6.1.0"
    assert (where["gpus"], where["driver"]) == ([], None)
    assert (told["startedOn"], told["finishedOn"]) == ("2026-01-02T03:03:50Z", "2026-01-02T03:04:05Z")


def test_it_names_every_gpu_and_the_driver() -> None:
    where = outcome(replace(GREEN, results=(*GREEN.results, SEEN)))["environment"]
    assert where["gpus"] == [
        {"name": "NVIDIA H100", "capability": "sm_90"}, {"name": "NVIDIA T4", "capability": "sm_75"}
    ]  # fmt: skip
    assert where["driver"] == "535.104.05"
    failed = replace(SEEN, outcome="failed", reason="none")
    where = outcome(replace(GREEN, results=(*GREEN.results, failed)))["environment"]
    assert (where["gpus"], where["driver"]) == ([], None), "it failed to show itself"


def test_what_was_skipped_is_reported_with_its_reason_and_is_no_pass() -> None:
    skipped = result("gpu.matmul", "skipped", "there is no GPU")
    told = outcome(replace(GREEN, results=(*GREEN.results, skipped)))
    assert told["skippedTests"] == [{"name": "gpu.matmul", "reason": "there is no GPU", "required": False}]
    required = outcome(replace(GREEN, results=(*GREEN.results, skipped), required=(*GREEN.required, "gpu.matmul")))
    assert required["skippedTests"][0]["required"] is True
    assert (required["result"], required["level"]) == ("FAILED", "built")


def test_what_was_left_out_is_reported_as_well_as_skipped() -> None:
    told = outcome(PARTIAL)
    assert [one["name"] for one in told["skippedTests"]] == list(NAMES[12:])
    assert all(one["required"] for one in told["skippedTests"])
    assert (told["result"], told["level"]) == ("WARNED", "built")


def test_what_needs_a_gpu_makes_a_run_without_one_less_than_a_pass() -> None:
    told = outcome(replace(GREEN, device="gpu", aim=Level.LINKED, unproven=("gpu.visible",)))
    assert (told["result"], told["level"]) == ("WARNED", "linked")
    assert told["warnedTests"] == ["gpu.visible"]
    assert told["unprovenTests"] == [{"name": "gpu.visible", "reason": "it needs a GPU"}]


def test_failures_waivers_and_a_suite_that_broke_are_reported() -> None:
    told = outcome(RED)
    assert told["result"] == "FAILED"
    assert {"environment.packages", "numerics.lstm", "training.cnn"} <= set(told["failedTests"])
    assert told["waivedTests"][0]["name"] == "saving.keras_format"
    broken = outcome(BROKEN)
    assert broken["result"] == "FAILED"
    assert "the suite did not start" in broken["problem"]


def test_the_report_is_a_statement_of_its_own_also_with_numbers_that_json_lacks() -> None:
    for report in (GREEN, RED):
        told = predicate_of(make_report_statement(report, subject=SUBJECT))
        assert [one["check"] for one in told["results"]] == [one.check for one in report.results]
        assert told["verdict"] == report.verdict


def test_the_same_report_gives_the_same_bytes() -> None:
    assert make_test_result(RED, subject=SUBJECT, ran=RAN) == make_test_result(RED, subject=SUBJECT, ran=RAN)


MAKING = BuildRecord(
    identifier="2.15.1-cpu-py3.11", base="tfimg/base:bookworm-py3.11", base_digest=f"sha256:{'cd' * 32}",
    locks={"tensorflow": f"sha256:{'ef' * 32}", "dependencies": f"sha256:{'12' * 32}"}, recipe=f"sha256:{'34' * 32}",
    revision=f"{'56' * 20}-dirty", engine="Docker 26.1.5", version="0.1.0",
    ended=datetime(2026, 1, 2, 3, 9, 5, tzinfo=UTC),
)  # fmt: skip


def test_provenance_names_everything_that_went_in() -> None:
    statement = make_provenance(MAKING, subject=SUBJECT)
    assert statement.predicate_type == "https://slsa.dev/provenance/v1"
    definition = predicate_of(statement)["buildDefinition"]
    assert definition["buildType"] == "urn:tfimg:build:1"
    assert definition["externalParameters"] == {"identifier": "2.15.1-cpu-py3.11"}
    assert definition["resolvedDependencies"] == [
        {"name": "base", "uri": "tfimg/base:bookworm-py3.11", "digest": {"sha256": "cd" * 32}},
        {"name": "lock/dependencies", "digest": {"sha256": "12" * 32}},
        {"name": "lock/tensorflow", "digest": {"sha256": "ef" * 32}},
        {"name": "recipe", "digest": {"sha256": "34" * 32}},
        {"name": "tfimg", "digest": {"gitCommit": "56" * 20}, "annotations": {"uncommittedChanges": True}},
    ]


def test_provenance_names_the_wheel_that_was_supplied() -> None:
    build = replace(MAKING, wheel=f"sha256:{'78' * 32}")
    definition = predicate_of(make_provenance(build, subject=SUBJECT))["buildDefinition"]
    assert {"name": "wheel", "digest": {"sha256": "78" * 32}} in definition["resolvedDependencies"]


def test_provenance_claims_build_level_1_only() -> None:
    run = predicate_of(make_provenance(MAKING, subject=SUBJECT))["runDetails"]
    assert run["builder"]["id"] == SELF_SIGNED
    assert run["builder"]["id"].endswith("slsa-build-l1")
    assert run["builder"]["version"] == {"tfimg": MAKING.version, "engine": MAKING.engine}
    assert run["metadata"] == {"finishedOn": "2026-01-02T03:09:05Z", "slsaBuildLevel": 1}


@pytest.mark.parametrize("name", ["base_digest", "recipe", "revision"])
def test_what_is_not_known_is_left_out(name: str) -> None:
    definition = predicate_of(make_provenance(replace(MAKING, **{name: None}), subject=SUBJECT))["buildDefinition"]
    assert "null" not in json.dumps(definition)

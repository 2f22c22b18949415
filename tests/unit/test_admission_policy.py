"""The policy of the page about admission: it admits signed results that passed, and nothing else."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml
from regopy import Interpreter

from support.paths import ROOT
from support.reports import GREEN, result
from support.statements import FAILED, LINKED, ON_GPU, make_promotion, make_statements
from tfimg.attestations.envelopes import TEST_RESULT, Statement
from tfimg.registry.reference import HOST

PAGE = ROOT / "docs/how-to/admit-proven-images.md"

SKIPPED = replace(GREEN, results=(*GREEN.results[:-1], result(GREEN.results[-1].check, "skipped", "no time")))


def read_policy() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(PAGE.read_text().split("```yaml\n")[1].split("```")[0])
    return found


@pytest.fixture
def is_admitted() -> Callable[[dict[str, Any]], bool]:
    """Evaluate the rules as policy-controller does: on the statement, by the name that it looks for."""
    (authority,) = read_policy()["spec"]["authorities"]
    (attestation,) = authority["attestations"]
    rules = Interpreter()
    rules.add_module("sigstore.rego", attestation["policy"]["data"])

    def evaluate(statement: dict[str, Any]) -> bool:
        rules.set_input(statement)
        return str(rules.query("data.sigstore.isCompliant")) == '{"expressions":[true]}'

    return evaluate


def content(statement: Statement) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(statement.content)
    return found


def test_the_policy_reads_test_results_of_a_repository_in_bundles() -> None:
    policy = read_policy()
    assert (policy["apiVersion"], policy["kind"]) == ("policy.sigstore.dev/v1beta1", "ClusterImagePolicy")
    (image,) = policy["spec"]["images"]
    assert HOST.fullmatch(image["glob"].partition("/")[0])
    (authority,) = policy["spec"]["authorities"]
    assert authority["signatureFormat"] == "bundle"
    assert "ctlog" not in authority, "a key's signatures are in no log"
    (attestation,) = authority["attestations"]
    assert (attestation["predicateType"], attestation["policy"]["type"]) == (TEST_RESULT, "rego")


@pytest.mark.parametrize("report", [GREEN, ON_GPU, LINKED], ids=["cpu", "gpu", "linked"])
def test_a_result_that_passed_is_admitted(report: Any, is_admitted: Callable[[dict[str, Any]], bool]) -> None:
    assert is_admitted(content(make_statements(report)[0]))


@pytest.mark.parametrize("report", [FAILED, SKIPPED], ids=["failed", "skipped"])
def test_a_result_that_did_not_pass_is_refused(report: Any, is_admitted: Callable[[dict[str, Any]], bool]) -> None:
    assert not is_admitted(content(make_statements(report)[0]))


def test_another_statement_is_refused(is_admitted: Callable[[dict[str, Any]], bool]) -> None:
    for statement in (make_statements(GREEN)[1], make_promotion("2.15")):
        assert not is_admitted(content(statement))


@pytest.mark.parametrize(
    "change",
    [
        {"result": "FAILED"}, {"result": "passed"}, {"level": "built"}, {"level": "declared"}, {"passedTests": []},
        {"failedTests": ["numerics.matmul"]}, {"skippedTests": [{"name": "a", "required": True}]},
        {"failedTests": None}, {"skippedTests": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_result_that_contradicts_itself_is_refused(
    change: dict[str, Any], is_admitted: Callable[[dict[str, Any]], bool]
) -> None:
    statement = content(make_statements(GREEN)[0])
    assert not is_admitted({**statement, "predicate": {**statement["predicate"], **change}})


@pytest.mark.parametrize("field", ["result", "level", "passedTests", "failedTests", "skippedTests"])
def test_a_result_without_a_field_is_refused(field: str, is_admitted: Callable[[dict[str, Any]], bool]) -> None:
    statement = content(make_statements(GREEN)[0])
    del statement["predicate"][field]
    assert not is_admitted(statement)

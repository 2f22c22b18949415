"""The suite that runs inside images: its stream, verdicts and arguments. No TensorFlow is needed here."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "images" / "validation"))

import runner
from contract import Check, CheckFailed, CheckSkipped, Facts, FactsError, claimed, parse_facts

SUITE = Path(runner.__file__).parent
FACTS = {
    "identifier": "2.15.1-cpu-py3.11",
    "tensorflow": "2.15.1",
    "python": "3.11",
    "device": "cpu",
    "cuda": None,
    "cudnn": None,
    "architectures": [],
    "libtpu": None,
    "level": "validated",
    "packages": {"numpy": "1.26.4"},
    "user": "non-root",
}


def good(facts: Facts) -> dict[str, Any]:
    return {"python": facts.python}


def bad(_facts: Facts) -> dict[str, Any]:
    raise CheckFailed("expected 1, found 2", found=2)


def unclaimed(facts: Facts) -> dict[str, Any]:
    return {"cuda": claimed(facts.cuda, "CUDA")}


def broken(_facts: Facts) -> dict[str, Any]:
    return {"never": 1 // 0}


def quits(_facts: Facts) -> dict[str, Any]:
    raise SystemExit("a library gave up")


def odd(_facts: Facts) -> dict[str, Any]:
    return {"loss": float("nan"), "path": Path("/somewhere"), "shape": (2, 3)}


def events_of(*checks: Any) -> tuple[int, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    seconds = count()
    table = {check.__name__: Check(check) for check in checks}
    code = runner.run(table, Facts(python="3.11"), events.append, clock=lambda: float(next(seconds)))
    return code, events


def end_of(check: Any) -> dict[str, Any]:
    _, events = events_of(check)
    return events[2]


def test_stream_tells_suite_then_each_check_then_done() -> None:
    code, events = events_of(good, unclaimed)
    assert code == 0
    assert events == [
        {"event": "suite", "schema": 1, "checks": ["good", "unclaimed"], "unproven": []},
        {"event": "start", "check": "good"},
        {
            "event": "end",
            "check": "good",
            "outcome": "passed",
            "reason": None,
            "seconds": 1.0,
            "evidence": {"python": "3.11"},
        },
        {"event": "start", "check": "unclaimed"},
        {
            "event": "end",
            "check": "unclaimed",
            "outcome": "skipped",
            "reason": "the facts say nothing about CUDA, so there is nothing to compare with",
            "seconds": 1.0,
            "evidence": {},
        },
        {"event": "done", "seconds": 5.0},
    ]


def test_failed_check_keeps_its_evidence_and_the_checks_after_it() -> None:
    code, events = events_of(bad, good)
    assert code == 1
    assert [event["outcome"] for event in events if event["event"] == "end"] == ["failed", "passed"]
    assert (events[2]["reason"], events[2]["evidence"]) == ("expected 1, found 2", {"found": 2})


def test_skip_that_a_check_raises_itself_is_no_failure() -> None:
    def elsewhere(_facts: Facts) -> dict[str, Any]:
        raise CheckSkipped("only on a TPU")

    assert end_of(elsewhere)["reason"] == "only on a TPU"


def test_unexpected_exception_is_a_failure_with_its_traceback() -> None:
    end = end_of(broken)
    assert (end["outcome"], end["reason"][:19]) == ("failed", "ZeroDivisionError: ")
    assert any("in broken" in line for line in end["evidence"]["traceback"])


def test_check_that_exits_fails_alone() -> None:
    code, events = events_of(quits, good)
    assert code == 1
    assert events[2]["reason"] == "SystemExit: a library gave up"
    assert events[-1]["event"] == "done"


def test_evidence_becomes_strict_json() -> None:
    assert end_of(odd)["evidence"] == {"loss": "nan", "path": "/somewhere", "shape": [2, 3]}


def test_select_keeps_table_order() -> None:
    table = {"a.one": Check(good), "b.two": Check(bad), "a.three": Check(odd)}
    assert list(runner.select(table, ["a.three", "a.*"])) == ["a.one", "a.three"]
    assert list(runner.select(table, [])) == list(table)


def test_select_refuses_a_pattern_that_fits_nothing() -> None:
    with pytest.raises(ValueError, match=r"no check is named numeric\.\*"):
        runner.select({"numerics.matmul": Check(good)}, ["numeric.*"])


TABLE = {
    "any": Check(good),
    "gpu": Check(good, devices=("gpu",)),
    "on a gpu": Check(good, devices=("gpu",), level="validated"),
    "on a tpu": Check(good, devices=("tpu",), level="validated"),
}


@pytest.mark.parametrize(
    ("facts", "asked", "unproven"),
    [
        (Facts(device="cpu", level="validated"), ["any"], []),
        (Facts(device="gpu", level="linked"), ["any", "gpu"], ["on a gpu"]),
        (Facts(device="gpu", level="validated"), ["any", "gpu", "on a gpu"], []),
        (Facts(device="tpu", level="linked"), ["any"], ["on a tpu"]),
        (Facts(), ["any", "gpu"], ["on a gpu", "on a tpu"]),
    ],
)
def test_what_is_asked_is_for_the_device_and_no_more_than_the_level(
    facts: Facts, asked: list[str], unproven: list[str]
) -> None:
    assert list(runner.applicable(TABLE, facts)) == asked
    assert runner.unproven(TABLE, facts) == unproven


def test_facts_are_read() -> None:
    assert parse_facts(json.dumps(FACTS)) == Facts(**FACTS)  # type: ignore[arg-type]


def test_facts_error_names_all_problems() -> None:
    content = {
        **FACTS,
        "pyhton": "3.11",
        "device": "npu",
        "cuda": 12,
        "packages": ["numpy"],
        "architectures": "sm_80",
    }
    del content["python"]
    with pytest.raises(FactsError) as caught:
        parse_facts(json.dumps(content))
    assert str(caught.value).split("; ") == [
        "python is missing",
        "pyhton is not a fact this suite knows",
        'device must be one of ["cpu", "gpu", "tpu"], not "npu"',
        "cuda must be a string or null",
        "architectures must be a list of strings",
        "packages must map names to versions",
    ]


NOISY = """
import os, subprocess, sys
from contract import Check, Facts
from runner import claim_stdout, run

def noisy(facts):
    print("from Python")
    os.write(1, b"from C++\\n")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    return {}

sys.exit(run({"noisy": Check(noisy)}, Facts(), claim_stdout()))
"""


def python(*arguments: str, path: Path = SUITE) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def test_garbage_on_stdout_does_not_reach_the_stream() -> None:
    done = python("-c", NOISY)
    assert done.returncode == 0
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == [
        "suite",
        "start",
        "end",
        "done",
    ]
    assert {"from Python", "from C++", "from a child"} <= set(done.stderr.splitlines())


def test_suite_without_facts_skips_what_needs_one() -> None:
    done = python(str(SUITE), "--only", "environment.packages")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, events[2]["outcome"]) == (0, "skipped")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [(None, "No such file"), ("{", "it is not JSON"), ("[]", "one JSON object"), ("{}", "device is missing")],
)
def test_bad_facts_file_is_bad_usage(tmp_path: Path, text: str | None, complaint: str) -> None:
    facts = tmp_path / "facts.json"
    if text is not None:
        facts.write_text(text)
    done = python(str(SUITE), "--facts", str(facts))
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_unknown_argument_is_bad_usage() -> None:
    done = python(str(SUITE), "--fact", "x", "--nonsense")
    assert (done.returncode, done.stdout) == (2, "")


def test_broken_tensorflow_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError('planted')")
    done = python(str(SUITE), "--only", "environment.import*", "devices.*", "training.*", path=tmp_path)
    ends = [json.loads(line) for line in done.stdout.splitlines() if '"end"' in line]
    assert done.returncode == 1
    assert [end["outcome"] for end in ends] == ["failed"] * 3
    assert ends[0]["reason"] == "RuntimeError: planted"
    assert all(end["reason"].startswith("TensorFlow did not import (RuntimeError)") for end in ends[1:])
    assert [bool(end["evidence"]) for end in ends] == [True, False, False]


@pytest.mark.parametrize("file", sorted(SUITE.rglob("*.py")), ids=lambda file: str(file.relative_to(SUITE)))
def test_suite_is_python_3_8(file: Path) -> None:
    ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))

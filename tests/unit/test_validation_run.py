"""The suite's event stream becomes a report of whole events only; green reports are kept for the same subject."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support import suite_events as stories
from support.memory_engine import FakeEngine
from support.reports import GREEN, KNOWN, reported, result
from tfimg.core.errors import (
    EngineError,
    EngineUnavailable,
    UnsuitableHost,
    UsageError,
    ValidationAborted,
    ValidationFailed,
)
from tfimg.core.files import hash_files
from tfimg.core.levels import Level
from tfimg.engine.interface import Exit, Line, RunRequest
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_facts
from tfimg.recipe.lock import hash_lock
from tfimg.validation.report import CheckResult, Report
from tfimg.validation.run import (
    ChecksPlanned,
    CheckStarted,
    SuiteEvent,
    ValidationRequest,
    raise_for_verdict,
    validate,
)
from tfimg.validation.suite import CheckSelection, suite_files

LOCK = {"tensorflow": "", "packages": f"numpy==1.26.4 --hash=sha256:{'0' * 64}\n"}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FINE = Exit(status=0, out_of_memory=False)
BAD = Exit(status=1, out_of_memory=False)
SECOND = Exit(status=2, out_of_memory=False)
Said = Line | Exit | BaseException


def event(**fields: Any) -> Line:
    return Line(stream="stdout", text=json.dumps(fields))


def err(text: str) -> Line:
    return Line(stream="stderr", text=text)


def suite(*checks: str) -> Line:
    return stories.line(stories.suite(*checks))


def start(check: str) -> Line:
    return stories.line(stories.start(check))


def end(check: str, outcome: str = "passed", reason: str | None = None) -> Line:
    explained = [stories.EXPLAINED] if outcome == "crashed" else []
    return stories.line(stories.end(check, outcome, reason, explained=explained))


DEAD = Exit(status=139, out_of_memory=False)


def done_line(code: int = 0, problem: str | None = None) -> Line:
    return stories.line(stories.done_event(code, problem))


DONE = done_line()
GOOD: list[Said] = [suite("a", "b"), start("a"), end("a"), start("b"), end("b"), DONE, FINE]


@pytest.fixture
def spec(named: Callable[[str], ImageSpec]) -> ImageSpec:
    return named("2.15.1-cpu-py3.11")


def judge(
    spec: ImageSpec,
    *output: Said,
    engine: FakeEngine | None = None,
    on_event: Callable[[SuiteEvent], object] = lambda _: None,
    **others: Any,
) -> Report:
    engine = engine or FakeEngine()
    engine.run_output = output
    request = ValidationRequest(
        spec=spec,
        lock=LOCK,
        image="tf:x",
        digest="sha256:i",
        suite={"__main__.py": b"pass"},
        **{"target_level": "validated", **others},
    )
    report = validate(request, engine, on_event=on_event, now=lambda: NOW)
    assert engine.open_containers == 0
    return report


def outcomes(report: Report) -> list[tuple[str, str, str | None]]:
    return [(result.check, result.outcome, result.reason) for result in report.results]


def test_a_suite_whose_checks_all_passed_is_green(spec: ImageSpec) -> None:
    report = judge(spec, *GOOD)
    one = CheckResult(check="a", outcome="passed", reason=None, seconds=0.5, measured={"n": 1}, output=("a line",))
    assert report.results == (one, replace(one, check="b"))
    assert (report.passed, report.level, report.problem, report.unsuccessful) == (True, "validated", None, ())


def test_a_report_says_what_it_is_about(spec: ImageSpec) -> None:
    document = judge(spec, *GOOD).to_json()
    result = {"outcome": "passed", "reason": None, "seconds": 0.5, "measured": {"n": 1}, "output": ["a line"]}
    verdict = {"passed": True, "verdict": "passed", "level": "validated", "fault": None, "missing": []}
    subject = {"identifier": "2.15.1-cpu-py3.11", "device": "cpu", "digest": "sha256:i", "lock": hash_lock(LOCK)}
    assert json.loads(json.dumps(document)) == verdict | subject | {
        "schema": 2,
        "suite": hash_files({"__main__.py": b"pass"}),
        "date": "2026-01-02T03:04:05+00:00",
        "seconds": document["seconds"],
        "results": [{"check": check, **result, "explained": []} for check in "ab"],
        "problem": None,
        "aim": "validated",
        "profile": "standard",
        "required": ["a", "b"],
        "waived": {"z": "for a test"},
        "unproven": [],
        "environment": {"cores": 2},
    }


@pytest.mark.parametrize(("outcome", "code"), [("failed", 1), ("crashed", 3), ("timed-out", 4), ("skipped", 5)])
def test_a_check_that_did_not_pass_is_not_green(outcome: str, code: int, spec: ImageSpec) -> None:
    report = judge(
        spec, suite("a", "b"), start("a"), end("a", outcome, "a reason"), start("b"), end("b"), done_line(code),
        Exit(status=code, out_of_memory=False),
    )  # fmt: skip
    assert report.verdict == outcome
    assert outcomes(report) == [("a", outcome, "a reason"), ("b", "passed", None)]
    assert (report.passed, report.level, report.problem) == (False, "built", None)
    assert [result.check for result in report.unsuccessful] == ["a"]


@pytest.mark.parametrize("identifier", ["2.20.0-cuda12.5-py3.11", "2.20.0-tpu-py3.11"])
def test_an_accelerator_is_not_proven_by_checks_without_it(identifier: str, named: Callable[[str], ImageSpec]) -> None:
    first = {**json.loads(suite("a", "b").text), "unproven": ["gpu.visible"]}
    output = [event(**first), *GOOD[1:]]
    report = judge(named(identifier), *output, target_level="linked")
    assert (report.passed, report.level, report.unproven) == (True, "linked", ("gpu.visible",))


def test_an_accelerator_that_was_seen_is_reported(named: Callable[[str], ImageSpec]) -> None:
    seen = {"gpu": ["NVIDIA T4"], "capability": ["7.5"], "driver": "535.104.05", "memory_mib": [15360]}
    ended = event(**{**json.loads(end("gpu.visible").text), "measured": seen})
    output = [suite("gpu.visible"), start("gpu.visible"), ended, DONE, FINE]
    document = judge(named("2.20.0-cuda12.5-py3.11"), *output).to_json()
    found = (document["level"], document["gpu"], document["driver"])
    assert found == ("validated", "NVIDIA T4", "535.104.05")


def test_noise_between_the_events_changes_nothing(spec: ImageSpec) -> None:
    printed = ("no JSON", "", '{"event": "end", "check": "b"', '["a", "list"]', '{"other": "object"}', "3")
    noise: list[Said] = [
        err("WARNING: something"),
        *(Line(stream="stdout", text=text) for text in printed),
        event(event="something later versions say"),
        err(end("b").text),
    ]
    report = judge(spec, *[said for good in GOOD[:-1] for said in (good, *noise)], FINE)
    assert report.results == judge(spec, *GOOD).results
    assert report.passed


def test_a_crash_is_the_running_check_s_and_the_rest_is_skipped(spec: ImageSpec) -> None:
    printed = [err("free(): invalid pointer"), err("Aborted"), Exit(status=134, out_of_memory=False)]
    report = judge(spec, suite("a", "b", "c"), start("a"), end("a"), err("first"), start("b"), *printed)
    words = "the process ended with status 134: first free(): invalid pointer Aborted"
    skipped = ("c", "skipped", "the suite ended before it")
    assert outcomes(report) == [("a", "passed", None), ("b", "crashed", words), skipped]
    assert (report.passed, report.problem) == (False, f"the suite did not reach its end: {words}")


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ([DEAD], "the process ended with status 139: no output"),
        ([Exit(status=137, out_of_memory=True)], "the kernel killed it for lack of memory"),
        ([], "the process ended: no output"),
    ],
)
def test_how_a_process_ended_is_reported(last: list[Said], words: str, spec: ImageSpec) -> None:
    report = judge(spec, suite("a"), start("a"), *last)
    assert outcomes(report) == [("a", "crashed", words)]
    assert report.problem == f"the suite did not reach its end: {words}"


def test_the_last_600_characters_of_a_crash_are_its_reason(spec: ImageSpec) -> None:
    last = err("a" * 9 + "b" * 600)
    (result,) = judge(spec, suite("a"), start("a"), last, DEAD).results
    assert str(result.reason).endswith(f": {'b' * 600}")


def test_an_end_of_the_process_between_checks_is_not_green(spec: ImageSpec) -> None:
    for output, last, status in (
        (GOOD[:3], ("b", "skipped", "the suite ended before it"), BAD),
        (GOOD[:5], ("b", "passed", None), FINE),
    ):
        report = judge(spec, *output, status)
        assert outcomes(report) == [("a", "passed", None), last]
        words = f"the process ended with status {status.status}: no output"
        assert (report.passed, report.problem) == (False, f"the suite did not reach its end: {words}")


def test_a_timeout_is_the_running_check_s(spec: ImageSpec) -> None:
    report = judge(spec, suite("a", "b"), start("a"), TimeoutError("no end after 600 s"))
    assert outcomes(report) == [
        ("a", "timed-out", "it did not end within 14400 s"),
        ("b", "skipped", "the suite ended before it"),
    ]
    assert (report.passed, report.problem) == (False, "the suite did not end within 14400 s")
    silent = judge(spec, TimeoutError())
    assert (silent.results, silent.level, silent.problem) == ((), "built", report.problem)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ([], "the process ended: no output"),
        ([err("python: can't open file"), SECOND], "the process ended with status 2: python: can't open file"),
        ([Line(stream="stdout", text="hello"), FINE], "the process ended with status 0: hello"),
        ([suite(), FINE], "the process ended with status 0: no output"),
        ([DONE, FINE], f"the process ended with status 0: {DONE.text}"),
    ],
    ids=["nothing", "no-suite", "hello", "no-checks", "done-only"],
)
def test_a_suite_that_says_nothing_is_not_green(output: list[Said], words: str, spec: ImageSpec) -> None:
    report = judge(spec, *output)
    problem = f"the suite did not start: {words}"
    assert (report.results, report.passed, report.level, report.problem) == ((), False, "built", problem)


@pytest.mark.parametrize(
    ("silent", "problem"), [(1, None), (2, "the suite did not start: the process ended with status 0: no output")]
)
def test_a_run_whose_output_the_engine_lost_is_repeated_once(silent: int, problem: str | None, spec: ImageSpec) -> None:
    engine = _Forgetful()
    engine.silent = silent
    events: list[SuiteEvent] = []
    report = judge(spec, *GOOD, engine=engine, on_event=events.append)
    assert (report.problem, report.passed, len(engine.ran)) == (problem, not problem, 2)
    assert len(events) == (0 if problem else 5), "none is told twice"


class _Forgetful(FakeEngine):
    """Loses what its first programs print."""

    silent = 0

    def _output(self, request: RunRequest) -> Sequence[Line | Exit | BaseException]:
        return [FINE] if len(self.ran) <= self.silent else super()._output(request)


def test_a_check_that_the_suite_does_not_have_is_an_error_of_the_request(spec: ImageSpec) -> None:
    said = "validation: no check of this image is named a.smoek; did you mean a.smoke?"
    with pytest.raises(UsageError) as caught:
        judge(spec, err(said), SECOND, selection=CheckSelection(only=("a.smoek",)))
    assert str(caught.value) == (
        "No check was run: no check of this image is named a.smoek; did you mean a.smoke? "
        "The suite takes names of checks, and patterns such as 'numerics.*'."
    )
    assert judge(spec, err(said), SECOND).problem, "nothing was selected, so the suite is at fault"


@pytest.mark.parametrize(
    ("outcome", "last", "words"),
    [
        ("passed", [DEAD], "the process ended with status 139: no output"),
        ("passed", [err("Aborted"), DEAD], "the process ended with status 139: Aborted"),
        ("passed", [Exit(status=137, out_of_memory=True)], "the kernel killed it for lack of memory"),
        ("passed", [BAD], "the process ended with status 1: no output"),
        ("passed", [], "the process ended: no output"),
        ("failed", [DEAD], "the process ended with status 139: no output"),
    ],
)  # fmt: skip
def test_an_end_that_does_not_fit_the_events_is_not_green(
    outcome: str, last: list[Said], words: str, spec: ImageSpec
) -> None:
    report = judge(spec, suite("a"), start("a"), end("a", outcome), DONE, *last)
    assert outcomes(report) == [("a", outcome, None)]
    assert (report.passed, report.level) == (False, "built")
    assert report.problem == f"the suite reported its end, and then {words}"


def test_a_suite_that_claims_success_after_a_failure_is_rejected(spec: ImageSpec) -> None:
    report = judge(spec, suite("a"), start("a"), end("a", "failed", "why"), DONE, FINE)
    assert report.problem == "the suite reported success in spite of failed checks"


def test_what_the_suite_itself_complains_of_is_the_problem(spec: ImageSpec) -> None:
    code = Exit(status=3, out_of_memory=False)
    report = judge(spec, suite("a"), start("a"), end("a"), done_line(3, "it crashed in the end"), code)
    assert (report.verdict, report.problem, report.level) == ("broken", "it crashed in the end", "built")


def test_the_host_is_at_fault_only_where_everything_is_known_to_come_from_it(spec: ImageSpec) -> None:
    output = [suite("a", "b"), start("a"), end("a", "crashed", "why"), start("b")]
    crash = Exit(status=3, out_of_memory=False)
    assert judge(spec, *output, end("b"), done_line(3), crash).fault == "host"
    assert judge(spec, *output, end("b", "failed", "why"), done_line(3), crash).fault == "image"
    assert judge(spec, *GOOD).fault is None


def test_a_run_that_left_out_what_is_required_shows_no_level(spec: ImageSpec) -> None:
    first = {**json.loads(suite("a", "b").text), "required": ["a", "b", "c"]}
    report = judge(spec, event(**first), *GOOD[1:])
    assert (report.passed, report.missing, report.level) == (True, ("c",), "built")


def test_a_planned_check_that_was_never_reported_is_not_green(spec: ImageSpec) -> None:
    report = judge(spec, suite("a", "b"), start("a"), end("a"), DONE, FINE)
    assert outcomes(report)[1:] == [("b", "skipped", "the suite ended before it")]
    assert report.problem == "the suite reported its end without having run b"


def test_a_check_that_a_suite_plans_twice_has_one_result(spec: ImageSpec) -> None:
    report = judge(spec, suite("a", "a"), DONE, FINE)
    assert outcomes(report) == [("a", "skipped", "the suite ended before it")]


def test_a_suite_of_more_checks_than_any_has_did_not_start(spec: ImageSpec) -> None:
    # With the 10,000 that were allowed once, the report took a minute and its message 9 MB.
    report = judge(spec, suite(*(f"c{number}" for number in range(1001))), DONE, FINE)
    assert (report.results, report.verdict) == ((), "broken")


def test_a_message_names_ten_of_the_checks_that_did_not_run(spec: ImageSpec) -> None:
    report = judge(spec, suite(*(f"c{number:0>300}" for number in range(1000))), DONE, FINE)
    assert report.problem
    assert report.problem.endswith(f"{9:0>300} and 990 more")
    with pytest.raises(ValidationAborted) as caught:
        raise_for_verdict(report, subject="tf:x", consequence="No tag was set.")
    assert len(str(caught.value)) < 5000


HALF: dict[str, dict[str, Any]] = {
    "end-without-outcome": {"event": "end", "check": "a"},
    "unknown-outcome": {"event": "end", "check": "a", "outcome": "excellent", "reason": None, "seconds": 0.1},
    "start-without-check": {"event": "start"},
    "suite-without-checks": {"event": "suite"},
    "null-checks": {"event": "suite", "checks": None},
}


@pytest.mark.parametrize("half", HALF.values(), ids=HALF)
def test_half_an_event_is_rejected(half: dict[str, Any], spec: ImageSpec) -> None:
    report = judge(spec, suite("a"), start("a"), event(**half, measured={}), DONE, BAD)
    assert not report.passed
    assert {result.outcome for result in report.results} <= {"crashed", "skipped", "failed"}


def test_results_are_handed_on_as_they_come_and_the_unfinished_ones_last(spec: ImageSpec) -> None:
    events: list[SuiteEvent] = []
    report = judge(spec, suite("a", "b", "c"), start("a"), end("a"), start("b"), BAD, on_event=events.append)
    first, second, third = report.results
    started = [CheckStarted(check="a"), CheckStarted(check="b")]
    assert events == [ChecksPlanned(checks=("a", "b", "c")), started[0], first, started[1], second, third]
    assert [result.outcome for result in report.results] == ["passed", "crashed", "skipped"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EngineUnavailable("It is gone.", next_step="Start it.")])
def test_an_engine_that_goes_away_is_no_verdict(error: BaseException, spec: ImageSpec) -> None:
    engine = FakeEngine()
    with pytest.raises(type(error)):
        judge(spec, suite("a"), start("a"), error, engine=engine)
    assert engine.open_containers == 0


def test_the_suite_runs_with_its_facts(spec: ImageSpec) -> None:
    engine = FakeEngine()
    judge(spec, *GOOD, engine=engine, access="cdi")
    (order,) = engine.ran
    assert (order.image, order.access) == ("tf:x", "cdi")
    assert order.entrypoint == ["/usr/bin/tini", "--", "/opt/tensorflow/bin/python", "-I"]
    assert order.command[:-1] == [
        "/tfimg-validation/suite", "--json", "--facts", "/tfimg-validation/facts.json", "--profile", "standard",
        "--nonce",
    ]  # fmt: skip
    assert order.files["/tfimg-validation/suite/__main__.py"] == (b"pass", 0o444)
    content, mode = order.files["/tfimg-validation/facts.json"]
    assert (json.loads(content), mode) == (collect_facts(spec, LOCK, level=Level.VALIDATED), 0o444)


@pytest.mark.parametrize("level", ["linked", "validated"])
def test_the_suite_gets_the_level_to_prove(level: str, named: Callable[[str], ImageSpec]) -> None:
    engine = FakeEngine()
    report = judge(named("2.20.0-cuda12.5-py3.11"), suite("a"), BAD, engine=engine, target_level=level)
    (order,) = engine.ran
    assert json.loads(order.files["/tfimg-validation/facts.json"][0])["level"] == report.aim == level


def test_facts_are_what_the_image_claims(named: Callable[[str], ImageSpec]) -> None:
    claims = {"tensorflow": "2.18.1", "python": "3.11", "device": "gpu", "cuda": "12.5", "cudnn": ">=9.3,<10"}
    architectures = ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]
    assert collect_facts(named("2.18.1-cuda12.5-py3.11"), LOCK, level=Level.LINKED) == claims | {
        "identifier": "2.18.1-cuda12.5-py3.11",
        "architectures": architectures,
        "libtpu": None,
        "level": "linked",
        "packages": {"numpy": "1.26.4"},
        "user": "non-root",
        "waived": {},
        "removed": [],
        "variant": "runtime",
    }


def test_an_image_of_another_publisher_is_not_compared_with_our_lock(spec: ImageSpec) -> None:
    engine = FakeEngine()
    selection = CheckSelection(profile="smoke", only=("gpu.*", "a"), skip=("b",))
    judge(spec, *GOOD, engine=engine, from_lock=False, selection=selection)
    (order,) = engine.ran
    assert order.entrypoint == ["sh", "-c", 'exec "$(command -v python || command -v python3)" -I "$@"', "sh"]
    assert order.command[4:-2] == ["--profile", "smoke", "--only", "gpu.*", "a", "--skip", "b"]
    claims = json.loads(order.files["/tfimg-validation/facts.json"][0])
    assert (claims["packages"], claims["user"]) == (None, None)
    assert claims["waived"]["environment.packages"] == "the image was not built from a lock of tfimg"


def test_a_stream_that_was_recorded_before_is_rejected(spec: ImageSpec) -> None:
    replayed = {**json.loads(suite("a", "b").text), "nonce": "of another run"}
    report = judge(spec, event(**replayed), *GOOD[1:])
    assert (report.results, report.verdict) == ((), "broken")


@pytest.mark.parametrize(
    "said",
    [suite("z"), start("z"), end("z"), start("b"), end("b"), DONE],
    ids=["suite", "unknown-start", "unknown-end", "early-start", "early-end", "early-done"],
)
def test_an_event_that_is_out_of_turn_is_noise(said: Line, spec: ImageSpec) -> None:
    assert judge(spec, *GOOD[:2], said, *GOOD[2:]).results == judge(spec, *GOOD).results
    assert judge(spec, *GOOD[:2], said, *GOOD[2:]).passed


def test_an_image_that_cannot_start_the_suite_is_reported_as_such(spec: ImageSpec) -> None:
    words = 'It refused: exec: "sh": executable file not found in $PATH'
    says = "tf:x cannot be validated: it has no sh to start the suite with"
    with pytest.raises(ValidationAborted, match=says):
        judge(spec, EngineError(words, next_step="See its log."), from_lock=False)


def test_a_suite_is_its_python_files_without_what_python_leaves_behind(tmp_path: Path) -> None:
    for name in ("__main__.py", "checks/one.py", "checks/__pycache__/one.cpython-311.py", "notes.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    assert suite_files(tmp_path) == {"__main__.py": b"__main__.py", "checks/one.py": b"checks/one.py"}


def refusal(report: Report) -> str:
    with pytest.raises((ValidationFailed, ValidationAborted, UnsuitableHost)) as caught:
        raise_for_verdict(report, subject="It was built", consequence="No tag was given.")
    return str(caught.value)


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
    message = refusal(reported(result("a.b", "failed", reason)))
    assert message.endswith(
        f", and 1 of 1 checks did not pass. a.b failed: {shown}. No tag was given. --report FILE keeps all that was "
        "measured."
    )


@pytest.mark.parametrize(("count", "more"), [(3, "a.2 failed: no"), (4, "a.2 failed: no; and 1 more, see above")])
def test_three_checks_are_named_and_the_others_counted(count: int, more: str) -> None:
    message = refusal(reported(*(result(f"a.{number}", "failed", "no") for number in range(count))))
    assert (
        f"It was built, and {count} of {count} checks did not pass. a.0 failed: no; a.1 failed: no; {more}." in message
    )


def test_each_known_cause_is_reported_once_with_its_fix() -> None:
    other = replace(KNOWN, issue="driver", fault="host", cause="The driver is too old.", fix="Renew it.")
    known = replace(KNOWN, cause="NumPy 2.", fix="Install numpy<2.")
    failed = [
        replace(result(f"a.{name}", "failed", "no"), explained=(one,))
        for name, one in (("x", known), ("y", known), ("z", other))
    ]
    message = refusal(reported(*failed))
    assert message.endswith(
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

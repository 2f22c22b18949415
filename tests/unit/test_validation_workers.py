"""Distributed checks across containers: what becomes of the answers, failures and ends of their tasks."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.memory_engine import FakeEngine
from support.paths import ROOT
from tfimg.core.errors import EngineError, EngineUnavailable
from tfimg.core.files import try_lock
from tfimg.engine.interface import Exit, Line
from tfimg.validation.report import CheckResult
from tfimg.validation.workers import MAX_AGE, remove_leftovers, validate_workers

pytestmark = pytest.mark.usefixtures("short")
NOW = datetime(2026, 11, 27, tzinfo=UTC)
Said = Sequence[Line | Exit | BaseException]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let peers of a task that failed go on for a moment only."""
    monkeypatch.setattr("tfimg.validation.workers.PARTING_SECONDS", 0.2)


def answer(outcome: str = "passed", reason: str | None = None, nonce: str = "NONCE", **measured: Any) -> Line:
    event = {"event": "member", "nonce": nonce, "outcome": outcome, "reason": reason, "measured": measured}
    return Line(stream="stdout", text=json.dumps(event))


def say(text: str) -> Line:
    return Line(stream="stderr", text=text)


def end(status: int) -> Exit:
    return Exit(status=status, out_of_memory=False)


SERVERS: dict[str, Said] = {"ps:0": [], "chief:0": [answer(total=16.0)]}


def run(engine: FakeEngine, folder: Path, count: int = 2) -> tuple[CheckResult, ...]:
    suite = {"member.py": b"pass"}
    return validate_workers(
        "image", suite, count, engine, folder=ROOT / "images/validation", locks=folder / "workers", now=NOW
    )


def results(members: dict[str, Said], folder: Path) -> dict[str, CheckResult]:
    engine = FakeEngine(members={**SERVERS, **members})
    found = run(engine, folder)
    assert (engine.networks, engine.open_containers, list((folder / "workers").iterdir())) == ({}, 0, [])
    return {one.check: one for one in found}


def test_workers_that_agree_pass(tmp_path: Path) -> None:
    members = {f"worker:{number}": [say("a warning"), answer(weights=[[1.0]])] for number in range(2)}
    found = results(members, tmp_path)
    assert [one.outcome for one in found.values()] == ["passed", "passed"]
    assert found["workers.multi_worker"].measured == {
        "workers": 2, "containers": 2, "worker 0": {"weights": [[1.0]]}, "worker 1": {"weights": [[1.0]]},
    }  # fmt: skip
    assert found["workers.parameter_server"].measured == {"workers": 2, "containers": 4, "chief 0": {"total": 16.0}}


def test_containers_know_the_cluster_and_have_limits(tmp_path: Path) -> None:
    engine = FakeEngine(members={**SERVERS, **{f"worker:{number}": [answer()] for number in range(4)}})
    run(engine, tmp_path, 4)
    found = [request for request in engine.ran if request.environment["TFIMG_TASK"] == "worker:3"]
    for request in found:
        assert request.place
        assert request.environment["TFIMG_CLUSTER"].count(request.place.host) == 1
        assert request.place.memory_bytes < 4 << 30
        assert request.entrypoint
        assert request.entrypoint[-1].endswith("tfimg-cluster")
    clusters = [re.sub(r"tfimg-workers-\w+-", "", one.environment["TFIMG_CLUSTER"]) for one in found]
    assert clusters == [
        "worker=worker-0,worker-1,worker-2,worker-3",
        "chief=chief-0;ps=ps-0;worker=worker-0,worker-1,worker-2,worker-3",
    ]
    assert len({request.place.network for request in found if request.place}) == 2


@pytest.mark.parametrize(
    ("said", "outcome", "reason"),
    [
        ([answer("failed", "expected 1, found 2")], "failed", "worker 1: expected 1, found 2"),
        ([answer(weights=[[2.0]])], "failed", "expected the same weights in every worker"),
        ([say("OOM"), end(137)], "crashed", "worker 1: the process ended with status 137, killed from outside: OOM"),
        ([Exit(status=137, out_of_memory=True)], "crashed", "worker 1: the kernel killed it for lack of memory"),
        ([answer("crashed", "ValueError: no"), end(1)], "crashed", "worker 1: ValueError: no"),
        ([answer(nonce="0" * 16, weights=[[1.0]]), end(0)], "crashed", "worker 1: the process ended with status 0"),
        ([Line(stream="stderr", text=answer().text), end(0)], "crashed", "worker 1: the process ended with status 0"),
        ([say("exec /usr/local/bin/tfimg-cluster failed: No such file or directory"), end(127)], "skipped",
         "no tfimg-cluster"),
        ([EngineError("no address pool", next_step="")], "skipped", "does not connect containers: no address pool"),
        ([TimeoutError("no end after 305 s")], "crashed", "worker 1: no end after 305 s"),
    ],
)  # fmt: skip
def test_a_worker_that_fails_is_named(said: Said, outcome: str, reason: str, tmp_path: Path) -> None:
    found = results({"worker:0": [answer(weights=[[1.0]])], "worker:1": said}, tmp_path)["workers.multi_worker"]
    assert found.outcome == outcome
    assert reason in (found.reason or "")


def test_a_server_that_ends_fails_the_check(tmp_path: Path) -> None:
    members: dict[str, Said] = {"chief:0": [], "ps:0": [say("no port"), end(1)]}
    members |= {f"worker:{number}": [answer()] for number in range(2)}
    found = results(members, tmp_path)["workers.parameter_server"]
    assert (found.outcome, found.reason) == ("crashed", "ps 0: the process ended with status 1: no port")
    assert found.output == ("ps 0: no port",)


def test_silence_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.validation.workers.SECONDS", 0.5)
    found = results({"worker:0": [answer(weights=[[1.0]])], "worker:1": [say("waiting")]}, tmp_path)
    one = found["workers.multi_worker"]
    assert (one.outcome, one.output) == ("timed-out", ("worker 1: waiting",))
    assert "no answer of worker 1 within" in (one.reason or "")


def test_an_engine_without_networks_skips_the_checks(tmp_path: Path) -> None:
    engine = FakeEngine(no_network=EngineError("it has none", next_step=""))
    for one in run(engine, tmp_path):
        assert (one.outcome, one.reason) == ("skipped", "the engine does not connect containers: it has none")
    assert engine.ran == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), EngineUnavailable("It is gone.", next_step="Start it.")])
def test_an_interrupt_leaves_no_network(error: BaseException, tmp_path: Path) -> None:
    engine = FakeEngine(members={"worker:0": [], "worker:1": [error]})
    with pytest.raises(type(error)):
        run(engine, tmp_path)
    assert (engine.networks, engine.open_containers, list((tmp_path / "workers").iterdir())) == ({}, 0, [])


def test_only_what_a_dead_call_left_is_removed(tmp_path: Path) -> None:
    names = ("dead", "alive", "elsewhere", "old")
    engine = FakeEngine(networks=dict.fromkeys(names, NOW))
    engine.networks["old"] = NOW - MAX_AGE - timedelta(seconds=1)
    (tmp_path / "dead").touch()
    with try_lock(tmp_path / "alive"):
        remove_leftovers(engine, tmp_path, NOW)
    assert set(engine.networks) == {"alive", "elsewhere"}
    assert not (tmp_path / "dead").exists()

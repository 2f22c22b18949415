"""The journal: what is noted is on the disk, what a kill tore is nothing, and one run has it at a time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfimg.build.journal import (
    BuildEnded,
    BuildStarted,
    RunInterrupted,
    RunStarted,
    candidates,
    open_journal,
    unfinished,
)
from tfimg.core.errors import BatchRunning
from tfimg.core.journal import Record, open_journal_file, parse_lines
from tfimg.core.runs import RunFinished

RECORDS = (
    RunStarted(images=2),
    BuildStarted(identifier="a", candidate="c:a-1", engine="e"),
    BuildEnded(identifier="a", status="built"),
    BuildStarted(identifier="b", candidate="c:b-1", engine="e"),
    BuildStarted(identifier="c", candidate="c:c-1", engine="f"),
)


def test_a_record_for_which_the_disk_has_no_room_is_an_error_and_not_half_a_record(tmp_path: Path) -> None:
    with open_journal_file(tmp_path / "journal.jsonl") as journal:
        journal.write(RunStarted())
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 20, limits[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                journal.write(BuildEnded(identifier="2.15", status="built"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        journal.write(RunFinished())
        assert journal.read(RunStarted, BuildEnded, RunFinished) == (RunStarted(), RunFinished())


def write(folder: Path, *more: Record) -> bytes:
    with open_journal(folder) as journal:
        for record in (*RECORDS, *more):
            journal.write(record)
    return journal.path.read_bytes()


def test_a_record_is_a_line_with_its_time(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.now = lambda: datetime(2026, 1, 2, tzinfo=UTC)
        journal.write(RunStarted(images=2))
        assert journal.path.read_text() == (
            '{"time": "2026-01-02T00:00:00.000+00:00", "event": "run", "images": 2, "jobs": null}\n'
        )


def test_what_a_run_was_at_is_known_to_the_next(tmp_path: Path) -> None:
    write(tmp_path)
    with open_journal(tmp_path) as journal:
        assert unfinished(journal) == ("b", "c")
        assert candidates(journal, "e") == {"c:a-1", "c:b-1"}
        assert candidates(journal, "f") == {"c:c-1"}
        journal.write(RunStarted())
        assert unfinished(journal) == ("b", "c"), "of earlier runs"
    with open_journal(tmp_path) as journal:
        assert unfinished(journal) == ()
        assert candidates(journal, "e") == {"c:a-1", "c:b-1"}, "a build may end after the run that began it"


@pytest.mark.parametrize("record", [RunFinished(), RunInterrupted()])
def test_a_run_that_came_to_its_end_left_nothing(record: Record, tmp_path: Path) -> None:
    write(tmp_path, record)
    with open_journal(tmp_path) as journal:
        assert unfinished(journal) == ()


def test_a_line_that_was_torn_tears_no_other(tmp_path: Path) -> None:
    whole = write(tmp_path)
    for cut in range(0, len(whole), 7):
        (tmp_path / "journal.jsonl").write_bytes(whole[:cut])
        with open_journal(tmp_path) as journal:
            before = len(journal.lines)
            journal.write(RunStarted())
        with open_journal(tmp_path) as journal:
            assert before == len(parse_lines(whole[:cut]))
            assert len(journal.lines) == before + 1


@given(st.binary(max_size=200))
def test_anything_can_be_read(text: bytes) -> None:
    assert all(isinstance(record, dict) for record in parse_lines(text))


def test_two_runs_do_not_have_it_at_once(tmp_path: Path) -> None:
    with open_journal(tmp_path), pytest.raises(BatchRunning) as caught, open_journal(tmp_path):
        pass
    assert f"process {os.getpid()} has locked {tmp_path}/lock" in str(caught.value)
    with open_journal(tmp_path):
        pass


def test_a_kill_lets_go_of_it_though_a_program_that_it_started_lives_on(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time, pathlib\n"
        "from tfimg.build.journal import RunStarted, open_journal\n"
        f"with open_journal(pathlib.Path({str(tmp_path)!r})) as journal:\n"
        "    journal.write(RunStarted())\n"
        "    print(subprocess.Popen(['sleep', '60'], start_new_session=True, stdout=2).pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    left = int(child.stdout.readline())
    try:
        with pytest.raises(BatchRunning), open_journal(tmp_path):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        os.kill(left, 0)
        with open_journal(tmp_path) as journal:
            assert [record["event"] for record in journal.lines] == ["run"]
    finally:
        os.kill(left, signal.SIGKILL)
        child.stdout.close()

"""Programs that we start: their output, their end, and ours."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tfimg.core import process
from tfimg.core.process import CommandFailed, clean_up, defer_signals, run, stop_process, stream_stderr

ENV = {"PATH": os.defpath}


def read_stderr(script: str) -> str:
    return "".join(stream_stderr(["sh", "-c", script], env=ENV))


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_a_program_s_output_is_text() -> None:
    assert run(["sh", "-c", "echo out; echo err >&2"]) == "out\n"
    assert run(["printf", r"a\377b"]) == "a�b", "undecodable bytes are replaced"


def test_a_failed_program_is_reported_with_its_output() -> None:
    with pytest.raises(CommandFailed) as caught:
        run(["sh", "-c", "echo out; echo 'no such thing' >&2; exit 3"])
    assert str(caught.value) == "sh exited with 3: no such thing"
    assert (caught.value.stdout, caught.value.stderr, caught.value.returncode) == ("out\n", "no such thing\n", 3)


def test_a_program_gets_only_the_environment_that_it_is_given(tmp_path: Path) -> None:
    done = run(["sh", "-c", 'echo "$ONE:${HOME-}"; pwd'], env={**ENV, "ONE": "1"}, cwd=tmp_path)
    assert done == f"1:\n{tmp_path}\n"


def test_a_program_reads_what_it_is_given_and_nothing_from_us() -> None:
    assert run(["cat"]) == ""
    assert run(["cat"], stdin=b"a server\n") == "a server\n"
    assert run(["true"], stdin=b"x" * 1_000_000) == "", "it need not read"
    read, write = os.pipe()
    os.write(write, b"still open\n")
    assert run(["head", "-n1"], stdin=read) == "still open\n"
    os.close(read)
    os.close(write)


def test_a_program_that_does_not_exist_or_takes_too_long_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run(["./no-such-program"])
    with pytest.raises(TimeoutError) as caught:
        run(["sleep", "60"], timeout=0.05)
    assert str(caught.value) == "`sleep` did not end within 0.05 seconds."


def test_the_silence_of_a_program_is_reported() -> None:
    reports: list[None] = []
    late = ["sh", "-c", "sleep 0.5; echo late >&2"]
    pieces = stream_stderr(late, env=ENV, on_silence=lambda: reports.append(None), silence=0.1)
    assert "".join(pieces) == "late\n"
    assert 2 <= len(reports) <= 5


def test_what_is_raised_about_a_silent_program_ends_it() -> None:
    def lost() -> None:
        raise ConnectionError

    start = time.monotonic()
    with pytest.raises(ConnectionError):
        list(stream_stderr(["sleep", "60"], env=ENV, on_silence=lost, silence=0.05))
    assert time.monotonic() - start < 10


def test_a_program_that_the_kernel_does_not_let_go_of_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda *_: None)
        stop_process(child, seconds=0.01)
    assert child.poll() is None
    for _ in range(2):  # running, and ended
        stop_process(child)
        assert child.returncode == -signal.SIGTERM


def test_a_stream_is_what_comes_on_stderr_as_it_is_written() -> None:
    assert read_stderr("echo one >&2; echo hidden; echo two >&2") == "one\ntwo\n"
    pieces = stream_stderr(["sh", "-c", "echo one >&2; exec sleep 60"], env=ENV)
    begin = time.monotonic()
    assert next(pieces) == "one\n"
    pieces.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begin < 30


def test_a_stream_ends_with_the_failure_after_its_last_piece() -> None:
    pieces = stream_stderr(["sh", "-c", "echo one >&2; exit 4"], env=ENV)
    assert next(pieces) == "one\n"
    with pytest.raises(CommandFailed) as caught:
        next(pieces)
    assert caught.value.returncode == 4


def test_a_letter_that_is_cut_in_two_stays_one_letter_and_one_that_never_ends_cannot_be_read() -> None:
    assert read_stderr(r"printf 'gr\303' >&2; sleep 0.1; printf '\274n' >&2") == "grün"
    assert read_stderr(r"printf 'gr\303' >&2") == "gr�"


def test_a_consumer_that_stops_ends_the_program_by_its_own_signal(tmp_path: Path) -> None:
    script = f"trap 'echo ended > {tmp_path}/word; exit' TERM; echo one >&2; while :; do sleep 0.02; done"
    pieces = stream_stderr(["sh", "-c", script], env=ENV)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert (tmp_path / "word").read_text() == "ended\n"


def test_the_terminal_s_ctrl_c_does_not_reach_a_streamed_program() -> None:
    script = "import os, sys; print(os.getpid() == os.getpgrp(), file=sys.stderr)"
    assert "".join(stream_stderr([sys.executable, "-c", script], env=ENV)) == "True\n"


FOREGROUND = """sh -c 'trap "echo ended; exit" TERM; echo ready; while :; do sleep 0.02; done'; exit"""
BACKGROUND = """trap '' TERM; sh -c 'echo ready; while :; do sleep 0.02; done' & wait"""


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("script", "wait", "number", "last"),
    [(FOREGROUND, process.STOP_SECONDS, signal.SIGTERM, b"ended\n"), (BACKGROUND, 0.1, signal.SIGKILL, b"")],
    ids=["terminated", "killed"],
)
def test_those_that_a_program_started_end_with_it(
    script: str, wait: float, number: signal.Signals, last: bytes
) -> None:
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        stop_process(child, wait)
        assert child.returncode == -number
        # The pipe ends when no process holds it any more.
        assert child.stdout.read() == last


@pytest.mark.parametrize(("number", "ending"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_waits_until_moves_that_belong_together_are_made(
    number: signal.Signals, ending: type[BaseException]
) -> None:
    def leave(_number: int, _frame: object) -> None:
        raise SystemExit

    before = signal.signal(signal.SIGTERM, leave)
    moves = []

    def move() -> None:
        with defer_signals():
            moves.append("first")
            os.kill(os.getpid(), number)
            moves.append("second")

    try:
        with pytest.raises(ending):
            move()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert moves == ["first", "second"]


def test_another_ctrl_c_does_not_interrupt_cleaning_up_and_nothing_waits_for_it_forever() -> None:
    done = []

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        done.append("removed")

    with pytest.raises(KeyboardInterrupt):
        clean_up(work)
    assert done == ["removed"]
    began, blocked = time.monotonic(), threading.Event()
    clean_up(blocked.wait, seconds=0.1)
    assert time.monotonic() - began < 5
    blocked.set()
    with pytest.raises(ValueError, match="inside"):
        clean_up(lambda: [].index("inside"))


def test_without_a_signal_or_after_an_error_the_handlers_are_back_as_they_were() -> None:
    before = handlers()
    with defer_signals():
        during = handlers()
    assert (handlers(), during != before) == (before, True)
    with pytest.raises(ValueError, match="inside"), defer_signals():
        raise ValueError("inside")
    assert handlers() == before


def replaced_by(*argv: str) -> subprocess.CompletedProcess[str]:
    script = "import sys; from tfimg.core import process; process.replace_process(sys.argv[1:], env={'ONE': '1'})"
    command = [sys.executable, "-c", script, *argv]
    return subprocess.run(command, input="in", capture_output=True, text=True, check=False)


def test_a_program_that_we_become_has_our_streams_and_its_own_status() -> None:
    done = replaced_by("/bin/sh", "-c", 'cat; echo "$ONE" >&2; exit 7')
    assert (done.stdout, done.stderr, done.returncode) == ("in", "1\n", 7)
    assert "FileNotFoundError" in replaced_by("no-such-program").stderr


def test_a_program_that_we_become_ignores_no_signal_for_us() -> None:
    ignored = int(replaced_by("/bin/grep", "SigIgn", "/proc/self/status").stdout.split()[1], 16)
    # The program that started the tests may ignore others, as nohup does.
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


@pytest.mark.parametrize("option", ["-I", "-P", "-B"])
def test_a_module_is_started_as_isolated_as_this_process_is_and_never_from_the_current_folder(
    option: str, tmp_path: Path
) -> None:
    (tmp_path / "shown.py").write_text("print('executed')")
    (tmp_path / "library").mkdir()
    (tmp_path / "library/shown.py").write_text("import sys; print(sys.flags.isolated)")
    script = (
        "from tfimg.core.process import python_module_command, run, CommandFailed\n"
        "try: print(run(python_module_command('shown')))\n"
        "except CommandFailed as failed: print('No module' in str(failed))"
    )
    done = subprocess.run(
        [sys.executable, option, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(tmp_path / "library")},
    )  # fmt: skip
    assert done.stdout.strip() == ("True" if option == "-I" else "0")

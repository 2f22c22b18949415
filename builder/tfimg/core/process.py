"""The one place that starts other programs."""

from __future__ import annotations

import codecs
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tfimg.core.cancellation import on_cancel

STOP_SECONDS = 20.0
"""How long a child may take to end after it was asked to, before it is killed. Ours: BuildKit's
cancellation of a running step took under 3 s when tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletedCommand:
    """A program that ended. `stdout` and `stderr` are text, undecodable bytes replaced."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class CommandFailed(Exception):
    """A program ended with a status other than 0; stages translate this into an error of ours."""

    def __init__(self, completed: CompletedCommand) -> None:
        self.completed = completed
        super().__init__(f"{completed.argv[0]} exited with {completed.returncode}: {completed.stderr.strip()}")


def python_module_command(name: str) -> list[str]:
    """Return the words that run a Python module in a process of its own, with this interpreter.

    Without -P, Python would take a module of that name, and those that it imports, from the current folder first.
    """
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", name]


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: bytes = b"",
) -> CompletedCommand:
    """Run a program to its end and return its output; `stdin` is what it can read.

    Raises `CommandFailed` when its status is not 0, `FileNotFoundError` when it does not exist and `TimeoutError`,
    with a sentence, when it has not ended after `timeout` seconds.
    """
    # A group of its own, as for `stream`: whoever cleans up behind itself (mmdebstrap, apt) is given the time to.
    child = subprocess.Popen(
        list(argv),
        env=env,
        cwd=cwd,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with on_cancel(lambda: stop_process(child)):
            stdout, stderr = child.communicate(stdin or None, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"`{argv[0]}` did not end within {timeout:g} seconds.") from None
    finally:
        stop_process(child)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe:
                pipe.close()
    completed = CompletedCommand(
        argv=tuple(argv),
        returncode=child.returncode,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
    )
    if completed.returncode != 0:
        raise CommandFailed(completed)
    return completed


def stream_stderr(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    on_silence: Callable[[], object] = lambda: None,
    silence: float | None = None,
) -> Iterator[str]:
    """Run a program and yield what it writes on stderr, in pieces as they come.

    `on_silence` is called whenever it has written nothing for `silence` seconds: what it raises ends the program.
    Raises `CommandFailed` after the last piece when its status is not 0. When the consumer leaves early
    (an exception, Ctrl-C), the program is asked to end and waited for.
    """
    # A group of its own: the terminal's Ctrl-C reaches us alone, and we decide how the child ends.
    child = subprocess.Popen(
        list(argv),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stderr is not None  # noqa: S101  (stderr=PIPE above)
    # A letter may be cut in two by the end of a piece.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        with on_cancel(lambda: stop_process(child)):
            while piece := _read(child.stderr.fileno(), on_silence, silence):
                yield decoder.decode(piece)
            if rest := decoder.decode(b"", final=True):
                yield rest
            child.wait()
    finally:
        stop_process(child)
        child.stderr.close()
    if child.returncode != 0:
        raise CommandFailed(CompletedCommand(argv=tuple(argv), returncode=child.returncode, stdout="", stderr=""))


def _read(stream: int, on_silence: Callable[[], object], silence: float | None) -> bytes:
    while not select.select([stream], [], [], silence)[0]:
        on_silence()
    return os.read(stream, 65536)


def stop_process(child: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> None:
    """Ask a child and those it started (its process group) to end, wait for it, and kill them only if it does not.

    One that the kernel does not let go of, as a driver that hangs does with its programs, is not waited for any longer.
    """
    if child.poll() is not None:
        return
    os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(seconds)


def start_daemon(argv: Sequence[str], *, log: Path) -> int:
    """Start a program that outlives us, its output appended to `log`; returns its process id."""
    with log.open("ab") as sink:
        child = subprocess.Popen(list(argv), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    # Reaps the daemon if it dies while we are still here, so that its id does not look alive.
    threading.Thread(target=child.wait, daemon=True).start()
    return child.pid


def replace_process(argv: Sequence[str], *, env: Mapping[str, str]) -> NoReturn:
    """Become another program: the terminal, the signals and the exit status are its own from here on.

    Raises `FileNotFoundError` when it does not exist.
    """
    # Python ignores these, and a program inherits what is ignored; the same two as subprocess restores.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606  (no shell: there is nothing to quote)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block has ended, then deliver them.

    For the few moves that must happen together, such as giving an image all of its tags. In another thread than the
    main one there is nothing to hold back: Python delivers signals to the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, FrameType | None]] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append((number, frame))

    previous = {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    for held_number, _ in held:
        signal.raise_signal(held_number)

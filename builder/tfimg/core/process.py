"""Start, stop and replace programs; the only module that does."""

import codecs
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from tfimg.core.cancellation import on_cancel, start_limited

CLEAN_UP_SECONDS = 20.0  # an engine removes a container or an image within seconds; one that hangs does not
STOP_SECONDS = 20.0  # seconds between SIGTERM and SIGKILL. BuildKit cancels a running step within 3 s (measured)


def last_line(text: str) -> str:
    """Return the last line of a program's output that is not blank; empty without one."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


class CommandFailed(subprocess.CalledProcessError):
    """A program ended with a status other than 0; callers translate it into a `TfimgError`."""

    def __str__(self) -> str:
        return f"{self.cmd[0]} exited with {self.returncode}: {(self.stderr or '').strip()}"


def python_module_command(name: str) -> list[str]:
    """Return the arguments that run a Python module with this interpreter.

    Without -P, Python would import that module, and those that it imports, from the current folder first.
    """
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", name]


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: bytes | int = b"",
) -> str:
    """Run a program and return its output; undecodable bytes are replaced. `stdin` may be an open file's descriptor.

    Raises `CommandFailed` for a status other than 0, `FileNotFoundError` if it does not exist, and `TimeoutError` with
    a message after `timeout` seconds.
    """
    given, source = (None, stdin) if isinstance(stdin, int) else (stdin or None, subprocess.DEVNULL)
    source = subprocess.PIPE if given else source
    child = _start(argv, env=env, cwd=cwd, stdin=source, stdout=subprocess.PIPE)
    try:
        with on_cancel(lambda: stop_process(child)):
            stdout, stderr = child.communicate(given, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"`{argv[0]}` did not end within {timeout:g} seconds.") from None
    finally:
        stop_process(child)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe:
                pipe.close()
    output = stdout.decode(errors="replace")
    if child.returncode != 0:
        raise CommandFailed(child.returncode, argv, output, stderr.decode(errors="replace"))
    return output


def stream_stderr(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    on_silence: Callable[[], object] = lambda: None,
    silence: float | None = None,
) -> Generator[str, None, None]:
    """Run a program and yield its stderr in chunks as they arrive.

    `on_silence` is called after every `silence` seconds without output and may raise to end the program. Raises
    `CommandFailed` after the last chunk for a status other than 0. Closing the iterator stops the program.
    """
    child = _start(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert child.stderr is not None  # noqa: S101  (a pipe)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a chunk may end inside of a character
    try:
        with on_cancel(lambda: stop_process(child)):
            while True:
                while not select.select([child.stderr], [], [], silence)[0]:
                    on_silence()
                chunk = os.read(child.stderr.fileno(), 65536)
                if not chunk:
                    break
                yield decoder.decode(chunk)
            if rest := decoder.decode(b"", final=True):
                yield rest
            child.wait()
    finally:
        stop_process(child)
        child.stderr.close()
    if child.returncode != 0:
        raise CommandFailed(child.returncode, argv)


def _start(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, with stderr in a pipe.

    The terminal's Ctrl-C reaches only tfimg, which decides how the program ends; one that cleans up (mmdebstrap, apt)
    gets the time to.
    """
    return subprocess.Popen(list(argv), stderr=subprocess.PIPE, start_new_session=True, **options)


def stop_process(child: subprocess.Popen[bytes], seconds: float = STOP_SECONDS) -> None:
    """Terminate the process group of a child and wait; kill it after `seconds`.

    Gives up on a process that the kernel does not release, for example after a driver hangs.
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
    """Start a program that outlives tfimg, append its output to `log`, and return its process id."""
    with log.open("ab") as sink:
        child = subprocess.Popen(list(argv), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    # Reap a daemon that ends before tfimg, so that its process id does not look alive.
    threading.Thread(target=child.wait, daemon=True).start()
    return child.pid


def replace_process(argv: Sequence[str], *, env: Mapping[str, str]) -> NoReturn:
    """Replace tfimg by another program (execvpe). Raises `FileNotFoundError` if it does not exist."""
    # Python ignores these signals, and the program would inherit that; subprocess restores the same two.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606  (no shell: there is nothing to quote)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM only after the block, for steps that belong together.

    Does nothing outside of the main thread, which alone receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def record(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    previous = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    for received_number in received:
        signal.raise_signal(received_number)


def clean_up(work: Callable[[], object], seconds: float = CLEAN_UP_SECONDS) -> None:
    """Do what another Ctrl-C must not interrupt. Raises as the work; after `seconds`, it goes on in its own thread."""
    with defer_signals(), suppress(TimeoutError):
        start_limited(work, seconds)()

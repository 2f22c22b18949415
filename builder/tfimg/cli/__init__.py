"""The command line: parse it, run one command, report its error.

The only package that prints, reads the environment and exits. Functions import what `tfimg --version` does without, and
a command imports its own module, so that both start fast.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from tfimg import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from tfimg.cli.output.progress import LateLine
    from tfimg.core.errors import TfimgError
    from tfimg.project.services import Services

MAX_VALUE = 200
"""Characters of a value of the command line that a message repeats whole: two to three lines of a terminal."""

SILENT_SECONDS = 1.0
"""Time after an interruption from which on a terminal shows that the program is stopping."""

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

_interrupted = False
"""Whether a signal interrupted the program: a library may have turned the interruption into another error."""

_stopping: LateLine | None = None
"""What a terminal shows while an interrupted program stops."""

_has_stopped = False
"""Whether that is over."""


def entrypoint() -> NoReturn:
    """The `tfimg` program."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)
    if sys.stderr is None:  # closed by the parent process; `print` would take standard output in its place
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stdout is None:
        _leave_stdout()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no ≥ is no reason to fail
    try:
        code = main(sys.argv[1:], os.environ)
        sys.stdout.flush()
    except KeyboardInterrupt:  # another one, while the first was reported
        from tfimg.core.errors import ExitCode, Interrupted

        _exit_on_signals(ExitCode.INTERRUPTED)
        code = _report(Interrupted())
    except OSError as error:
        code = code or _report(_translate(error, os.environ))
        _leave_stdout()
    _exit_on_signals(code)
    if _interrupted:  # else Python would wait for threads that wait for a server, and a signal meanwhile would kill it
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _exit_on_signals(code: int) -> None:
    """End at the next signal: Python waits for threads at its end, and prints the traceback of an interruption."""
    for number in SIGNALS:
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, lambda *_: os._exit(code))


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    # All signals take the path of KeyboardInterrupt, so that every stage cleans up.
    global _interrupted
    if sys.stderr.isatty() and not _interrupted:
        import threading

        # It imports in its own thread: this one may be in the midst of an import.
        notice = threading.Timer(SILENT_SECONDS, _show_stopping)
        notice.daemon = True
        notice.start()
    _interrupted = True
    raise KeyboardInterrupt


def _show_stopping() -> None:
    """Show on the terminal that the program is stopping, until it has."""
    global _stopping
    from tfimg.cli.output.progress import LateLine

    _stopping = LateLine("Stopping what runs", seconds=0)
    if _has_stopped:
        _stopping.end()


def _end_stopping() -> None:
    global _has_stopped
    _has_stopped = True
    if _stopping:
        _stopping.end()


def main(argv: Sequence[str], environ: Mapping[str, str], services: Services | None = None) -> int:
    """Run one command and return its exit code; all messages are printed, and outside text in them is escaped.

    `services` are the machine's connections; tests pass others.
    """
    if {*argv[:1]} & {"--version", "-V"}:
        with contextlib.suppress(OSError):  # the next attempt reports it
            print(f"tfimg {__version__}", flush=True)
            return 0
    from tfimg.cli.output.streams import escaped_streams
    from tfimg.core.errors import Interrupted, TfimgError

    with escaped_streams():
        try:
            return _run_command(argv, environ, services)
        except BrokenPipeError:
            # The reader of our output has exited, as `head` does.
            _leave_stdout()
            return 141
        except KeyboardInterrupt as interruption:
            return _report(Interrupted(*interruption.args), argv)
        except Exception as error:
            if environ.get("TFIMG_DEBUG") and not isinstance(error, TfimgError):
                import traceback

                traceback.print_exc()
            is_other = _interrupted and not isinstance(error, Interrupted)
            return _report(Interrupted() if is_other else _translate(error, environ), argv)
        finally:
            _end_stopping()


def _translate(error: Exception, environ: Mapping[str, str]) -> TfimgError:
    """Return the error for an exception; a full disk without a file's name is that of the output, or of a folder."""
    from pathlib import Path

    from tfimg.core.failures import is_full_disk, to_tfimg_error
    from tfimg.core.paths import state_folder

    output = os.path.realpath("/proc/self/fd/1")
    is_unnamed = isinstance(error, OSError) and error.filename is None and is_full_disk(error)
    if is_unnamed and (Path(output).is_file() or output == "/dev/full"):  # not a terminal or a pipe
        error.filename = output  # type: ignore[attr-defined]
    return to_tfimg_error(error, [state_folder(environ), Path(environ.get("TMPDIR") or "/tmp")])  # noqa: S108


def _run_command(argv: Sequence[str], environ: Mapping[str, str], services: Services | None) -> int:
    words = _own_words(argv)
    if words[:1] in (["--version"], ["-V"]):
        print(f"tfimg {__version__}", flush=True)
        return 0
    if {"--help", "-h"} & set(words) or words[:1] == ["help"]:
        from tfimg.cli.app import help_text, require_command

        named = [word for word in words if word != "help" and not word.startswith("-")]
        require_command(named)
        print(help_text(named, with_all="--all" in words), end="")
        return 0
    if words[:1] == ["__complete"]:
        from tfimg.cli.app import complete

        for value, description in complete(argv[1:]):
            print(f"{value}\t{description}")
        return 0
    from tfimg.cli.app import parse

    command = parse(argv)
    from tfimg.cli.context import Context
    from tfimg.core.errors import TfimgError
    from tfimg.project.services import Services

    context = Context(services or Services(environ=environ), json=command.json, quiet=command.quiet)
    try:
        return command.run(context)
    except TfimgError as error:
        if context.file_keys:
            from tfimg.cli.options import name_keys

            error.args = (name_keys(str(error), context.file_keys),)
        raise


def _leave_stdout() -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def _report(error: TfimgError, argv: Sequence[str] = ()) -> int:
    _end_stopping()
    message = _shorten_values(str(error), argv)
    if "--json" in _own_words(argv):  # also of a command line that cannot be parsed
        import json

        document = {"event": "error", "error": type(error).__name__, "message": message}
        try:
            print(json.dumps({**document, "exit_code": error.exit_code, **error.details}), flush=True)
        except OSError:  # standard output failed; standard error reports it below
            _leave_stdout()
    text = f"tfimg: {message}"
    if sys.stderr.isatty():
        from tfimg.cli.output.streams import fold_lines
        from tfimg.core.text import escape_unprintable

        text = fold_lines(escape_unprintable(text))
    print(f"{text}\n", end="", file=sys.stderr)  # at once: a second signal may come between two writes
    return error.exit_code


def _own_words(argv: Sequence[str]) -> list[str]:
    """Return the words before `--`: those after it are for another program."""
    return list(itertools.takewhile(lambda word: word != "--", argv))


def _shorten_values(message: str, argv: Sequence[str]) -> str:
    """Cut the values of the command line that a message repeats, where they are too long to read."""
    import shlex

    for word in argv:
        for value in (word, word.partition("=")[2]):
            if len(value) > MAX_VALUE:
                cut = f"{value[: MAX_VALUE // 2]}…{value[-MAX_VALUE // 4 :]}"
                for write in (str, repr, shlex.quote, os.path.normpath):
                    message = message.replace(write(value), write(cut))
    return message

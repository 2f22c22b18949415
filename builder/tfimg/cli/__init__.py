"""argv → typed arguments → one function that names its stages in order.

The only floor that prints, reads the environment and exits. Heavy modules are imported by the command that
needs them, so that `tfimg --version` and completion start fast.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from tfimg import __version__
from tfimg.cli.streams import escaped_streams
from tfimg.errors import FileError, TfimgError, of_a_defect, of_an_interruption, of_the_system

if TYPE_CHECKING:
    from tfimg.cli.edge import Edge

_interrupted = False
"""Whether somebody asked the program to end: a library may have made another error of the interruption."""


def entrypoint() -> NoReturn:
    """The `tfimg` program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)
    if sys.stderr is None:  # closed by the parent process; `print` would take standard output in its place
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stdout is None:
        _leave_stdout()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no ≥ is no reason to fail
    # Asked so often that the parser of all commands would be too slow.
    version = sys.argv[1:] == ["--version"]
    code = 0 if version else main(sys.argv[1:], os.environ)
    try:
        if version:
            print(f"tfimg {__version__}")
        sys.stdout.flush()
    except OSError as error:
        code = code or _report(of_the_system(error), as_json=False)
        _leave_stdout()
    sys.exit(code)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    # One way out for all signals: every stage cleans up behind itself.
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def main(argv: Sequence[str], environ: Mapping[str, str], edge: Edge | None = None) -> int:
    """Run one command and return its exit code; all messages are printed, and outside text in them is escaped.

    `edge` is where the command touches the world; the real one if it is not given.
    """
    with escaped_streams():
        return _run(argv, environ, edge)


def _run(argv: Sequence[str], environ: Mapping[str, str], edge: Edge | None) -> int:
    try:
        from tfimg.cli.parser import build_parser

        arguments = build_parser().parse_args(argv)
    except KeyboardInterrupt:
        return _report(of_an_interruption(), as_json=False)
    try:
        from tfimg.cli.context import Context
        from tfimg.cli.edge import Edge

        module, function = arguments.command.split(":")
        command = getattr(importlib.import_module(f"tfimg.cli.{module}"), function)
        code: int = command(Context(arguments, environ, edge or Edge()))
        return code
    except TfimgError as error:
        return _report(of_an_interruption() if _interrupted else error, arguments.json)
    except KeyboardInterrupt:
        return _report(of_an_interruption(), arguments.json)
    except BrokenPipeError:
        # Whoever read our output has left, as `head` does; nothing is left to say, to nobody.
        _leave_stdout()
        return 141
    except UnicodeDecodeError as error:
        return _report(
            FileError(
                f"A file is not UTF-8 at byte {error.start}: {error.object[max(0, error.start - 20) : error.start]!r}…",
                next_step="Write it anew as UTF-8.",
            ),
            arguments.json,
        )
    except OSError as error:
        return _report(of_the_system(error), arguments.json)
    except Exception as error:
        if _interrupted:
            return _report(of_an_interruption(), arguments.json)
        if environ.get("TFIMG_DEBUG"):
            traceback.print_exc()
        return _report(of_a_defect(error), arguments.json)


def _leave_stdout() -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def _report(error: TfimgError, as_json: bool) -> int:
    if as_json:
        import json

        document = {
            "event": "error",
            "error": type(error).__name__,
            "message": str(error),
            "exit_code": error.exit_code,
            **error.details,
        }
        try:
            print(json.dumps(document), flush=True)
        except OSError:  # it was this that failed; people are told below
            _leave_stdout()
    print(f"tfimg: {error}", file=sys.stderr)
    return error.exit_code

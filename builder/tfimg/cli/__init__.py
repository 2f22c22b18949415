"""argv → typed arguments → one function that names its stages in order.

The only floor that prints, reads the environment and exits. Heavy modules are imported by the command that
needs them, so that `tfimg --version` and completion start fast.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NoReturn

from tfimg.cli.edge import Edge
from tfimg.cli.parser import build_parser
from tfimg.errors import InternalError, Interrupted, TfimgError


def entrypoint() -> NoReturn:
    """The `tfimg` program."""
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main(sys.argv[1:], os.environ))


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    # The same way out as Ctrl-C: every stage cleans up behind itself.
    raise KeyboardInterrupt


def main(argv: Sequence[str], environ: Mapping[str, str], edge: Edge | None = None) -> int:
    """Run one command and return its exit code; all messages are printed.

    `edge` is where the command touches the world; the real one if it is not given.
    """
    arguments = build_parser().parse_args(argv)
    try:
        from tfimg.cli.context import Context

        module, function = arguments.command.split(":")
        command = getattr(importlib.import_module(f"tfimg.cli.{module}"), function)
        code: int = command(Context(arguments, environ, edge or Edge()))
        return code
    except TfimgError as error:
        return _report(error, arguments.json)
    except KeyboardInterrupt:
        return _report(
            Interrupted("Interrupted: nothing was tagged.", next_step="Finished build steps are kept."),
            arguments.json,
        )
    except BrokenPipeError:
        # Whoever read our output has left, as `head` does; nothing is left to say, to nobody.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        return 141
    except Exception as error:
        if environ.get("TFIMG_DEBUG"):
            raise
        return _report(
            InternalError(
                f"tfimg has a defect: {type(error).__name__}: {error}.",
                next_step="Please report it with the output of the same command under TFIMG_DEBUG=1.",
            ),
            arguments.json,
        )


def _report(error: TfimgError, as_json: bool) -> int:
    if as_json:
        import json

        document = {"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
        print(json.dumps(document))
    print(f"tfimg: {error}", file=sys.stderr)
    return error.exit_code

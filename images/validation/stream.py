"""Write events to standard output, one JSON object per line, and nothing else."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Emit = Callable[[dict[str, Any]], None]


def claim_stdout() -> Emit:
    """Keep standard output for events, and send whatever else writes to it to standard error.

    The descriptor itself is moved, because C++ libraries and child processes do not go through `sys.stdout`.
    """
    sys.stdout.flush()
    emit = emitter(os.dup(1))
    os.dup2(2, 1)
    return emit


def emitter(descriptor: int) -> Emit:
    """Return a function that writes events to a file descriptor, without buffering."""
    stream = os.fdopen(descriptor, "w", encoding="ascii", newline="\n")

    def emit(event: dict[str, Any]) -> None:
        print(json.dumps(jsonable(event)), file=stream, flush=True)

    return emit


def jsonable(value: object) -> Any:
    """Return a value as strict JSON: NaN and NumPy scalars become text, so that the result is not lost."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, str):  # of undecodable file names, halves of characters are left
        return value.encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, (bool, int)):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)

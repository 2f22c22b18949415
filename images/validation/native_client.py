"""Run `native.py` in a process of its own: the shared libraries that it calls may crash or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from check_runner import describe_exit
from contract import CheckFailed
from emulation import extend

if TYPE_CHECKING:
    from typing import Any

# Loading the gigabyte of TensorFlow 2.18 and later takes 2 s; the rest is for a cold disk.
SECONDS = 120
KEPT_LINES = 20
SCRIPT = Path(__file__).with_name("native.py")


@lru_cache(maxsize=None)
def ask(question: str, *arguments: str, seconds: float | None = None) -> Any:
    """Return the answer of `native.py`, which prints it as one line of JSON; answers are cached.

    The process is ended after `seconds`; None: SECONDS. Raises CheckFailed if it crashes, does not end in time, or
    prints anything else; the last lines of its output are reported.
    """
    # At this level TensorFlow logs which libraries it cannot open.
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_MAX_VLOG_LEVEL": "0"}
    command = [sys.executable, str(SCRIPT), question, *arguments]
    limit = extend(SECONDS if seconds is None else seconds)
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit, env=env)
    except subprocess.TimeoutExpired:
        raise CheckFailed(
            f"expected an answer about {question} within {limit:g} s, found none: a library hangs, or the disk is "
            "slow; try again"
        ) from None
    last = done.stderr.decode(errors="replace").strip().splitlines()[-KEPT_LINES:]
    if done.returncode:
        raise CheckFailed(
            f"expected an answer about {question}, found {describe_exit(done.returncode)}: "
            f"{last[-1] if last else 'there was no output'}; see its output",
            output=last,
        )
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise CheckFailed(
            f"expected an answer about {question} in JSON, found {done.stdout[:80]!r}: the suite is damaged",
            output=last,
        ) from None

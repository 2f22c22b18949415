"""Questions that may crash or hang, asked in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed

if TYPE_CHECKING:
    from typing import Any

# Loading the gigabyte of TensorFlow 2.18 and later takes 2 s; the rest is for a cold disk.
SECONDS = 60
KEPT_LINES = 20


@lru_cache(maxsize=None)
def ask(question: str, *arguments: str) -> Any:
    """The answer of `native.py`, read from JSON; the same question is asked once.

    Raises CheckFailed when the process crashes or does not end in time; the last lines that it wrote are evidence.
    """
    command = [sys.executable, str(Path(__file__).with_name("native.py")), question, *arguments]
    # What TensorFlow says of libraries that it cannot open, it says at this level.
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_MAX_VLOG_LEVEL": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=env)
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"expected an answer about {question} within {SECONDS} s, found none") from None
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        last = done.stderr.strip().splitlines()[-KEPT_LINES:]
        raise CheckFailed(
            f"expected an answer about {question}, found that the process ended with {how}: "
            f"{last[-1] if last else 'it said nothing'}",
            output=last,
        )
    return json.loads(done.stdout.splitlines()[-1])

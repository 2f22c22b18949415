"""Questions that may crash or hang, or need a fresh process, asked in a process of their own.

`native.py` answers about shared libraries, without TensorFlow; `fresh.py` about TensorFlow before its first use.
"""

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
    from collections.abc import Mapping
    from typing import Any

# Loading the gigabyte of TensorFlow 2.18 and later takes 2 s; the rest is for a cold disk.
SECONDS = 120
KEPT_LINES = 20
HUNG = "a library hangs, or the disk is slow; try again"
SCRIPT = Path(__file__).with_name("native.py")


@lru_cache(maxsize=None)
def ask(question: str, *arguments: str) -> Any:
    """The answer of `native.py`; the same question is asked once. Raises CheckFailed as `answer` does."""
    # What TensorFlow says of libraries that it cannot open, it says at this level.
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_MAX_VLOG_LEVEL": "0"}
    return answer(SCRIPT, question, *arguments, seconds=SECONDS, env=env, hung=HUNG, see="its output")


def answer(
    script: Path, question: str, *arguments: str, seconds: float, env: Mapping[str, str], hung: str, see: str
) -> Any:
    """What a script answers, read from the one line of JSON that it prints.

    Raises CheckFailed when the process crashes, does not end in time (`hung` says why that may be), or answers with
    something else; the last lines that it wrote are evidence.
    """
    command = [sys.executable, str(script), question, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, env=env)
    except subprocess.TimeoutExpired:
        raise CheckFailed(
            f"expected an answer about {question} within {seconds} s, found none: {hung}"
        ) from None
    last = done.stderr.decode(errors="replace").strip().splitlines()[-KEPT_LINES:]
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise CheckFailed(
            f"expected an answer about {question}, found {how}: "
            f"{last[-1] if last else 'it said nothing'}; see {see}",
            output=last,
        )
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise CheckFailed(
            f"expected an answer about {question} in JSON, found {done.stdout[:80]!r}: the suite is damaged",
            output=last,
        ) from None

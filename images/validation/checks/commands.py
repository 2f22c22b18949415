"""Commands that TensorFlow and TensorBoard install, each started as a user starts it."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from contract import CheckFailed
from emulation import extend

from .scripts import script

if TYPE_CHECKING:
    from contract import Facts, Measured

# Of the others, import_pb_to_tensorboard and estimator_ckpt_converter end with a TypeError in every release from 2.10
# on, and saved_model_cli has a check of its own.
COMMANDS = {"tensorboard": "--version", "tf_upgrade_v2": "--help", "tflite_convert": "--help"}
# Each imports TensorFlow, which takes seconds; the rest is for a cold disk.
SECONDS = 60
KEPT_LINES = 20


def start(_facts: Facts) -> Measured:
    """`tensorboard`, `tf_upgrade_v2` and `tflite_convert` are on PATH, start, and answer."""
    return {"seconds": {name: _seconds(name, option) for name, option in COMMANDS.items()}}


def _seconds(name: str, option: str) -> float:
    """How long the answer takes. Raises CheckFailed when there is none."""
    path = script(name, "it was removed")
    began = time.monotonic()
    try:
        done = subprocess.run([path, option], capture_output=True, text=True, timeout=extend(SECONDS))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckFailed(f"expected `{name} {option}` to run, found {error}: reinstall it", path=path) from None
    if done.returncode or not done.stdout.strip():
        last = done.stderr.splitlines()[-KEPT_LINES:]
        raise CheckFailed(
            f"expected `{name} {option}` to answer, found exit status {done.returncode} "
            f"({last[-1] if last else 'there was no output'}): a package that it imports is missing or does not fit",
            path=path,
            output=last,
        )
    return round(time.monotonic() - began, 3)

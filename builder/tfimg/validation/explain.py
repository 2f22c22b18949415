"""Known failures, from the suite's own table, so that the host and the image explain them alike."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from tfimg.core.errors import BuildError, EngineError, NetworkError
from tfimg.validation.report import Explanation

HARMLESS = "harmless"
"""The fault of a message that is not a failure."""

FAULT_NAMES = {
    "image": "the image",
    "host": "the machine",
    "request": "what was asked for",
    HARMLESS: "nothing: it is harmless",
}


def explain(text: str, *, suite: Path) -> tuple[Explanation, ...]:
    """Return the known failures in a text, the likeliest root cause first, harmless ones last.

    `suite` is the folder of the suite (`Workspace.validation`).
    """
    return tuple(Explanation(**known.to_json()) for known in import_suite_module(suite, "explain").explain(text))


def find_cause(text: str, *, suite: Path) -> Explanation | None:
    """Return the likeliest root cause in a text; None if nothing known is in it, or only harmless messages."""
    return next((known for known in explain(text, suite=suite) if known.fault != HARMLESS), None)


@contextmanager
def explain_errors(suite: Path) -> Iterator[None]:
    """Add the cause and the remedy to errors of the build or the engine for which they are known."""
    try:
        yield
    except (BuildError, EngineError, NetworkError) as error:
        known = find_cause(error.what, suite=suite)
        if known is None:
            raise
        raise type(error)(error.what, next_step=f"{known.cause} {known.remedy}") from None


_IMPORT_LOCK = threading.Lock()


@cache
def import_suite_module(suite: Path, name: str) -> ModuleType:
    """Import a module of the suite. Its modules import each other by their bare names."""
    with _IMPORT_LOCK:
        sys.path.insert(0, str(suite))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(suite))

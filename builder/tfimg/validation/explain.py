"""The suite's table of known failures, for the host: the very module that an image asks, so that both say the same."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from tfimg.core.errors import BuildError, EngineError, NetworkError, TfimgError
from tfimg.validation.report import Explanation

HARMLESS = "harmless"
"""The fault of what is no failure."""

FAULT_NAMES = {
    "image": "the image",
    "host": "the machine",
    "request": "what was asked for",
    HARMLESS: "nothing: it is harmless",
}
"""What is at fault, in words."""


def explain(text: str, *, suite: Path) -> tuple[Explanation, ...]:
    """What is known about a text, the likeliest root cause first; what is harmless comes last.

    `suite` is the folder of the suite (`Workspace.validation`).
    """
    return tuple(Explanation(**one.to_json()) for one in _module(suite).explain(text))


def find_cause(text: str, *, suite: Path) -> Explanation | None:
    """The likeliest root cause of what a text tells; None when nothing known is in it, or only what is harmless."""
    return next((one for one in explain(text, suite=suite) if one.fault != HARMLESS), None)


@contextmanager
def explaining(suite: Path) -> Iterator[None]:
    """Add the cause and the remedy to errors of the build or the engine for which they are known."""
    try:
        yield
    except TfimgError as error:
        raise explained(error, suite=suite) from None


def explained(error: TfimgError, *, suite: Path) -> TfimgError:
    """Return an error of the build or the engine with its cause and remedy as the next step, where they are known."""
    if not isinstance(error, BuildError | EngineError | NetworkError):
        return error
    with _LOADING:
        known = find_cause(error.what, suite=suite)
    return type(error)(error.what, next_step=f"{known.cause} {known.remedy}") if known else error


_LOADING = threading.Lock()


@cache
def _module(suite: Path) -> ModuleType:
    # The suite's modules import each other by their bare names, as files beside each other do.
    sys.path.insert(0, str(suite))
    try:
        return importlib.import_module("explain")
    finally:
        sys.path.remove(str(suite))

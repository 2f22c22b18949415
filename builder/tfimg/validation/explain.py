"""The suite's table of known failures, for the host: the very module that an image asks, so that both say the same."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

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


@cache
def _module(suite: Path) -> ModuleType:
    # The suite's modules import each other by their bare names, as files beside each other do.
    sys.path.insert(0, str(suite))
    try:
        return importlib.import_module("explain")
    finally:
        sys.path.remove(str(suite))

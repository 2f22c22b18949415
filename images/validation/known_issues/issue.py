"""The type of a known failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple


@dataclass(frozen=True)
class KnownIssue:
    """A failure that is recognised by the text that it prints.

    A pattern is a regular expression over the whole text, in which `.` does not match a line end. It is as narrow as
    the messages allow, because a wrong cause is worse than none, and its repetitions are bounded, because logs are of
    any size. `fault` is who can correct it: the `image`, the `host` (the machine, its engine or its network), the
    `request` (which cannot be met), or `harmless`. `needs` is another pattern that the text must have. `leads_to` names
    known issues that are consequences of this one. `secondary`: other causes come before it, because TensorFlow
    continues without a GPU. `generic`: it only says that something failed, and is left out beside another cause. Where
    `done` matches the log, the fix has been tried, and `then` is the next one. `source` is where it was reported:
    owner/repository#number.
    """

    name: str
    fault: str
    patterns: Tuple[str, ...]
    cause: str
    fix: str
    source: str = ""
    needs: str = ""
    leads_to: Tuple[str, ...] = ()
    secondary: bool = False
    generic: bool = False
    done: str = ""
    then: str = ""

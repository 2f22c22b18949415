"""Events of builds, validations and publications: frozen values, each of which has a form as a JSON object.

Events of one package alone stand beside their data: `CheckResult` in `validation/report.py`, `ImageResult` in `build/`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from tfimg.core.text import to_strict_json


class Event:
    """Something that happened. `kind` is the name of the event in JSON."""

    __slots__ = ()

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the event as a JSON object that every parser accepts."""
        return {"event": self.kind, **to_strict_json(asdict(self))}  # type: ignore[call-overload]


OnEvent = Callable[[Event], None]


def ignore(_: Event) -> None:
    """Ignore an event: the default of parameters of type `OnEvent`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InfoEvent(Event):
    """A sentence for people about a choice that the program made; programs do not need it.

    `cause` is what another program said of it, for those who ask for details.
    """

    kind = "info"
    text: str
    cause: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WarningEvent(Event):
    """A sentence that neither people nor programs may miss."""

    kind = "warning"
    text: str


StepState = Literal["started", "done", "cached", "damaged", "failed", "interrupted"]
"""`damaged`: a cached file has other content than was written; the step is made again. `interrupted`: it was cancelled,
by the user or because another step failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEvent(Event):
    """A step of a build or publication changed its state; `seconds` is its duration once it has ended."""

    kind = "step"
    step: str
    state: StepState
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEvent(Event):
    """A line that a step wrote."""

    kind = "log"
    step: str
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressEvent(Event):
    """Bytes that a step has moved so far; `total` is 0 where it is not known."""

    kind = "progress"
    step: str
    what: str
    current: int
    total: int


BuildEvent = StepEvent | LogEvent | ProgressEvent  # what an engine reports of a build


@dataclass(frozen=True, kw_only=True, slots=True)
class ChecksPlanned(Event):
    """The suite has named the checks that it will run."""

    kind = "checks-planned"
    checks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckStarted(Event):
    """A check begins. Its end is a `CheckResult`."""

    kind = "check-started"
    check: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageEvent(Event):
    """An event of one of several images."""

    kind = "image"
    identifier: str
    event: Event

    def to_json(self) -> dict[str, Any]:
        """Return the image's event as a JSON object with the image's identifier."""
        document = self.event.to_json()
        return {"event": document["event"], "identifier": self.identifier, **document}


def one_at_a_time(on_event: OnEvent) -> OnEvent:
    """Return a function that several threads may call."""
    lock = threading.Lock()

    def report(event: Event) -> None:
        with lock:
            on_event(event)

    return report


@contextmanager
def timed_step(step: str, on_event: OnEvent) -> Iterator[None]:
    """Report the block as a step."""
    start = time.monotonic()
    on_event(StepEvent(step=step, state="started"))
    yield
    on_event(StepEvent(step=step, state="done", seconds=round(time.monotonic() - start, 3)))

"""Report the stages of a publication as events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tfimg.core.events import Event, OnEvent, ProgressEvent, StepEvent

MIN_INTERVAL = 1.0
"""Seconds between two progress events of a stage: engines report each layer several times a second."""


@contextmanager
def stage(on_event: OnEvent, step: str) -> Iterator[OnEvent]:
    """Report the start and the end of a stage; yield a function for the events of what runs in it."""
    start = time.monotonic()
    on_event(StepEvent(step=step, state="started"))
    try:
        yield _StageEvents(on_event, step)
    except BaseException:
        on_event(StepEvent(step=step, state="failed", seconds=round(time.monotonic() - start, 3)))
        raise
    on_event(StepEvent(step=step, state="done", seconds=round(time.monotonic() - start, 3)))


class _StageEvents:
    """Passes events on; progress at most once per interval and with the name of the stage."""

    def __init__(self, on_event: OnEvent, step: str) -> None:
        self._on_event, self._step = on_event, step
        self._last_progress = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, ProgressEvent):
            now = time.monotonic()
            if now - self._last_progress < MIN_INTERVAL:
                return
            self._last_progress = now
            event = replace(event, step=self._step)
        self._on_event(event)

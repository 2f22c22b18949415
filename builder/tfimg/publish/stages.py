"""Report the stages of a publication as events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tfimg.core.errors import Interrupted
from tfimg.core.events import Event, OnEvent, ProgressEvent, StepEvent, StepState

MIN_INTERVAL = 1.0
"""Seconds between two progress events of a stage: engines report each layer several times a second."""


@contextmanager
def stage(on_event: OnEvent, step: str) -> Iterator[OnEvent]:
    """Report the start and the end of a stage; yield a function for the events of what runs in it.

    It passes on progress at most once per interval, with the name of the stage.
    """
    start, last_progress = time.monotonic(), 0.0

    def pass_on(event: Event) -> None:
        nonlocal last_progress
        if isinstance(event, ProgressEvent):
            now = time.monotonic()
            if now - last_progress < MIN_INTERVAL:
                return
            last_progress, event = now, replace(event, step=step)
        on_event(event)

    on_event(StepEvent(step=step, state="started"))
    try:
        yield pass_on
    except BaseException as error:
        state: StepState = "interrupted" if isinstance(error, KeyboardInterrupt | Interrupted) else "failed"
        on_event(StepEvent(step=step, state=state, seconds=round(time.monotonic() - start, 3)))
        raise
    on_event(StepEvent(step=step, state="done", seconds=round(time.monotonic() - start, 3)))

"""Decode the output of `docker buildx build --progress=rawjson`.

buildx 0.13 pretty-prints its JSON over many lines, later releases write one object per line, and plain error
text follows the last object: so objects are decoded one after another from a growing text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tfimg.core.events import BuildEvent, LogEvent, ProgressEvent, StepEvent, StepState


class RawJsonDecoder:
    """Yields events from text. `rest` is the text so far that is not JSON: buildx's own messages."""

    def __init__(self) -> None:
        self._buffer = ""
        self._json = json.JSONDecoder()
        self._steps: dict[str, str] = {}
        self._states: dict[str, StepState] = {}
        self.rest = ""

    def feed(self, text: str) -> Iterator[BuildEvent]:
        """Yield the events that are complete with this piece of text."""
        self._buffer += text
        while (status := self._next_object()) is not None:
            yield from self._events(status)

    def close(self) -> None:
        """Add the remaining text to `rest`."""
        self.rest += self._buffer
        self._buffer = ""

    def _next_object(self) -> dict[str, Any] | None:
        while self._buffer:
            start = self._buffer.lstrip()
            if start.startswith("{"):
                try:
                    value, end = self._json.raw_decode(start)
                except json.JSONDecodeError:
                    return None
                self._buffer = start[end:]
                return value if isinstance(value, dict) else None
            line, newline, after = start.partition("\n")
            if not newline:
                return None
            self.rest += line + newline
            self._buffer = after
        return None

    def _events(self, status: dict[str, Any]) -> Iterator[BuildEvent]:
        for vertex in status.get("vertexes") or ():
            self._steps[vertex["digest"]] = vertex["name"]
            state = _state(vertex)
            # BuildKit repeats itself; it also reopens a step for each thing that the step does.
            if state and self._states.get(vertex["digest"]) != state:
                self._states[vertex["digest"]] = state
                yield _stage_event(vertex, state)
        for item in status.get("statuses") or ():
            step = self._steps.get(item["vertex"], "")
            yield ProgressEvent(step=step, what=item["id"], current=item.get("current", 0), total=item.get("total", 0))
        for log in status.get("logs") or ():
            step = self._steps.get(log["vertex"], "")
            text = base64.b64decode(log.get("data") or "").decode(errors="replace")
            yield from (LogEvent(step=step, line=line) for line in text.splitlines())


def _state(vertex: dict[str, Any]) -> StepState | None:
    fields: tuple[tuple[str, StepState], ...] = (
        ("error", "failed"), ("cached", "cached"), ("completed", "done"), ("started", "started"),
    )  # fmt: skip
    if "canceled" in (vertex.get("error") or ""):
        return "interrupted"
    return next((state for field, state in fields if vertex.get(field)), None)


def _stage_event(vertex: dict[str, Any], state: StepState) -> StepEvent:
    seconds = None
    if state == "cached":
        seconds = 0.0
    elif state != "started" and vertex.get("started") and vertex.get("completed"):
        started, completed = map(datetime.fromisoformat, (vertex["started"], vertex["completed"]))
        seconds = (completed - started).total_seconds()
    return StepEvent(step=vertex["name"], state=state, seconds=seconds, error=vertex.get("error") or None)

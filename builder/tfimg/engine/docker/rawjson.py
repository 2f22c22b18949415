"""What `docker buildx build --progress=rawjson` writes → BuildEvents and the text that is none.

buildx 0.13 pretty-prints its JSON over many lines, later releases write one object per line, and plain error
text follows the last object: so objects are decoded one after another from a growing text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tfimg.engine.protocol import BuildEvent, LogEvent, ProgressEvent, StageEvent


class Decoder:
    """Feed it text; it yields events. `rest` is the text so far that is not JSON: buildx's own messages."""

    def __init__(self) -> None:
        self._buffer = ""
        self._json = json.JSONDecoder()
        self._steps: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self.rest = ""

    def feed(self, text: str) -> Iterator[BuildEvent]:
        """Events that are complete with this piece of text."""
        self._buffer += text
        while (status := self._next_object()) is not None:
            yield from self._events(status)

    def close(self) -> None:
        """No text will follow: what is left was no JSON."""
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
            yield from self._vertex(vertex)
        for item in status.get("statuses") or ():
            step = self._steps.get(item["vertex"], "")
            yield ProgressEvent(step=step, what=item["id"], current=item.get("current", 0), total=item.get("total", 0))
        for log in status.get("logs") or ():
            step = self._steps.get(log["vertex"], "")
            text = base64.b64decode(log.get("data") or "").decode(errors="replace")
            yield from (LogEvent(step=step, line=line) for line in text.splitlines())

    def _vertex(self, vertex: dict[str, Any]) -> Iterator[StageEvent]:
        name, state = vertex["name"], _state(vertex)
        # BuildKit repeats itself; it also reopens a step for each thing that the step does, which is news.
        if state is None or self._told.get(vertex["digest"]) == state:
            return
        self._told[vertex["digest"]] = state
        if state == "started":
            yield StageEvent(step=name, state="started")
        elif state == "cached":
            yield StageEvent(step=name, state="cached", seconds=0.0)
        elif state == "failed":
            yield StageEvent(step=name, state="failed", seconds=_seconds(vertex), error=vertex["error"])
        else:
            yield StageEvent(step=name, state="done", seconds=_seconds(vertex))


def _state(vertex: dict[str, Any]) -> str | None:
    if vertex.get("error"):
        return "failed"
    if vertex.get("cached"):
        return "cached"
    if vertex.get("completed"):
        return "done"
    return "started" if vertex.get("started") else None


def _seconds(vertex: dict[str, Any]) -> float | None:
    if not (vertex.get("started") and vertex.get("completed")):
        return None
    return (_instant(vertex["completed"]) - _instant(vertex["started"])).total_seconds()


def _instant(text: str) -> datetime:
    # Go writes nanoseconds; Python reads microseconds.
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction[:6].ljust(6, '0')}+00:00")

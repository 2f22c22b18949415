"""A build's steps in a few words, and which of them nobody wants to read about."""

from __future__ import annotations

import re

from tfimg.engine.protocol import StageEvent


def short(step: str) -> str:
    """A build step in a few words: `tensorflow`, `packages: copy`, `exporting to image`."""
    if match := re.match(r"\[(\S+)(?: \d+/\d+)?\] (\w+)", step):
        stage, verb = match[1], match[2]
        if verb == "COPY" and (source := re.search(r"--from=(\S+)", step)):
            return f"{source[1]}: copy into the image"
        if stage == "internal":
            return step.partition("] ")[2].partition(" for ")[0]
        return {
            "RUN": stage,
            "FROM": f"{stage}: pull",
            "WORKDIR": "image: settings",
            "ADD": f"{stage}: unpack",
        }.get(verb, f"{stage}: {verb.lower()}")
    return step


def dull(event: StageEvent) -> bool:
    """Whether a step that has ended is BuildKit's own housekeeping, in which nobody waited."""
    housekeeping = event.step.startswith("[internal]") or short(event.step).endswith((": link", ": pull", ": settings"))
    return event.state != "failed" and (event.seconds or 0) < 0.1 and housekeeping

"""Steps of BuildKit in a few words."""

from __future__ import annotations

import re

from tfimg.core.events import StepEvent


def short_step(step: str) -> str:
    """Return a build step in a few words: `tensorflow`, `packages: copy`, `exporting to image`."""
    match = re.match(r"\[(\S+)(?: \d+/\d+)?\] (\w+)", step)
    if not match:
        return step
    stage, instruction = match[1], match[2]
    if instruction == "COPY" and (source := re.search(r"--from=(\S+)", step)):
        return f"{source[1]}: copy into the image"
    if stage == "internal":
        return step.partition("] ")[2].partition(" for ")[0]
    words = {"RUN": stage, "FROM": f"{stage}: pull", "WORKDIR": "image: settings", "ADD": f"{stage}: unpack"}
    return words.get(instruction, f"{stage}: {instruction.lower()}")


def is_housekeeping(event: StepEvent) -> bool:
    """Return whether a step is BuildKit's own, took no time and did not fail."""
    internal = event.step.startswith("[internal]")
    return (
        event.state != "failed"
        and (event.seconds or 0) < 0.1
        and (internal or short_step(event.step).endswith((": link", ": pull", ": settings")))
    )

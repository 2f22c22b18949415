"""Candidates: names that images have in the engine until they are validated and get their tags.

A build holds the lock of a file for its candidate. The kernel releases the lock when the process ends, however it ends:
a file that can be locked is that of a killed build, and the next build on the same engine removes what it left there.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfimg.core.errors import EngineError, EngineUnavailable
from tfimg.core.events import Message, OnEvent
from tfimg.core.files import lock_existing, wait_for_lock
from tfimg.engine.protocol import Engine

CANDIDATE = "tfimg/candidate"
"""Repository of the candidates."""

OUTLIVED_SECONDS = 24 * 3600
"""Time in which the build of a killed process may still name its image: the program that builds it may live on."""


@contextmanager
def open_candidate(folder: Path, identifier: str, engine: Engine, host: str, on_event: OnEvent) -> Iterator[str]:
    """Yield a candidate's name, which is removed from the engine at the end of the block.

    Before, removes those of killed builds on the engine at `host`, and no others: they belong to builds that live, and
    to other users. `folder` has the locks. Of an engine that is lost, the next build removes the candidate.
    """
    locks = folder / hashlib.sha256(host.encode()).hexdigest()[:16]
    if removed := _remove_killed(locks, engine):
        on_event(Message(text=f"Removed what a killed build left behind: {', '.join(removed)}"))
    name = candidate_name(identifier)
    file = locks / name.rpartition(":")[2]
    with wait_for_lock(file, on_wait=lambda: None):
        try:
            yield name
        finally:
            with suppress(EngineError, EngineUnavailable):
                engine.remove(name)
                file.unlink()


def _remove_killed(locks: Path, engine: Engine) -> list[str]:
    """Remove the candidates of killed builds from an engine, with their containers; return their names."""
    removed = []
    for file in sorted(locks.glob("*")):
        # Another build may remove the same; what the engine refuses is tried again by the next build.
        with suppress(FileNotFoundError, EngineError), lock_existing(file) as is_free:
            if not is_free:
                continue
            name = f"{CANDIDATE}:{file.name}"
            if engine.find_digest(name) is not None:
                engine.remove_with_containers(name)
                removed.append(name)
            elif time.time() - file.stat().st_mtime < OUTLIVED_SECONDS:
                continue
            file.unlink()
    return removed


def candidate_name(identifier: str) -> str:
    """Return a name for an image that no other build uses."""
    return f"{CANDIDATE}:{identifier}-{secrets.token_hex(4)}"


def remove_name(engine: Engine, name: str) -> None:
    """Remove a name from the engine; ignore an engine that cannot, so that the error before it stays visible."""
    with suppress(EngineError, EngineUnavailable):
        engine.remove(name)

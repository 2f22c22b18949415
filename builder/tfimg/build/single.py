"""The candidate of a single build, in a journal of its own: the next build removes what a killed one left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from tfimg.build.journal import BuildStarted, candidates
from tfimg.core.errors import EngineError, EngineUnavailable
from tfimg.core.events import Message, OnEvent
from tfimg.core.journal import Journal
from tfimg.core.runs import RunFinished, open_run
from tfimg.engine.candidates import candidate_name
from tfimg.engine.protocol import Engine

FOLDER = "builds"
"""The folder of the journals, in the state folder."""


@contextmanager
def open_candidate(state: Path, identifier: str, engine: Engine, host: str, on_event: OnEvent) -> Iterator[str]:
    """Yield a candidate's name that the next build removes from the engine at `host` if this process is killed.

    Before, removes those of killed processes. A process that lives holds the lock of its journal, so that its candidate
    stays.
    """
    name = candidate_name(identifier)
    with open_run(state / FOLDER, lambda: datetime.now(UTC), new=True) as (journal, killed):
        if removed := _remove_stale(killed, engine, host):
            on_event(Message(text=f"Removed what a killed build left behind: {', '.join(removed)}"))
        journal.write(BuildStarted(identifier=identifier, candidate=name, engine=host))
        try:
            yield name
        finally:
            with suppress(EngineError, EngineUnavailable):
                if engine.find_digest(name) is None:
                    journal.write(RunFinished())


def _remove_stale(killed: Sequence[Journal], engine: Engine, host: str) -> list[str]:
    """Remove the candidates of killed builds from an engine, with their containers; return their names."""
    removed = []
    for journal in killed:
        stale = candidates(journal, host)
        if not stale:
            continue  # of another engine, or killed before it began
        with suppress(EngineError):
            for name in stale:
                if engine.find_digest(name) is not None:
                    engine.remove_with_containers(name)
                    removed.append(name)
            journal.write(RunFinished())
    return removed

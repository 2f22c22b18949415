"""One image of many, in a thread of its own: from its journal record to its result. Nothing but a value comes out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfimg.build.candidate import candidate
from tfimg.build.pipeline import Means, make
from tfimg.build.results import Result
from tfimg.build.schedule import AGAIN, Item, Listener, Worker
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import EngineUnavailable, Interrupted, TfimgError, from_defect, from_os_error
from tfimg.core.files import write_atomically
from tfimg.core.journal import Journal
from tfimg.validation.formats import format_json
from tfimg.validation.report import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """Makes an image on an engine. `keep` gets each report, `explain` each failure, which it may explain.

    `reports` is the folder where the last report on each image is kept, whatever it says.
    """

    means: Means
    journal: Journal
    listener: Listener
    cancellation: Cancellation
    keep: Callable[[Report], None]
    reports: Path
    explain: Callable[[TfimgError], TfimgError]
    clock: Callable[[], float] = time.monotonic

    def __call__(self, item: Item, worker: Worker) -> Result:
        """How it ended. Raises `EngineUnavailable` for an engine that was lost, `BrokenPipeError` with the listener."""
        began, name = self.clock(), candidate(item.identifier)
        self.journal.note("start", identifier=item.identifier, candidate=name, engine=worker.host)
        try:
            with self.cancellation.activate():
                result = self._made(item, worker, name, began)
        except (EngineUnavailable, BrokenPipeError) as error:
            self.journal.note("end", identifier=item.identifier, status="lost", error=type(error).__name__)
            if self.cancellation.cancelled:
                return self._failed(item, worker, Interrupted("Interrupted.", next_step=AGAIN), began)
            raise
        except Exception as error:
            result = self._failed(item, worker, self._told(error), began)
        self.journal.note(
            "end",
            identifier=item.identifier,
            status=result.status,
            digest=result.digest,
            exit_code=result.failure.exit_code if result.failure else 0,
        )
        return result

    def _made(self, item: Item, worker: Worker, name: str, began: float) -> Result:
        file = self.reports / f"{item.identifier}.json"

        def keep(report: Report) -> None:
            write_atomically(file, format_json(report))
            self.keep(report)

        made = make(
            worker.prepare(item.plan),
            self.means,
            name=name,
            engine=worker.engine,
            capabilities=worker.capabilities,
            progress=self.listener.item(item.identifier),
            keep=keep,
            evidence=f"`tfimg report {file}` shows the whole evidence.",
        )
        stored = made.built.stored
        return Result(
            identifier=item.identifier,
            status="built",
            seconds=self.clock() - began,
            engine=worker.name,
            digest=stored.digest,
            tags=item.plan.tags,
            level=made.report.level,
            reused=made.reused,
            checks=sum(result.outcome == "passed" for result in made.report.results),
            unpacked_bytes=stored.unpacked_bytes,
            compressed_bytes=stored.compressed_bytes,
        )

    def _told(self, error: Exception) -> TfimgError:
        if self.cancellation.cancelled:  # what was ended fails in its own way
            return Interrupted("Interrupted.", next_step=AGAIN)
        if isinstance(error, TfimgError):
            return self.explain(error)
        return from_os_error(error) if isinstance(error, OSError) else from_defect(error)

    def _failed(self, item: Item, worker: Worker, failure: TfimgError, began: float) -> Result:
        return Result(
            identifier=item.identifier,
            status="interrupted" if isinstance(failure, Interrupted) else "failed",
            seconds=self.clock() - began,
            failure=failure,
            engine=worker.name,
        )

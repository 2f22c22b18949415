"""Ending work in other threads: signals reach the main thread alone, and threads cannot be ended from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

from tfimg.core.errors import Interrupted

Act = Callable[[], object]

Result = TypeVar("Result")


class Cancellation:
    """Ends what runs under it, in any thread: each piece of work says how it is ended (`on_cancel`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acts: list[Act] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether the work is to end."""
        return self._cancelled

    def cancel(self) -> None:
        """End everything. Does not wait: each thread notices by itself that its work has ended."""
        with self._lock:
            self._cancelled = True
            acts = list(self._acts)
        for act in acts:
            _start(act)

    @contextmanager
    def activate(self) -> Iterator[None]:
        """What this thread does in the block runs under the cancellation."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def calling(self, act: Act) -> Iterator[None]:
        """Call `act` when everything is to end while the block runs; at once where it is to end already."""
        with self._lock:
            self._acts.append(act)
            late = self._cancelled
        if late:
            _start(act)
        try:
            yield
        finally:
            with self._lock:
                self._acts.remove(act)


_CURRENT: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


@contextmanager
def on_cancel(act: Act) -> Iterator[None]:
    """How what runs in the block is ended from outside. `act` is called in another thread."""
    current = _CURRENT.get()
    if current is None:  # the main thread's work: a signal ends it
        yield
        return
    with current.calling(act):
        yield


def raise_if_cancelled() -> None:
    """Raises `Interrupted` where this thread's work is to end."""
    current = _CURRENT.get()
    if current is not None and current.cancelled:
        raise Interrupted()


@contextmanager
def run_ahead(work: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Work that goes on while the block does, and the call that waits for its result. It ends when the block fails."""
    cancellation = Cancellation()

    def covered() -> Result:
        with cancellation.activate():
            return work()

    with on_cancel(cancellation.cancel), ThreadPoolExecutor(1) as pool:
        job = pool.submit(covered)
        try:
            yield job.result
        except BaseException:
            cancellation.cancel()
            raise


def _start(act: Act) -> None:
    def quietly() -> None:
        # What is to be ended may just have ended.
        with suppress(Exception):
            act()

    # One that takes its time must not keep the others waiting.
    threading.Thread(target=quietly, daemon=True).start()

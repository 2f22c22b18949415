"""Cancel work in other threads, which neither signals nor exceptions from outside can reach."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import TypeVar, cast

from tfimg.core.errors import Interrupted

Callback = Callable[[], object]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Cancellation:
    """Cancels the work of all threads that activated it; work registers its own way to stop with `on_cancel`.

    `is_cancelled`: the work should end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callback] = []
        self.is_cancelled = False

    def cancel(self) -> None:
        """Start all callbacks, without waiting for them."""
        with self._lock:
            self.is_cancelled = True
            callbacks = list(self._callbacks)
        for callback in callbacks:
            threading.Thread(target=_call, args=(callback,), daemon=True).start()

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Let this cancellation apply to the block, in this thread."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def register(self, callback: Callback) -> Iterator[None]:
        """Call `callback` on cancellation during the block; at once if it is already cancelled."""
        with self._lock:
            self._callbacks.append(callback)
            is_late = self.is_cancelled
        if is_late:
            threading.Thread(target=_call, args=(callback,), daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)


_CURRENT: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


def on_cancel(callback: Callback) -> AbstractContextManager[None]:
    """Register how to stop the block. The callback runs in another thread; without a cancellation, never."""
    current = _CURRENT.get()  # None in the main thread, which signals reach
    return current.register(callback) if current else nullcontext()


def raise_if_cancelled() -> None:
    """Raise `Interrupted` if the work of this thread was cancelled."""
    current = _CURRENT.get()
    if current is not None and current.is_cancelled:
        raise Interrupted


@contextmanager
def run_ahead(work: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Run `work` in another thread during the block; yield the function that waits for its result.

    An exception in the block, or the cancellation of the block, cancels the work.
    """
    from concurrent.futures import ThreadPoolExecutor

    cancellation = Cancellation()

    def run() -> Result:
        with cancellation.activate():
            return work()

    with on_cancel(cancellation.cancel), ThreadPoolExecutor(1) as pool:
        job = pool.submit(run)
        try:
            yield job.result
        except BaseException:
            cancellation.cancel()
            raise


def start_limited(work: Callable[[], Result], seconds: float) -> Callable[[], Result]:
    """Start `work` in another thread; return the function that waits for its result.

    That function raises `TimeoutError` when `seconds` have passed since the start. The work is left behind: neither DNS
    nor a socket of the C library can be told to stop, and a thread that is a daemon does not keep the program.
    """
    outcome: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()
    deadline = time.monotonic() + seconds

    def run() -> None:
        try:
            outcome.put((work(), None))
        except BaseException as error:
            outcome.put((None, error))

    threading.Thread(target=run, daemon=True).start()

    def wait() -> Result:
        try:
            result, error = outcome.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        if error is not None:
            raise error
        return cast("Result", result)

    return wait


def map_in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield what `work` returns for each item, in their order, from several threads.

    When the caller stops, by an exception or an interrupt, running work is cancelled and no other begins. A second
    interrupt ends the wait for that work.
    """
    from concurrent.futures import ThreadPoolExecutor

    cancellation = Cancellation()

    def run(item: Item) -> Result:
        with cancellation.activate():
            raise_if_cancelled()
            return work(item)

    with on_cancel(cancellation.cancel):
        pool = ThreadPoolExecutor(threads)
        try:
            yield from pool.map(run, items)
        except BaseException:
            cancellation.cancel()
            with suppress(KeyboardInterrupt):  # Python would print that it is ignored, with a traceback
                pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown()


def _call(callback: Callback) -> None:
    """Call a callback, in a thread of its own so that a slow one does not delay others."""
    with suppress(Exception):  # the work may just have ended
        callback()

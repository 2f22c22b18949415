"""Retry what failed for the moment, with exponential backoff."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import tenacity

from tfimg.core.cancellation import on_cancel, raise_if_cancelled
from tfimg.core.errors import TfimgError

ATTEMPTS = 5  # as many as Docker's engine makes for a push (moby, `distribution/xfer`)

BACKOFF = tenacity.wait_random_exponential(multiplier=1.0, max=30.0)
"""Seconds between attempts: from none to 1, 2, 4, … 30, at random, so that clients do not return together."""

MAX_RETRY_AFTER = 120.0  # seconds. If a registry asks for a longer wait, its error is raised at once: the user decides

T = TypeVar("T")


class TransientError(Exception):
    """A failure after which a retry may succeed. `error` is raised after the last attempt.

    `after` is the wait that the registry asks for in seconds, 0 for none.
    """

    def __init__(self, error: TfimgError, *, after: float = 0.0) -> None:
        self.error = error
        self.after = after
        super().__init__(str(error))


def pause(seconds: float) -> None:
    """Sleep; raises `Interrupted` as soon as the work of this thread is cancelled."""
    cancelled = threading.Event()
    with on_cancel(cancelled.set):
        cancelled.wait(seconds)
    raise_if_cancelled()


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Number of attempts and waits between them. A Retry-After is added to `backoff`."""

    attempts: int = ATTEMPTS
    backoff: tenacity.wait.wait_base = BACKOFF
    sleep: Callable[[float], None] = pause

    def retry_transient(self, attempt: Callable[[], T]) -> T:
        """Call `attempt`, and again after a `TransientError`. Raises the error of the last attempt."""
        try:
            return self.retry_on((TransientError,), attempt)
        except TransientError as transient:
            raise transient.error from None

    def retry_on(self, errors: tuple[type[Exception], ...], attempt: Callable[[], T]) -> T:
        """Call an idempotent `attempt`, and again after one of the errors. Raises that of the last attempt."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, errors) and getattr(error, "after", 0.0) <= MAX_RETRY_AFTER
            ),
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=tenacity.wait_exception(lambda error: getattr(error, "after", 0.0)) + self.backoff,
            sleep=self.sleep,
            reraise=True,
        )
        return retrying(attempt)

"""Retry transient failures with exponential backoff."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TypeVar

import tenacity
from urllib3 import Retry
from urllib3.exceptions import InvalidHeader

from tfimg.core.cancellation import on_cancel, raise_if_cancelled
from tfimg.core.errors import NetworkError, TfimgError

ATTEMPTS = 5
"""As many as Docker's engine makes for a push (moby, `distribution/xfer`)."""

BACKOFF = tenacity.wait_random_exponential(multiplier=1.0, max=30.0)
"""Seconds between attempts: from none to 1, 2, 4, … 30, at random, so that clients do not return together."""

MAX_RETRY_AFTER = 120.0
"""Seconds. If a registry asks for a longer wait, its error is raised at once: the user decides."""

MAX_HEADER = 64
"""Characters of a Retry-After that are read; a date has 29."""

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

    def retry_transient(self, attempt: Callable[[], T], resume: Callable[[], T] | None = None) -> T:
        """Call `attempt`, and after a `TransientError` again, or `resume`. Raises the error of the last attempt."""
        attempts = chain([attempt], repeat(resume or attempt))

        def is_retryable(error: BaseException) -> bool:
            return isinstance(error, TransientError) and error.after <= MAX_RETRY_AFTER

        try:
            return self._retrying(tenacity.retry_if_exception(is_retryable))(lambda: next(attempts)())
        except TransientError as transient:
            raise transient.error from None

    def retry_network_errors(self, attempt: Callable[[], T], *, also: tuple[type[TfimgError], ...] = ()) -> T:
        """Call an idempotent `attempt`, and retry it after a `NetworkError` or one of the errors in `also`."""
        return self._retrying(tenacity.retry_if_exception_type((NetworkError, *also)))(attempt)

    def _retrying(self, retry: tenacity.retry_if_exception) -> tenacity.Retrying:
        return tenacity.Retrying(
            retry=retry,
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=tenacity.wait_exception(lambda error: getattr(error, "after", 0.0)) + self.backoff,
            sleep=self.sleep,
            reraise=True,
        )


def parse_retry_after(header: str | None) -> float:
    """Return the seconds of a Retry-After, a number or a date (RFC 9110, section 10.2.3); 0 for anything else."""
    try:
        return Retry().parse_retry_after((header or "")[:MAX_HEADER])
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0

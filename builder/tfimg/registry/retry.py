"""Another try, where it is worth it: what passes is tried again after a while, and each time after a longer one."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from tfimg.cancellation import check, on_cancel
from tfimg.errors import NetworkError, TfimgError

ATTEMPTS = 5
"""As many as Docker's own engine makes of a push (moby, `distribution/xfer`)."""

FIRST_SECONDS = 1.0
"""The wait after the first try is between none and so long; it doubles with each try."""

LONGEST_SECONDS = 30.0

OBEDIENCE_SECONDS = 120.0
"""A registry that asks for a longer wait than this is not waited for: that is for people to decide."""

MAX_RETRY_AFTER = 64
"""Characters of a Retry-After that are read; a date has 29."""

T = TypeVar("T")


class Passing(Exception):
    """Something failed that may pass. `error` is what to raise when no try is left.

    `after` is how many seconds the registry asks to wait, None where it does not say.
    """

    def __init__(self, error: TfimgError, *, after: float | None = None) -> None:
        self.error = error
        self.after = after
        super().__init__(str(error))


def pause(seconds: float) -> None:
    """Wait, unless the work of this thread is to end. Raises `Interrupted` where it is."""
    ended = threading.Event()
    with on_cancel(ended.set):
        ended.wait(seconds)
    check()


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How often to try, and how long to wait in between: exponentially longer, with full jitter.

    `chance` gives a number from 0 to 1; `clock` seconds since 1970, for a Retry-After that is a time of day.
    """

    attempts: int = ATTEMPTS
    sleep: Callable[[float], None] = pause
    chance: Callable[[], float] = random.random
    clock: Callable[[], float] = time.time

    def keep_trying(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns; it raises `Passing` where another one is worth it. Raises the error of the last."""
        retrying = Retrying(
            stop=stop_after_attempt(self.attempts), wait=self._wait, sleep=self.sleep, reraise=True,
            retry=retry_if_exception_type(Passing),
        )  # fmt: skip
        try:
            return retrying(attempt)
        except Passing as passing:
            raise passing.error from None

    def over_network(self, attempt: Callable[[], T], *, also: tuple[type[TfimgError], ...] = ()) -> T:
        """What `attempt` returns: something that raises `NetworkError` and may be done again, such as a push.

        `also`: what else is worth another try.
        """

        passing: tuple[type[TfimgError], ...] = (NetworkError, *also)

        def once() -> T:
            try:
                return attempt()
            except passing as error:
                raise Passing(error) from None

        return self.keep_trying(once)

    def _wait(self, state: RetryCallState) -> float:
        window = min(FIRST_SECONDS * 2.0 ** (state.attempt_number - 1), LONGEST_SECONDS)
        jitter = self.chance() * window
        passing = state.outcome.exception() if state.outcome else None
        if not isinstance(passing, Passing) or passing.after is None:
            return jitter
        if passing.after > OBEDIENCE_SECONDS:
            raise passing.error
        # Not all who were sent away come back at the same moment.
        return passing.after + jitter

    def retry_after(self, header: str | None) -> float | None:
        """Return the seconds that a Retry-After asks for: a number of them or a time (RFC 9110, section 10.2.3)."""
        text = (header or "").strip()[:MAX_RETRY_AFTER]
        if re.fullmatch("[0-9]+", text):
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self.clock())
        except (ValueError, OverflowError):
            return None

"""Retries: how often, after how long, and when there is none."""

import threading
import time
from collections.abc import Callable
from email.utils import formatdate

import pytest

from support.manifests import LONGEST_WAITS, Slept
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import Interrupted, NetworkError, RegistryError
from tfimg.core.retry import MAX_RETRY_AFTER, RetryPolicy, TransientError, pause
from tfimg.registry.http import parse_retry_after

GONE = NetworkError("It is gone.", next_step="Wait.")


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = iter([error] * times)

    def attempt() -> str:
        for one in left:
            raise one
        return "done"

    return attempt


WINDOWS = [1, 2, 4, 8, 16, 30, 30, 30, 30]
"""Seconds: the longest waits after each of ten attempts."""


@pytest.mark.parametrize("attempts", [1, 2, 5, 10])
def test_waits_double_up_to_half_a_minute(attempts: int) -> None:
    slept = Slept()
    retry_policy = RetryPolicy(attempts=attempts, sleep=slept, backoff=LONGEST_WAITS)
    assert retry_policy.retry_transient(failing(attempts - 1, TransientError(GONE))) == "done"
    assert slept == WINDOWS[: attempts - 1]


def test_waits_are_drawn_from_the_whole_window() -> None:
    runs = [Slept() for _ in range(300)]
    for slept in runs:
        RetryPolicy(attempts=10, sleep=slept).retry_transient(failing(9, TransientError(GONE)))
    for window, *waits in zip(WINDOWS, *runs, strict=True):
        # 300 draws miss a tenth of the window once in 10 ** 13 runs.
        assert 0 <= min(waits) < window * 0.1
        assert window * 0.9 < max(waits) <= window


def test_the_last_attempt_s_error_is_raised_without_a_wait_after_it() -> None:
    slept = Slept()
    with pytest.raises(NetworkError) as caught:
        RetryPolicy(attempts=3, sleep=slept).retry_transient(failing(3, TransientError(GONE)))
    assert (caught.value, len(slept)) == (GONE, 2)
    with pytest.raises(NetworkError):  # which is not transient
        RetryPolicy(sleep=slept).retry_transient(failing(1, GONE))
    assert len(slept) == 2


def test_the_wait_that_a_registry_requests_is_added_up_to_a_maximum() -> None:
    slept = Slept()
    retry_policy = RetryPolicy(sleep=slept, backoff=LONGEST_WAITS)
    assert retry_policy.retry_transient(failing(2, TransientError(GONE, after=MAX_RETRY_AFTER))) == "done"
    assert slept == [MAX_RETRY_AFTER + 1, MAX_RETRY_AFTER + 2]
    with pytest.raises(NetworkError):
        retry_policy.retry_transient(failing(1, TransientError(GONE, after=MAX_RETRY_AFTER + 0.1)))
    assert len(slept) == 2


def test_retry_after_is_in_seconds_or_a_time() -> None:
    past, distant = "Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 01 Jan 99999 00:00:00 GMT"
    offset = "Thu, 01 Jan 1970 00:00:00 +9999999999"
    for header in (None, "", past, "soon", "-1", "1e999", "\u0663", distant, offset):
        assert parse_retry_after(header) == 0, header
    assert parse_retry_after("17") == 17
    assert 50 < parse_retry_after(formatdate(time.time() + 60, usegmt=True)) <= 60
    assert parse_retry_after("9" * 5000) > MAX_RETRY_AFTER


def test_a_push_is_done_again_when_the_network_failed() -> None:
    slept = Slept()
    retry_policy = RetryPolicy(sleep=slept)
    assert retry_policy.retry_on((NetworkError,), failing(2, GONE)) == "done"
    assert len(slept) == 2
    refused = RegistryError("No.", next_step="Ask.")
    with pytest.raises(RegistryError):
        retry_policy.retry_on((NetworkError,), failing(1, refused))
    assert len(slept) == 2
    assert retry_policy.retry_on((NetworkError, RegistryError), failing(1, refused)) == "done"
    with pytest.raises(NetworkError) as caught:
        retry_policy.retry_on((NetworkError,), failing(5, GONE))
    assert (caught.value, len(slept)) == (GONE, 7)


def test_a_wait_is_waited_and_ends_with_the_work_of_its_thread() -> None:
    began = time.monotonic()
    pause(0.05)
    assert time.monotonic() - began >= 0.05
    cancellation = Cancellation()
    timer = threading.Timer(0.05, cancellation.cancel)
    timer.start()
    with cancellation.activate(), pytest.raises(Interrupted):
        pause(60)
    timer.join()
    assert time.monotonic() - began < 5


def test_a_cancelled_wait_ends_the_attempts() -> None:
    cancellation = Cancellation()
    timer = threading.Timer(0.05, cancellation.cancel)
    timer.start()
    tries: list[None] = []

    def attempt() -> None:
        tries.append(None)
        raise TransientError(GONE, after=60)

    with cancellation.activate(), pytest.raises(Interrupted):
        RetryPolicy().retry_transient(attempt)
    timer.join()
    assert len(tries) == 1

"""Another try: how often, after how long, and when there is none. Nothing here waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from support.manifests import Slept
from tfimg.cancellation import Cancellation
from tfimg.errors import Interrupted, NetworkError, RegistryRefused
from tfimg.registry.retry import OBEDIENCE_SECONDS, Passing, Patience, pause

GONE = NetworkError("It is gone.", next_step="Wait.")


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = iter([error] * times)

    def attempt() -> str:
        for one in left:
            raise one
        return "done"

    return attempt


@pytest.mark.parametrize(
    ("attempts", "chance", "waits"),
    [
        (5, 1.0, [1, 2, 4, 8]),
        (5, 0.5, [0.5, 1, 2, 4]),
        (5, 0.0, [0, 0, 0, 0]),
        (10, 1.0, [1, 2, 4, 8, 16, 30, 30, 30, 30]),
    ],
)
def test_what_passes_is_tried_again_after_a_share_of_doubled_waits_up_to_half_a_minute(
    attempts: int, chance: float, waits: list[float]
) -> None:
    slept = Slept()
    patience = Patience(attempts=attempts, sleep=slept, chance=lambda: chance)
    assert patience.keep_trying(failing(attempts - 1, Passing(GONE))) == "done"
    assert slept == waits


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("17", 17),
        ("Thu, 01 Jan 1970 00:16:50 GMT", 10),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("soon", None),
        ("-1", None),
        ("1e999", None),
        ("\u0663", None),
        ("Thu, 01 Jan 99999 00:00:00 GMT", None),
        ("Thu, 01 Jan 1970 00:00:00 +9999999999", None),
    ],
)
def test_a_wait_is_told_in_seconds_or_as_a_time(header: str | None, seconds: float | None) -> None:
    assert Patience(clock=lambda: 1000.0).retry_after(header) == seconds


def test_a_wait_of_thousands_of_digits_is_a_long_one() -> None:
    after = Patience().retry_after("9" * 5000)
    assert after is not None
    assert after > OBEDIENCE_SECONDS


def test_a_push_is_done_again_when_the_network_failed() -> None:
    slept = Slept()
    patience = Patience(sleep=slept)
    assert patience.over_network(failing(2, GONE)) == "done"
    assert len(slept) == 2
    with pytest.raises(RegistryRefused):
        patience.over_network(failing(1, RegistryRefused("No.", next_step="Ask.")))
    assert len(slept) == 2


def test_a_wait_is_waited_and_ends_with_the_work_of_its_thread() -> None:
    began = time.monotonic()
    pause(0.05)
    assert time.monotonic() - began >= 0.05
    cancellation = Cancellation()
    timer = threading.Timer(0.05, cancellation.cancel)
    timer.start()
    with cancellation.covering(), pytest.raises(Interrupted):
        pause(60)
    timer.join()
    assert time.monotonic() - began < 5

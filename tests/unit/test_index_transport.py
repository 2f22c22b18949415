"""The transport of package indexes and registries: what it limits, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from support.http_server import AnyMethod, serving
from support.manifests import LONGEST_WAITS, Slept
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import Interrupted
from tfimg.core.retry import RetryPolicy
from tfimg.index.client import make_network_error, read_body
from tfimg.index.network import MAX_STEP_BYTES, DirectSession, retry_request

LARGE = bytes(range(256)) * (3 * MAX_STEP_BYTES // 256)


class _Handler(AnyMethod):
    def answer(self) -> None:
        statuses = self.server.subject  # type: ignore[attr-defined]
        if statuses:
            self.reply(statuses.pop(0), {}, b"")
        elif self.path == "/large":
            self.reply(200, {}, LARGE)
        else:
            self.reply(302, {"Location": "/large", "Set-Cookie": "a=b; Path=/"}, b"elsewhere")


@pytest.fixture
def statuses() -> list[int]:
    """What the server answers first."""
    return []


@pytest.fixture
def address(statuses: list[int]) -> Iterator[str]:
    with serving(_Handler, statuses) as there:
        yield f"http://{there}"


def test_content_is_as_long_as_it_is(address: str) -> None:
    with DirectSession() as session:
        for _ in range(2):  # on one connection
            assert session.get(f"{address}/large").content == LARGE
        with session.get(f"{address}/large", stream=True) as response:
            assert b"".join(response.iter_content(1 << 20)) == LARGE


def test_a_body_has_a_largest_size(address: str) -> None:
    with DirectSession() as session:
        assert read_body(session.get(f"{address}/large", stream=True), len(LARGE)) == LARGE
        with pytest.raises(ValueError, match=f"^it has more than {len(LARGE) - 1} bytes$"):
            read_body(session.get(f"{address}/large", stream=True), len(LARGE) - 1)


def test_no_redirect_is_followed_and_no_cookie_kept(address: str) -> None:
    with DirectSession() as session:
        response = session.get(f"{address}/")
        assert (response.status_code, response.content, response.history) == (302, b"elsewhere", [])
        assert response.next is None
        assert list(session.cookies) == []


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_request_that_fails_for_the_moment_is_sent_again(status: int, address: str, statuses: list[int]) -> None:
    slept = Slept()
    policy = RetryPolicy(attempts=3, sleep=slept, backoff=LONGEST_WAITS)
    statuses += [status, status]
    with DirectSession() as session:
        assert retry_request(session, "GET", f"{address}/large", policy).content == LARGE
        assert slept == [1, 2]
        statuses += [status] * 3
        with pytest.raises(requests.HTTPError, match=f"^{status} "):
            retry_request(session, "GET", f"{address}/large", policy)
    assert (slept, statuses) == ([1, 2, 1, 2], [])


@pytest.mark.parametrize("status", [302, 401, 403, 404, 501])
def test_another_answer_is_returned_at_once(status: int, address: str, statuses: list[int]) -> None:
    statuses.append(status)
    with DirectSession() as session:
        policy = RetryPolicy(sleep=Slept())
        assert retry_request(session, "GET", address, policy, headers={"A": "b"}, timeout=5).status_code == status


def test_a_server_that_is_down_is_asked_again() -> None:
    slept = Slept()
    with DirectSession() as session, pytest.raises(requests.ConnectionError):
        retry_request(session, "GET", "http://127.0.0.1:9/", RetryPolicy(attempts=2, sleep=slept))
    assert len(slept) == 1


def test_cancelled_work_sends_no_request(address: str, statuses: list[int]) -> None:
    statuses.append(200)
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), DirectSession() as session, pytest.raises(Interrupted):
        retry_request(session, "GET", address, RetryPolicy())
    assert statuses == [200]


def test_an_error_shows_no_password_and_nothing_that_changes_a_terminal() -> None:
    error = make_network_error("x", ValueError("no route\n to http://ann:secret@proxy.test:1/\x1b[31m"), source="there")
    assert str(error).startswith("Cannot read x from there: no route to http://proxy.test:1/")
    assert "\x1b" not in str(error)

"""The transport of package indexes and registries: what it limits, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.http_server import AnyMethod, serving
from tfimg.index.responses import read_body
from tfimg.index.transport import MAX_STEP_BYTES, DirectSession

LARGE = bytes(range(256)) * (3 * MAX_STEP_BYTES // 256)


class _Handler(AnyMethod):
    def answer(self) -> None:
        if self.path == "/large":
            self.reply(200, {}, LARGE)
        else:
            self.reply(302, {"Location": "/large", "Set-Cookie": "a=b; Path=/"}, b"elsewhere")


@pytest.fixture
def address() -> Iterator[str]:
    with serving(_Handler, None) as there:
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

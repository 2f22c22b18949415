"""What can be said of the Docker engine without one."""

from __future__ import annotations

import pytest

from tfimg.engine.docker import OLDEST_BUILDX, OLDEST_ENGINE, older


@pytest.mark.parametrize(
    ("text", "oldest", "is_older"),
    [
        ("20.10.24+dfsg1", OLDEST_ENGINE, True),
        ("22.06.0-beta.0", OLDEST_ENGINE, True),
        ("23.0.0", OLDEST_ENGINE, False),
        ("26.1.5+dfsg1", OLDEST_ENGINE, False),
        ("28.0.0-rc.1", OLDEST_ENGINE, False),
        ("library-import", OLDEST_ENGINE, False),
        ("0.11.2", OLDEST_BUILDX, True),
        ("0.12.0", OLDEST_BUILDX, False),
        ("5f5ba5f9", OLDEST_BUILDX, False),
    ],
)
def test_engines_and_buildx_are_told_apart_by_age(text: str, oldest: tuple[int, ...], is_older: bool) -> None:
    assert older(text, oldest) is is_older

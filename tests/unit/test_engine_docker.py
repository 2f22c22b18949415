"""What can be said of the Docker engine without one."""

from __future__ import annotations

import pytest

from tfimg.engine.docker import OLDEST_BUILDX, OLDEST_ENGINE, older


@pytest.mark.parametrize(
    ("text", "is_older"),
    [
        ("20.10.24+dfsg1", True),
        ("22.06.0-beta.0", True),
        ("23.0.0", False),
        ("26.1.5+dfsg1", False),
        ("28.0.0-rc.1", False),
        ("library-import", False),
    ],
)
def test_engines_are_told_apart_by_age(text: str, is_older: bool) -> None:
    assert older(text, OLDEST_ENGINE) is is_older


@pytest.mark.parametrize(
    ("text", "is_older"), [("0.11.2", True), ("0.12.0", False), ("0.13.1+ds1", False), ("5f5ba5f9", False)]
)
def test_buildx_is_told_apart_by_age(text: str, is_older: bool) -> None:
    assert older(text, OLDEST_BUILDX) is is_older

"""A plugin for pytest: run the quickest of a mutant's tests first. Most mutants die in the first second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TIMES = Path("mutmut-stats.json")
"""Seconds of each test, as mutmut has measured them; it runs pytest in the folder where this lies."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by what they took before; those not measured yet come first."""
    if TIMES.exists():
        seconds = json.loads(TIMES.read_text())["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))

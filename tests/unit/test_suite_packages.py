"""The suite's comparison of a lock with what is installed, against this very environment."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from checks.packages import locked
from contract import CheckFailed, CheckSkipped, Facts


def test_exact_versions_pass_and_an_empty_lock_proves_nothing() -> None:
    assert locked(Facts(packages={"pytest": version("pytest")}))["locked"] == 1
    with pytest.raises(CheckSkipped):
        locked(Facts(packages={}))


def test_all_differences_are_named_at_once() -> None:
    with pytest.raises(CheckFailed, match="found 2 that differ") as caught:
        locked(Facts(packages={"pytest": "0.1", "no-such-package": "1.0"}))
    assert caught.value.evidence == {
        "missing": {"no-such-package": "1.0"},
        "wrong": {"pytest": {"locked": "0.1", "installed": version("pytest")}},
    }

"""What the suite found in an image, and what that amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tfimg.matrix.schema import Device
from tfimg.recipe.describe import Level

Outcome = Literal["passed", "failed", "crashed", "timed-out", "skipped"]

PROVEN: dict[Device, Level] = {"cpu": "validated", "gpu": "built", "tpu": "built"}
"""The level of an image whose checks all passed. A CPU is its own accelerator; this version of the suite proves
nothing about a GPU or TPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """One check's end. `reason` is a sentence for every outcome but `passed`."""

    check: str
    outcome: Outcome
    reason: str | None
    seconds: float
    evidence: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All results of one image. `problem` says why the suite did not reach its end, where it did not."""

    identifier: str
    device: Device
    digest: str
    lock: str
    suite: str
    date: str
    seconds: float
    results: tuple[CheckResult, ...]
    problem: str | None

    @property
    def passed(self) -> bool:
        """Every check ran and passed: one that was skipped is not green."""
        return self.problem is None and all(result.outcome == "passed" for result in self.results)

    @property
    def level(self) -> Level:
        """What the image is shown to be."""
        return PROVEN[self.device] if self.passed else "built"

    @property
    def culprits(self) -> tuple[CheckResult, ...]:
        """Results that are not green."""
        return tuple(result for result in self.results if result.outcome != "passed")

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {"schema": 1, "passed": self.passed, "level": self.level, **asdict(self)}

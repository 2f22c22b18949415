"""What the suite found in an image, and what that amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tfimg.matrix.schema import Device
from tfimg.recipe.describe import Level

SEEN = "gpu.visible"
"""The check that tells the GPU and its driver."""

Outcome = Literal["passed", "failed", "crashed", "timed-out", "skipped"]

Provable = Literal["linked", "validated"]
"""What a run of the suite can show: all that shows without the accelerator, or that and what shows on it.

A CPU is its own accelerator: a CPU image is validated on any machine."""


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
    """All results of one image. `problem` says why the suite did not reach its end, where it did not.

    `aim` is the level that was to be shown; `unproven` are the checks of a higher one, which did not run.
    """

    identifier: str
    device: Device
    digest: str
    lock: str
    suite: str
    date: str
    seconds: float
    results: tuple[CheckResult, ...]
    problem: str | None
    aim: Provable
    unproven: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Every check ran and passed: one that was skipped is not green."""
        return self.problem is None and all(result.outcome == "passed" for result in self.results)

    @property
    def level(self) -> Level:
        """What the image is shown to be."""
        return self.aim if self.passed else "built"

    @property
    def accelerator(self) -> Mapping[str, str]:
        """The accelerator that it ran on and its driver, by name, as the suite saw them; empty where there was none."""
        seen = next((result for result in self.results if result.check == SEEN), None)
        return {
            name: str(seen.evidence[name]) for name in ("gpu", "driver") if seen and name in seen.evidence
        }

    @property
    def culprits(self) -> tuple[CheckResult, ...]:
        """Results that are not green."""
        return tuple(result for result in self.results if result.outcome != "passed")

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {"schema": 1, "passed": self.passed, "level": self.level, **self.accelerator, **asdict(self)}

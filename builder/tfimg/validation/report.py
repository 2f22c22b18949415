"""What the suite found in an image, and what that amounts to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tfimg.core.events import Event
from tfimg.core.levels import Level
from tfimg.matrix.schema import Device

SCHEMA = 2
"""Version of the report's JSON: 2 has profiles, required and waived checks, outputs and explanations."""

GPU_CHECK = "gpu.visible"
"""The check that tells the GPU and its driver."""

Outcome = Literal["passed", "failed", "crashed", "timed-out", "skipped"]

WORST_FIRST: tuple[Outcome, ...] = ("failed", "crashed", "timed-out", "skipped")
"""What an image is called whose checks ended in several ways: a wrong answer is surer than none."""

Verdict = Outcome | Literal["broken"]

Fault = Literal["image", "host"]

Profile = Literal["smoke", "standard", "full"]

ProvableLevel = Literal["linked", "validated"]
"""What a run of the suite can show: all that shows without the accelerator, or that and what shows on it.

A CPU is its own accelerator: a CPU image is validated on any machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A known failure that was recognised: where the fault lies, its cause, the lines that prove it, what helps."""

    signature: str
    fault: str
    cause: str
    proof: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult(Event):
    """One check's end. `reason` is a sentence for every outcome but `passed`.

    `output` are the last lines that it wrote, `explained` what is known about failures that look like this one.
    """

    kind = "check"
    check: str
    outcome: Outcome
    reason: str | None
    seconds: float
    evidence: Mapping[str, Any]
    output: tuple[str, ...] = ()
    explained: tuple[Explanation, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know and mend although it fails nothing: the evidence of that name."""
        told = self.evidence.get("warnings")
        return tuple(map(str, told)) if isinstance(told, list | tuple) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All results of one image. `problem` says why the suite did not reach its end, where it did not.

    `aim` is the level that was to be shown; `required` are the checks that must pass for it, `waived` those that the
    row does without and why, `unproven` those of a higher level. `environment` is the machine as the suite saw it.
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
    aim: ProvableLevel
    profile: Profile = "standard"
    required: tuple[str, ...] = ()
    waived: Mapping[str, str] = field(default_factory=dict)
    unproven: tuple[str, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """How it ended on the whole: `passed` only when nothing failed and nothing required was skipped."""
        if self.problem is not None or not self.results:
            return "broken"
        found = {result.outcome for result in self.unsuccessful}
        return next((outcome for outcome in WORST_FIRST if outcome in found), "passed")

    @property
    def passed(self) -> bool:
        """No check failed, and none that is required was skipped."""
        return self.verdict == "passed"

    @property
    def missing(self) -> tuple[str, ...]:
        """The required checks that did not pass, because they were left out or for another reason."""
        green = {result.check for result in self.results if result.outcome == "passed"}
        return tuple(name for name in self.required if name not in green)

    @property
    def level(self) -> Level:
        """What the image is shown to be. A required check that did not run is not green.

        `validated` on a GPU takes a GPU that was seen: a suite that asks nothing of it shows `linked` at most.
        """
        if not self.passed or self.missing:
            return "built"
        return "linked" if self.device == "gpu" and not self.gpus else self.aim

    @property
    def fault(self) -> Fault | None:
        """Who is to mend it: the host when all that went wrong is known to come from it; None when all is well.

        What was skipped follows from what went wrong: no GPU to run on, no TensorFlow that imports.
        """
        if self.passed:
            return None
        wrong = [result for result in self.unsuccessful if result.outcome != "skipped"]
        at_host = [any(one.fault == "host" for one in result.explained) for result in wrong]
        return "host" if wrong and all(at_host) else "image"

    @property
    def missing_hardware(self) -> str:
        """What the unproven checks need and this run did not have: a GPU, or, where it had one, more."""
        return f"{'more than one' if self.aim == 'validated' else 'a'} {self.device.upper()}"

    @property
    def gpus(self) -> tuple[tuple[str, str], ...]:
        """Name and compute capability of each GPU that it ran on, as the suite saw them; empty where there was none."""
        names, capabilities = (self._seen.get(name) for name in ("gpu", "capability"))
        if not isinstance(names, list | tuple) or not isinstance(capabilities, list | tuple):
            return ()
        return tuple((str(name), str(one)) for name, one in zip(names, capabilities, strict=False))

    @property
    def driver(self) -> str | None:
        """The version of the GPUs' driver, where the suite saw it."""
        found = self._seen.get("driver")
        return None if found is None else str(found)

    @property
    def accelerator(self) -> Mapping[str, str]:
        """The GPUs by name and their driver, for people and for the report's JSON; empty where there was none."""
        counts = Counter(name for name, _ in self.gpus)
        named = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())
        return {name: value for name, value in (("gpu", named), ("driver", self.driver)) if value}

    @property
    def _seen(self) -> Mapping[str, Any]:
        """What the check of GPUs found; empty unless it passed."""
        found = (one.evidence for one in self.results if one.check == GPU_CHECK and one.outcome == "passed")
        return next(found, {})

    @property
    def unsuccessful(self) -> tuple[CheckResult, ...]:
        """Results that are not green: all but those that passed, and those skipped that nobody requires."""
        return tuple(
            result
            for result in self.results
            if result.outcome not in ("passed", "skipped")
            or (result.outcome == "skipped" and result.check in self.required)
        )

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        told = {name: getattr(self, name) for name in ("passed", "verdict", "level", "fault", "missing")}
        return {"schema": SCHEMA, **told, **self.accelerator, **asdict(self)}

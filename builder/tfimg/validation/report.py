"""Results of the suite in one image, and the verdict and level that follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from tfimg.core.events import Event
from tfimg.core.levels import Level
from tfimg.matrix.schema import Device

SCHEMA = 2
"""Version of the report's JSON: 2 has profiles, required and waived checks, outputs and explanations."""

GPU_CHECK = "gpu.visible"
"""The check whose evidence names the GPU and its driver."""

Outcome = Literal["passed", "failed", "crashed", "timed-out", "skipped"]

WORST_FIRST: tuple[Outcome, ...] = ("failed", "crashed", "timed-out", "skipped")
"""Verdict of several outcomes: the first of these that occurs."""

Verdict = Outcome | Literal["broken"]

Fault = Literal["image", "host"]

Profile = Literal["smoke", "standard", "full"]

ProvableLevel = Literal["linked", "validated"]
"""Levels that a run of the suite can prove: without the accelerator, or on it. For a CPU image, that is any machine."""

DERIVED_FIELDS = ("passed", "verdict", "level", "fault", "missing")
"""Properties of a report that its JSON has too, so that readers need not compute them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A known failure: who is at fault, its cause, the lines that prove it, and the remedy."""

    signature: str
    fault: Literal["image", "host", "request", "harmless"]
    cause: str
    proof: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult(Event):
    """Result of one check. `reason` is a sentence for every outcome but `passed`.

    `output` are the last lines that the check wrote, `explained` the known failures that match.
    """

    kind = "check"
    check: str
    outcome: Outcome
    reason: str | None
    seconds: Annotated[float, Field(ge=0, lt=86_400)]
    evidence: Mapping[str, Any]
    output: tuple[str, ...] = ()
    explained: tuple[Explanation, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that the user should repair although the check passed."""
        warnings = self.evidence.get("warnings")
        return tuple(map(str, warnings)) if isinstance(warnings, list | tuple) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All results of one image, and what follows from them."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    identifier: str
    """What the image claims to be, as `tfimg list` names it."""
    device: Device
    """The device that the image is for."""
    digest: str
    """The image, by content."""
    lock: str
    """Digest of the lock that the image was built from."""
    suite: str
    """Digest of the suite that ran."""
    date: str
    """End of the run, ISO 8601 in UTC."""
    seconds: float
    """Duration of the run."""
    results: tuple[CheckResult, ...]
    """Results of the checks, in the order in which they ended."""
    problem: str | None
    """Why the suite did not reach its end; null when it did."""
    aim: ProvableLevel
    """The level to prove."""
    profile: Profile = "standard"
    """The part of the suite that was selected."""
    required: tuple[str, ...] = ()
    """Checks that must pass for the level."""
    waived: Mapping[str, str] = field(default_factory=dict)
    """Checks that the image does without, and why."""
    unproven: tuple[str, ...] = ()
    """Checks of a higher level, which this machine could not run."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """The machine, as the suite saw it."""

    @property
    def verdict(self) -> Verdict:
        """The worst outcome of a check that is not green; `broken` for an incomplete suite."""
        if self.problem is not None or not self.results:
            return "broken"
        found = {result.outcome for result in self.unsuccessful}
        return next((outcome for outcome in WORST_FIRST if outcome in found), "passed")

    @property
    def passed(self) -> bool:
        """Whether no check failed, and none that is required was skipped."""
        return self.verdict == "passed"

    @property
    def missing(self) -> tuple[str, ...]:
        """The required checks that did not pass, because they were left out or for another reason."""
        green = {result.check for result in self.results if result.outcome == "passed"}
        return tuple(name for name in self.required if name not in green)

    @property
    def level(self) -> Level:
        """The proven level. A required check that did not run is not green.

        `validated` takes the image's own processor, not an emulated one, and its GPU.
        """
        if not self.passed or self.missing:
            return "built"
        is_foreign = bool(self.environment.get("emulated")) or (self.device == "gpu" and not self.gpus)
        return "linked" if is_foreign else self.aim

    @property
    def fault(self) -> Fault | None:
        """The host if all failures are known to come from it, else the image; None if all is green.

        Skipped checks follow from failures: no GPU to run on, no TensorFlow that imports.
        """
        if self.passed:
            return None
        failed = [result for result in self.unsuccessful if result.outcome != "skipped"]
        at_host = [any(known.fault == "host" for known in result.explained) for result in failed]
        return "host" if failed and all(at_host) else "image"

    @property
    def missing_hardware(self) -> str:
        """What the unproven checks need, for people: a GPU, or more than one."""
        return f"{'more than one' if self.aim == 'validated' else 'a'} {self.device.upper()}"

    @property
    def gpus(self) -> tuple[tuple[str, str], ...]:
        """Name and compute capability of each GPU."""
        names, capabilities = (self._gpu_evidence.get(name) for name in ("gpu", "capability"))
        if not isinstance(names, list | tuple) or not isinstance(capabilities, list | tuple):
            return ()
        return tuple((str(name), str(one)) for name, one in zip(names, capabilities, strict=False))

    @property
    def driver(self) -> str | None:
        """The version of the GPUs' driver."""
        found = self._gpu_evidence.get("driver")
        return None if found is None else str(found)

    @property
    def accelerator(self) -> Mapping[str, str]:
        """GPUs by name and their driver, for people; empty without GPU."""
        counts = Counter(name for name, _ in self.gpus)
        gpus = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())
        return {name: value for name, value in (("gpu", gpus), ("driver", self.driver)) if value}

    @property
    def _gpu_evidence(self) -> Mapping[str, Any]:
        checks = (result for result in self.results if result.check == GPU_CHECK and result.outcome == "passed")
        return next((result.evidence for result in checks), {})

    @property
    def unsuccessful(self) -> tuple[CheckResult, ...]:
        """Results that are not green: all but the passed ones, and the skipped ones that nothing requires."""
        return tuple(
            result
            for result in self.results
            if result.outcome != "passed" and (result.outcome != "skipped" or result.check in self.required)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        derived = {name: getattr(self, name) for name in DERIVED_FIELDS}
        return {"schema": SCHEMA, **derived, **self.accelerator, **asdict(self)}

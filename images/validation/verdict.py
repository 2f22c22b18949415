"""The verdict on an image from the ends of its checks: the outcome, who can correct it, and the exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

WORST_FIRST = ("failed", "crashed", "timed-out", "skipped")
CODES = {"passed": 0, "failed": 1, "crashed": 3, "timed-out": 4, "skipped": 5}
BAD_USAGE = 2
UNFIT_HOST = 6


@dataclass
class Tally:
    """The ends so far. `required` are the checks that are not green unless they pass."""

    required: Sequence[str]
    ends: list[dict[str, Any]] = field(default_factory=list)

    @property
    def culprits(self) -> list[dict[str, Any]]:
        """Return the ends that are not green; a check that is not required may be skipped."""
        return [
            end
            for end in self.ends
            if end["outcome"] != "passed"
            if end["outcome"] != "skipped" or end["check"] in self.required
        ]

    @property
    def missing(self) -> list[str]:
        """Return the required checks that did not pass, whether they ran or not."""
        green = {end["check"] for end in self.ends if end["outcome"] == "passed"}
        return [name for name in self.required if name not in green]

    @property
    def verdict(self) -> str:
        """Return the worst outcome: a wrong answer is more certain than a missing one."""
        found = {end["outcome"] for end in self.culprits}
        return next((outcome for outcome in WORST_FIRST if outcome in found), "passed")

    @property
    def fault(self) -> str | None:
        """Return `host` if all failures are known to come from there, else `image`; None without failures.

        Skipped checks follow from failures: no GPU to run on, no TensorFlow that imports.
        """
        if not self.culprits:
            return None
        wrong = [end for end in self.culprits if end["outcome"] != "skipped"]
        at_host = [any(one["fault"] == "host" for one in end["explained"]) for end in wrong]
        return "host" if wrong and all(at_host) else "image"

    @property
    def code(self) -> int:
        """The exit code."""
        return UNFIT_HOST if self.fault == "host" else CODES[self.verdict]

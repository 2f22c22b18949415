"""All ends of checks → what the image amounts to, who is to mend it, and the exit code that tells it."""

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
        """Ends that are not green; a check that nobody requires may be skipped."""
        return [
            end
            for end in self.ends
            if end["outcome"] != "passed"
            if end["outcome"] != "skipped" or end["check"] in self.required
        ]

    @property
    def missing(self) -> list[str]:
        """Required checks that did not pass, whether they ran or not."""
        green = {end["check"] for end in self.ends if end["outcome"] == "passed"}
        return [name for name in self.required if name not in green]

    @property
    def verdict(self) -> str:
        """The worst outcome: a wrong answer is surer than none."""
        found = {end["outcome"] for end in self.culprits}
        return next((outcome for outcome in WORST_FIRST if outcome in found), "passed")

    @property
    def fault(self) -> str | None:
        """The host when everything that went wrong is known to come from there, else the image; None when all is well.

        What was skipped follows from what went wrong: no GPU to run on, no TensorFlow that imports.
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

"""A test result against a policy: why it is not enough, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from packaging.version import InvalidVersion, Version

from tfimg.errors import PolicyUnmet, StaleEvidence, TfimgError
from tfimg.evidence.outcome import Outcome, Skipped
from tfimg.evidence.policy import REQUIRED, Policy, Required, named_device

CLOCKS = timedelta(minutes=10)
"""How far two machines' clocks may be apart before a test that ends in the future is no mistake of a clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """What is asked of a test result: the policy, the level with the reason for it, the time.

    `tag` is the image's name; empty where it has none but its digest.
    """

    policy: Policy
    level: Required
    why: str
    now: datetime
    tag: str


def unmet(outcome: Outcome, demand: Demand, *, image: str) -> TfimgError | None:
    """Why a test result is not enough, the gravest reason first; None where it is enough."""
    return next((error for rule in RULES for error in rule(outcome, demand, image)), None)


def _other_device(outcome: Outcome, demand: Demand, image: str) -> Iterator[TfimgError]:
    # A CPU image is validated wherever it ran: its level alone does not keep what `-gpu` promises.
    device = named_device(demand.tag)
    if device and outcome.device != device:
        yield PolicyUnmet(
            f"{image} is {outcome.identifier}, which is for a {outcome.device.upper()}, and its name says "
            f"{device.upper()}: {demand.tag}.",
            next_step="Somebody moved the tag to another image: ask its publisher, or see `tfimg history`.",
        )


def _failed(outcome: Outcome, _: Demand, image: str) -> Iterator[TfimgError]:
    if outcome.result == "FAILED" and (outcome.failed or not _required_skipped(outcome)):
        named = ", ".join(outcome.failed[:3]) or "the suite did not reach its end"
        yield PolicyUnmet(
            f"{image} failed its tests on {_day(outcome)}: {named}.",
            next_step="Do not use it; ask its publisher, or validate it on this machine with `tfimg validate`.",
        )


def _skips(outcome: Outcome, _: Demand, image: str) -> Iterator[TfimgError]:
    if skipped := _required_skipped(outcome):
        first = skipped[0]
        more = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        yield PolicyUnmet(
            f"{image} has no proof of {first.name}, which it needs: the check was skipped on {_day(outcome)} "
            f"({first.reason or 'no reason was told'}){more}.",
            next_step="A skipped check is never green: the image has to be validated where nothing is left out.",
        )


def _level(outcome: Outcome, demand: Demand, image: str) -> Iterator[TfimgError]:
    if REQUIRED.index(outcome.shown) < REQUIRED.index(demand.level):
        yield PolicyUnmet(
            f"{image} is {outcome.shown}, and has to be {demand.level}: {demand.why}.",
            next_step="It has to be validated on its device and published again; or require less, knowing that.",
        )


def _gpu(outcome: Outcome, demand: Demand, image: str) -> Iterator[TfimgError]:
    found = outcome.environment.gpus
    if demand.policy.gpu and demand.policy.gpu not in {gpu.capability for gpu in found}:
        names = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in found) or "no GPU at all"
        yield PolicyUnmet(
            f"{image} was tested on {names}, and a GPU of {demand.policy.gpu} is required.",
            next_step="It has to be validated on such a GPU; or require what it was tested on.",
        )


def _driver(outcome: Outcome, demand: Demand, image: str) -> Iterator[TfimgError]:
    required, found = demand.policy.driver, outcome.environment.driver
    if required is not None and not (found and _within(found, demand)):
        yield PolicyUnmet(
            f"{image} was tested with {f'driver {found}' if found else 'no GPU driver'}, and driver{required} is "
            "required.",
            next_step="It has to be validated with such a driver; or require the one that it was tested with.",
        )


def _within(found: str, demand: Demand) -> bool:
    try:
        return demand.policy.driver is not None and demand.policy.driver.contains(Version(found))
    except InvalidVersion:
        return False


def _old(outcome: Outcome, demand: Demand, image: str) -> Iterator[TfimgError]:
    allowed, age = demand.policy.max_age, demand.now - outcome.ended
    if allowed is None:
        return
    if age < -CLOCKS:
        yield StaleEvidence(
            f"{image} says that it was tested on {_day(outcome)}, which is in the future: its age cannot be told.",
            next_step="Check this machine's clock.",
        )
    elif age > allowed:
        yield StaleEvidence(
            f"{image} was last tested on {_day(outcome)}, {_told(age)} ago, and may be {_told(allowed)} old.",
            next_step="It has to be validated and published anew; or allow more with max-age.",
        )


RULES: tuple[Callable[[Outcome, Demand, str], Iterator[TfimgError]], ...] = (
    _other_device, _failed, _skips, _level, _gpu, _driver, _old,
)  # fmt: skip
"""What a test result is held against, in this order."""


def _required_skipped(outcome: Outcome) -> list[Skipped]:
    return [one for one in outcome.skipped if one.required]


def _day(outcome: Outcome) -> str:
    return outcome.ended.date().isoformat()


def _told(time: timedelta) -> str:
    hours = int(time.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} hours"

"""Compare a test result with a policy, rule by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from packaging.version import Version

from tfimg.core.errors import PolicyViolation, StaleEvidence, TfimgError
from tfimg.evidence.policy import EVIDENCE_LEVELS, EvidenceLevel, Policy, device_in_tag
from tfimg.evidence.results import SignedResult
from tfimg.recipe.tags import find_contradiction

MAX_CLOCK_SKEW = timedelta(minutes=10)
"""How far two machines' clocks may be apart before a test result counts as one from the future."""

MAX_LISTED = 3
"""Failed checks that a message names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """What is required of a test result: the policy, the level with the reason for it, the time.

    `tag` is the image's tag, empty where it was asked for by digest alone; `digest` is that of its manifest.
    """

    policy: Policy
    level: EvidenceLevel
    why: str
    now: datetime
    tag: str
    digest: str


def find_violation(outcome: SignedResult, demand: Requirement, *, image: str) -> TfimgError | None:
    """Return the error of the first rule that a test result does not meet; None where it meets all."""
    return next((error for rule in RULES for error in rule(outcome, demand, image)), None)


def find_tag_mismatch(outcome: SignedResult, *, image: str, tag: str, digest: str) -> PolicyViolation | None:
    """Return an error if a tag states another image than the one that was tested."""
    # A genuine image of another release or device passes every other rule: its tag alone tells that it was moved.
    device = device_in_tag(tag)
    stated = find_contradiction(tag, identifier=outcome.identifier, digest=digest)
    if stated is None and device and outcome.device != device:
        stated = device.upper()
    if stated is None:
        return None
    return PolicyViolation(
        f"{image} is {outcome.identifier}, and its tag {tag} states {stated}.",
        next_step="The tag was moved to another image: ask its publisher, or see `tfimg history`.",
    )


def _other_image(outcome: SignedResult, demand: Requirement, image: str) -> Iterator[TfimgError]:
    if error := find_tag_mismatch(outcome, image=image, tag=demand.tag, digest=demand.digest):
        yield error


def _failed(outcome: SignedResult, _: Requirement, image: str) -> Iterator[TfimgError]:
    if not outcome.is_pass and (outcome.failed or not outcome.missing):
        named = ", ".join(outcome.failed[:MAX_LISTED]) or "the suite did not reach its end"
        yield PolicyViolation(
            f"{image} failed its tests on {_day(outcome)}: {named}.",
            next_step="Do not use it; ask its publisher, or validate it on this machine with `tfimg validate`.",
        )


def _skips(outcome: SignedResult, _: Requirement, image: str) -> Iterator[TfimgError]:
    if skipped := outcome.missing:
        first = skipped[0]
        more = f", and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        yield PolicyViolation(
            f"{image} has no proof of {first.name}, which it needs: the check was skipped on {_day(outcome)} "
            f"({first.reason or 'no reason was given'}){more}.",
            next_step="A skipped check is never green: validate the image where no check is skipped.",
        )


def _level(outcome: SignedResult, demand: Requirement, image: str) -> Iterator[TfimgError]:
    if EVIDENCE_LEVELS.index(outcome.proven_level) < EVIDENCE_LEVELS.index(demand.level):
        yield PolicyViolation(
            f"{image} is {outcome.proven_level}, and has to be {demand.level}: {demand.why}.",
            next_step="It has to be validated on its device and published again; or require less, knowing that.",
        )


def _gpu(outcome: SignedResult, demand: Requirement, image: str) -> Iterator[TfimgError]:
    found = outcome.environment.gpus
    if demand.policy.gpu and demand.policy.gpu not in {gpu.capability for gpu in found}:
        names = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in found) or "no GPU at all"
        yield PolicyViolation(
            f"{image} was tested on {names}, and a GPU of {demand.policy.gpu} is required.",
            next_step="It has to be validated on such a GPU; or require what it was tested on.",
        )


def _driver(outcome: SignedResult, demand: Requirement, image: str) -> Iterator[TfimgError]:
    required, found = demand.policy.driver, outcome.environment.driver
    if required is not None and not (found and _within(found, demand)):
        yield PolicyViolation(
            f"{image} was tested with {f'driver {found}' if found else 'no GPU driver'}, and driver{required} is "
            "required.",
            next_step="It has to be validated with such a driver; or require the one that it was tested with.",
        )


def _within(found: str, demand: Requirement) -> bool:
    try:
        return demand.policy.driver is not None and demand.policy.driver.contains(Version(found))
    except ValueError:  # also a number of thousands of digits, which Python does not read
        return False


def _future(outcome: SignedResult, demand: Requirement, image: str) -> Iterator[TfimgError]:
    if outcome.ended > demand.now + MAX_CLOCK_SKEW:
        yield StaleEvidence(
            f"{image} was tested on {_day(outcome)} according to its evidence, which is in the future.",
            next_step="Check the clock of this machine, then that of the machine that tested it.",
        )


def _old(outcome: SignedResult, demand: Requirement, image: str) -> Iterator[TfimgError]:
    allowed, age = demand.policy.max_age, demand.now - outcome.ended
    if allowed is not None and age > allowed:
        yield StaleEvidence(
            f"{image} was last tested on {_day(outcome)}, {_duration(age)} ago, and at most {_duration(allowed)} are "
            "allowed.",
            next_step="Its publisher renews it with `tfimg renew`; or allow more with --require max-age=180d.",
        )


RULES: tuple[Callable[[SignedResult, Requirement, str], Iterator[TfimgError]], ...] = (
    _other_image,
    _failed,
    _skips,
    _future,
    _level,
    _gpu,
    _driver,
    _old,
)
"""The rules, the gravest first."""


def _day(outcome: SignedResult) -> str:
    return outcome.ended.date().isoformat()


def _duration(time: timedelta) -> str:
    hours = int(time.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} hours"

"""Check a test result against a policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.errors import PolicyViolation, StaleEvidence, TfimgError
from tfimg.evidence.policy import EVIDENCE_LEVELS, EvidenceLevel, Policy, device_in_tag
from tfimg.evidence.results import SignedResult
from tfimg.recipe.tags import find_contradiction

MAX_CLOCK_SKEW = timedelta(minutes=10)
"""Difference of two machines' clocks beyond which a test result is from the future."""

MAX_LISTED = 3
"""Failed checks that a message names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """Requirements of a test result: the policy, the level with its reason, the time, the manifest's digest.

    `image` is the image's name in messages; `tag` is empty for an image that was requested by digest alone.
    """

    policy: Policy
    level: EvidenceLevel
    reason: str
    now: datetime
    image: str
    tag: str
    digest: str


def find_violation(result: SignedResult, required: Requirement) -> TfimgError | None:
    """Return the error of the first rule that a test result violates, the gravest first; None if it meets all."""
    return next(_violations(result, required), None)


def find_tag_mismatch(result: SignedResult, *, image: str, tag: str, digest: str) -> PolicyViolation | None:
    """Return an error if a tag names another image than the tested one."""
    # A genuine image of another release or device meets every other rule: only its tag shows that it was moved.
    device = device_in_tag(tag)
    stated = find_contradiction(tag, identifier=result.identifier, digest=digest)
    if stated is None and device and result.device != device:
        stated = device.upper()
    if stated is None:
        return None
    return PolicyViolation(
        f"{image} is {result.identifier}, but its tag {tag} states {stated}.",
        next_step="The tag was moved to another image: ask its publisher, or see `tfimg history`.",
    )


def _violations(result: SignedResult, required: Requirement) -> Iterator[TfimgError]:
    image, policy, day = required.image, required.policy, result.ended.date().isoformat()
    if mismatch := find_tag_mismatch(result, image=image, tag=required.tag, digest=required.digest):
        yield mismatch
    if not result.is_pass and (result.failed or not result.missing):
        failures = ", ".join(result.failed[:MAX_LISTED]) or "the suite did not finish"
        yield PolicyViolation(
            f"{image} failed its tests on {day}: {failures}.",
            next_step="Do not use it; ask its publisher, or validate it on this machine with `tfimg validate`.",
        )
    if result.missing:
        first, *others = result.missing
        more = f", and {len(others)} more" if others else ""
        yield PolicyViolation(
            f"{image} did not pass {first.name}, which is required: the check was skipped on {day} "
            f"({first.reason or 'without a reason'}){more}.",
            next_step="Validate it on a machine where no check is skipped; a skipped check does not count as passed.",
        )
    age = required.now - result.ended
    if age < -MAX_CLOCK_SKEW:
        yield StaleEvidence(
            f"{image} was tested on {day} according to its evidence, which is in the future.",
            next_step="Check the clock of this machine, then that of the machine that tested it.",
        )
    if EVIDENCE_LEVELS.index(result.proven_level) < EVIDENCE_LEVELS.index(required.level):
        yield PolicyViolation(
            f"{image} has level {result.proven_level}, but level {required.level} is required: {required.reason}.",
            next_step="Validate it on its device and publish it again; or lower the requirement deliberately.",
        )
    gpus, driver = result.environment.gpus, result.environment.driver
    if policy.gpu and policy.gpu not in {gpu.capability for gpu in gpus}:
        names = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in gpus) or "no GPU at all"
        yield PolicyViolation(
            f"{image} was tested on {names}, and a GPU of {policy.gpu} is required.",
            next_step="Validate it on such a GPU; or require the one that it was tested on.",
        )
    if policy.driver is not None and not (driver and _is_in_range(driver, policy.driver)):
        yield PolicyViolation(
            f"{image} was tested with {f'driver {driver}' if driver else 'no GPU driver'}, and driver{policy.driver} "
            "is required.",
            next_step="Validate it with such a driver; or require the one that it was tested with.",
        )
    if policy.max_age is not None and age > policy.max_age:
        yield StaleEvidence(
            f"{image} was last tested on {day}, {_duration(age)} ago, and at most {_duration(policy.max_age)} are "
            "allowed.",
            next_step="Its publisher renews it with `tfimg renew`; or allow more with --require max-age=180d.",
        )


def _is_in_range(version: str, allowed: SpecifierSet) -> bool:
    try:
        return allowed.contains(Version(version))
    except ValueError:  # also a number of thousands of digits, which Python does not read
        return False


def _duration(time: timedelta) -> str:
    hours = int(time.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} hours"

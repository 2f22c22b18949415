"""Check a test result against a policy, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
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
    """Return the error of the first rule that a test result violates; None if it meets all."""
    return next((error for rule in RULES if (error := rule(result, required))), None)


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


def _check_tag(result: SignedResult, required: Requirement) -> TfimgError | None:
    return find_tag_mismatch(result, image=required.image, tag=required.tag, digest=required.digest)


def _check_failures(result: SignedResult, required: Requirement) -> TfimgError | None:
    if result.is_pass or (result.missing and not result.failed):
        return None
    failures = ", ".join(result.failed[:MAX_LISTED]) or "the suite did not finish"
    return PolicyViolation(
        f"{required.image} failed its tests on {_day(result)}: {failures}.",
        next_step="Do not use it; ask its publisher, or validate it on this machine with `tfimg validate`.",
    )


def _check_skipped(result: SignedResult, required: Requirement) -> TfimgError | None:
    if not result.missing:
        return None
    first, *others = result.missing
    more = f", and {len(others)} more" if others else ""
    return PolicyViolation(
        f"{required.image} has no proof of {first.name}, which it needs: the check was skipped on {_day(result)} "
        f"({first.reason or 'without a reason'}){more}.",
        next_step="A skipped check is never green: validate the image where no check is skipped.",
    )


def _check_future(result: SignedResult, required: Requirement) -> TfimgError | None:
    if result.ended <= required.now + MAX_CLOCK_SKEW:
        return None
    return StaleEvidence(
        f"{required.image} was tested on {_day(result)} according to its evidence, which is in the future.",
        next_step="Check the clock of this machine, then that of the machine that tested it.",
    )


def _check_level(result: SignedResult, required: Requirement) -> TfimgError | None:
    if EVIDENCE_LEVELS.index(result.proven_level) >= EVIDENCE_LEVELS.index(required.level):
        return None
    return PolicyViolation(
        f"{required.image} is {result.proven_level}, and has to be {required.level}: {required.reason}.",
        next_step="Validate it on its device and publish it again; or lower the requirement deliberately.",
    )


def _check_gpu(result: SignedResult, required: Requirement) -> TfimgError | None:
    gpus, gpu = result.environment.gpus, required.policy.gpu
    if not gpu or gpu in {one.capability for one in gpus}:
        return None
    names = ", ".join(f"{one.name} ({one.capability})" for one in gpus) or "no GPU at all"
    return PolicyViolation(
        f"{required.image} was tested on {names}, and a GPU of {gpu} is required.",
        next_step="Validate it on such a GPU; or require the one that it was tested on.",
    )


def _check_driver(result: SignedResult, required: Requirement) -> TfimgError | None:
    allowed, driver = required.policy.driver, result.environment.driver
    if allowed is None or (driver and _is_in_range(driver, allowed)):
        return None
    tested = f"driver {driver}" if driver else "no GPU driver"
    return PolicyViolation(
        f"{required.image} was tested with {tested}, and driver{allowed} is required.",
        next_step="Validate it with such a driver; or require the one that it was tested with.",
    )


def _is_in_range(version: str, allowed: SpecifierSet) -> bool:
    try:
        return allowed.contains(Version(version))
    except ValueError:  # also a number of thousands of digits, which Python does not read
        return False


def _check_age(result: SignedResult, required: Requirement) -> TfimgError | None:
    allowed, age = required.policy.max_age, required.now - result.ended
    if allowed is None or age <= allowed:
        return None
    return StaleEvidence(
        f"{required.image} was last tested on {_day(result)}, {_duration(age)} ago, and at most {_duration(allowed)} "
        "are allowed.",
        next_step="Its publisher renews it with `tfimg renew`; or allow more with --require max-age=180d.",
    )


RULES: tuple[Callable[[SignedResult, Requirement], TfimgError | None], ...] = (
    _check_tag,
    _check_failures,
    _check_skipped,
    _check_future,
    _check_level,
    _check_gpu,
    _check_driver,
    _check_age,
)
"""The rules, the gravest first."""


def _day(result: SignedResult) -> str:
    return result.ended.date().isoformat()


def _duration(time: timedelta) -> str:
    hours = int(time.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} hours"

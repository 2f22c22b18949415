"""Verify an image in a registry: its attestations, the signatures, and the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.attestations import attach, envelopes, promotions
from tfimg.attestations.keys import VerifyingKey
from tfimg.attestations.policy import Policy
from tfimg.attestations.predicates import SignedResult, read_result
from tfimg.core.errors import PolicyViolation, StaleAttestations, TamperedError, TfimgError
from tfimg.core.events import ProgressEvent, ignore
from tfimg.engine.interface import Engine
from tfimg.matrix.devices import CPU, DEVICES
from tfimg.recipe.tags import find_contradiction
from tfimg.registry.documents import Reader, require_manifest

MAX_CLOCK_SKEW = timedelta(minutes=10)
"""Difference of two machines' clocks beyond which a test result is from the future."""

MAX_LISTED = 3  # failed checks that a message names


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageAttestations:
    """The statements about an image that trusted keys signed; `image` is its name in messages."""

    image: str
    digest: str
    statements: tuple[attach.VerifiedStatement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedImage(ImageAttestations):
    """An image whose attestations are genuine and meet the policy.

    `outcome` is the deciding test result, `signer` the fingerprint of its key.
    """

    outcome: SignedResult
    signer: str

    @property
    def kinds(self) -> frozenset[str]:
        """The predicate types of the statements."""
        return frozenset(statement.predicate_type for statement in self.statements)

    def to_json(self) -> dict[str, Any]:
        """Return what is proven as a JSON object."""
        return {
            "image": self.image,
            "digest": self.digest,
            "signer": self.signer,
            "level": self.outcome.proven_level,
            "tested": self.outcome.model_dump(mode="json"),
            "attestations": sorted(self.kinds),
        }


def verify(
    registry: Reader,
    reference: str,
    keys: Sequence[VerifyingKey],
    policy: Policy,
    *,
    now: datetime,
    tag: str | None = None,
) -> VerifiedImage:
    """Resolve a tag or digest, verify the signatures of its attestations, check the newest result against the policy.

    `tag` is the name whose promise counts if `reference` is a digest; a promotion has to name it.

    The newest result decides. One that is not a pass (failed or incomplete, of any trusted key) blocks all older ones,
    and those of the same time. A pass that proves less than required, as from a machine without a GPU, does not
    contradict an older result. Fails closed: `NotInRegistry`, `NetworkError`, `UnsignedError` (no attestations, or
    another key's), `TamperedError`, `WithdrawnError`, `PolicyViolation`, `StaleAttestations`, `InvalidKey`.
    """
    attestations = read_attestations(registry, reference, keys, policy)
    image, digest = attestations.image, attestations.digest
    name = tag or ("" if reference.startswith("sha256:") else reference)
    known = promotions.read_statements(attestations.statements, image=image)
    repository = policy.origin or registry.repository
    if not policy.allow_withdrawn:
        promotions.require_not_withdrawn(known, image=image, repository=repository, tag=name)
    outcome, signer = judge_results(attestations, policy, name, now)
    if name and not known.promotions_of(repository, name):
        raise PolicyViolation(
            f"{image} has attestations, but no signed promotion that gives it the tag {name} of {repository}.",
            next_step="Anyone who can write to the registry could have moved the tag. For a mirror, name the "
            "publisher's repository with --origin; otherwise ask the publisher, or verify by digest.",
        )
    return VerifiedImage(image=image, digest=digest, outcome=outcome, signer=signer, statements=attestations.statements)


def read_attestations(
    registry: Reader, reference: str, keys: Sequence[VerifyingKey], policy: Policy
) -> ImageAttestations:
    """Resolve a tag or digest and return what trusted keys signed about the image. Raises as `verify`."""
    accepted = policy.accepted_keys(keys)
    is_digest = reference.startswith("sha256:")
    image = f"{registry.repository}{'@' if is_digest else ':'}{reference}"
    digest = require_manifest(registry, reference).digest
    if is_digest and digest != reference:
        raise TamperedError(
            f"The registry's answer for {image} has the digest {digest}.",
            next_step="Do not use it: the registry, or a proxy before it, changes what it sends.",
        )
    attestations = attach.collect_envelopes(registry, digest)
    statements = attach.verify_signatures(attestations, accepted, image=image, digest=digest)
    return ImageAttestations(image=image, digest=digest, statements=statements)


def read_results(attestations: ImageAttestations) -> tuple[tuple[SignedResult, str], ...]:
    """Return the test results of an image, each with its signer. Raises `TamperedError` and `PolicyViolation`.

    An unreadable one is an error: it may be the newest, and a failure.
    """
    results = tuple(
        (read_result(statement.predicate, image=attestations.image), statement.signer)
        for statement in attestations.statements
        if statement.predicate_type == envelopes.TEST_RESULT
    )
    if not results:
        raise PolicyViolation(
            f"{attestations.image} has signed attestations, but no test result.",
            next_step="Publish it with `tfimg publish`, which validates it first.",
        )
    return results


def pull_verified(engine: Engine, reference: str, on_event: Callable[[ProgressEvent], None] = ignore) -> None:
    """Pull REPOSITORY@DIGEST. Raises `TamperedError` if the registry sends the engine another digest."""
    pulled = engine.pull(reference, on_event)
    if pulled != reference.partition("@")[2]:
        raise TamperedError(
            f"The engine received {pulled} for {reference}, which is not what was verified.",
            next_step="Do not use it: the registry answers differently to different programs.",
        )


def find_tag_mismatch(result: SignedResult, attestations: ImageAttestations, tag: str) -> PolicyViolation | None:
    """Return an error if a tag names another image than the tested one."""
    # A genuine image of another release or device meets every other rule: only its tag shows that it was moved.
    device = next((device for device in DEVICES if device != CPU and device in tag.split("-")[1:]), None)
    stated = find_contradiction(tag, identifier=result.identifier, digest=attestations.digest)
    if stated is None and (device is None or result.device == device):
        return None
    return PolicyViolation(
        f"{attestations.image} is {result.identifier}, but its tag {tag} states {stated or str(device).upper()}.",
        next_step="The tag was moved to another image: ask its publisher, or see `tfimg history`.",
    )


def judge_results(attestations: ImageAttestations, policy: Policy, tag: str, now: datetime) -> tuple[SignedResult, str]:
    """Return the newest result that meets the policy, with its signer, unless a newer one is not a pass.

    `tag` is empty for an image that was requested by digest alone. Raises as `verify`.
    """

    def newness(result: tuple[SignedResult, str]) -> tuple[bool, datetime, bool]:
        # A pass from the future is the oldest: it neither counts nor hides a failure.
        blocks = not result[0].is_pass
        return blocks or result[0].ended - now <= MAX_CLOCK_SKEW, result[0].ended, blocks

    violations: list[TfimgError] = []
    for result in sorted(read_results(attestations), key=newness, reverse=True):
        violation = next(_violations(result[0], attestations, policy, tag, now), None)
        if violation is None:
            return result
        violations.append(violation)
        if not result[0].is_pass:
            raise violation
    raise violations[0]


def _violations(
    result: SignedResult, attestations: ImageAttestations, policy: Policy, tag: str, now: datetime
) -> Iterator[TfimgError]:
    """Yield the errors of the rules that a test result violates, the gravest first.

    `tag` is empty for an image that was requested by digest alone.
    """
    image, day = attestations.image, result.ended.date().isoformat()
    if mismatch := find_tag_mismatch(result, attestations, tag):
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
    age = now - result.ended
    if age < -MAX_CLOCK_SKEW:
        yield StaleAttestations(
            f"{image} was tested on {day} according to its attestations, which is in the future.",
            next_step="Check the clock of this machine, then that of the machine that tested it.",
        )
    promise = policy.find_promise(tag)
    level, reason = promise.level, f"its tag promises it ({promise.reason})" if tag else "a lower level is not a proof"
    if policy.level:
        level, reason = policy.level, "the policy requires it"
    if result.proven_level < level:
        yield PolicyViolation(
            f"{image} has level {result.proven_level}, but level {level} is required: {reason}.",
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
    yield from _find_end_of_life(result, image, policy, now.date())
    if policy.max_age is not None and age > policy.max_age:
        yield StaleAttestations(
            f"{image} was last tested on {day}, {_duration(age)} ago, and at most {_duration(policy.max_age)} are "
            "allowed.",
            next_step="Its publisher renews it with `tfimg publish --renew`; or allow more with --require "
            "max-age=180d.",
        )


def _find_end_of_life(result: SignedResult, image: str, policy: Policy, today: date) -> Iterator[PolicyViolation]:
    """Yield an error if the policy refuses what gets no more security fixes, and that is so or cannot be told."""
    if not policy.refuse_end_of_life:
        return
    ends = policy.find_support_ends(result.identifier)
    if ends is None:
        yield PolicyViolation(
            f"{image} is {result.identifier}, of which the matrix does not know whether it gets security fixes.",
            next_step="The policy refuses what gets none: verify it with the matrix that it was built from.",
        )
    elif ended := [end.describe(today) for end in ends if end.has_ended(today)]:
        yield PolicyViolation(
            f"{image} gets no more security fixes: {', '.join(ended)}.",
            next_step="Use an image of newer versions (`tfimg list` shows them), or a policy that does not refuse it.",
        )


def _is_in_range(version: str, allowed: SpecifierSet) -> bool:
    try:
        return allowed.contains(Version(version))
    except ValueError:  # also a number of thousands of digits, which Python does not read
        return False


def _duration(time: timedelta) -> str:
    hours = int(time.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= 48 else f"{hours} hours"

"""Verify an image in a registry: its evidence, the signatures, and the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tfimg.core.errors import PolicyViolation, TamperedError, TfimgError
from tfimg.evidence.collect import CollectedEnvelope, collect_envelopes
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.policy import EvidenceLevel, Policy
from tfimg.evidence.policy_check import MAX_CLOCK_SKEW, Requirement, find_violation
from tfimg.evidence.promotions import read_statements, require_not_withdrawn, require_promoted
from tfimg.evidence.results import SignedResult, read_result
from tfimg.evidence.signatures import VerifiedStatement, filter_verified, verify_signatures
from tfimg.evidence.statement import TEST_RESULT
from tfimg.registry.protocol import Registry, require_manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageEvidence:
    """The statements about an image that trusted keys signed; `image` is its name in messages."""

    image: str
    digest: str
    statements: tuple[VerifiedStatement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedImage:
    """An image whose evidence is genuine and meets the policy.

    `outcome` is the deciding test result, `signer` the fingerprint of its key.
    """

    image: str
    digest: str
    outcome: SignedResult
    signer: str
    statements: tuple[VerifiedStatement, ...]

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
            "evidence": sorted(self.kinds),
        }


def verify(
    registry: Registry,
    reference: str,
    keys: Sequence[VerifyingKey],
    policy: Policy,
    *,
    now: datetime,
    tag: str | None = None,
    origin: str | None = None,
    later: Sequence[CollectedEnvelope] = (),
    allow_withdrawn: bool = False,
    needs_promotion: bool = True,
) -> VerifiedImage:
    """Resolve a tag or digest, verify the signatures of its evidence, check the newest test result against the policy.

    `tag` is the name whose promise counts if `reference` is a digest. A promotion has to name this tag of `origin`, the
    publisher's repository if this one is a mirror. `later` are statements that the registry does not have. Withdrawn
    images are refused, unless `allow_withdrawn`; a tag that the user gives the image needs no promotion.

    The newest result decides. One that is not a pass (failed or incomplete, of any trusted key) blocks all older ones,
    and those of the same time. A pass that proves less than required, as from a machine without a GPU, does not
    contradict an older result. Fails closed: `NotInRegistry`, `NetworkError`, `UnsignedError` (no evidence, or another
    key's), `TamperedError`, `WithdrawnError`, `PolicyViolation`, `StaleEvidence`, `InvalidKey`.
    """
    evidence = read_evidence(registry, reference, keys, policy)
    image, digest = evidence.image, evidence.digest
    name = tag or ("" if _is_digest(reference) else reference)
    later_statements = filter_verified(later, policy.accepted_keys(keys), digest=digest)
    known = read_statements((*evidence.statements, *later_statements), image=image)
    repository = origin or registry.repository
    if not allow_withdrawn:
        require_not_withdrawn(known, image=image, repository=repository, tag=name)
    level, reason = _required_level(policy, name)
    required = Requirement(policy=policy, level=level, reason=reason, now=now, image=image, tag=name, digest=digest)
    outcome, signer = _decide(read_results(evidence), required)
    if needs_promotion:
        require_promoted(known, image=image, repository=repository, tag=name)
    return VerifiedImage(image=image, digest=digest, outcome=outcome, signer=signer, statements=evidence.statements)


def read_evidence(registry: Registry, reference: str, keys: Sequence[VerifyingKey], policy: Policy) -> ImageEvidence:
    """Resolve a tag or digest and return what trusted keys signed about the image. Raises as `verify`."""
    accepted = policy.accepted_keys(keys)
    image = f"{registry.repository}{'@' if _is_digest(reference) else ':'}{reference}"
    digest = require_manifest(registry, reference).digest
    if _is_digest(reference) and digest != reference:
        raise TamperedError(
            f"The registry's answer for {image} has the digest {digest}.",
            next_step="Do not use it: the registry, or a proxy before it, changes what it sends.",
        )
    evidence = collect_envelopes(registry, digest)
    statements = verify_signatures(evidence, accepted, image=image, digest=digest)
    return ImageEvidence(image=image, digest=digest, statements=statements)


def read_results(evidence: ImageEvidence) -> tuple[tuple[SignedResult, str], ...]:
    """Return the test results of an image, each with its signer. Raises `TamperedError` and `PolicyViolation`.

    An unreadable one is an error: it may be the newest, and a failure.
    """
    results = tuple(
        (read_result(statement.predicate, image=evidence.image), statement.signer)
        for statement in evidence.statements
        if statement.predicate_type == TEST_RESULT
    )
    if not results:
        raise PolicyViolation(
            f"{evidence.image} has signed evidence, but no test result.",
            next_step="Publish it with `tfimg publish`, which validates it first.",
        )
    return results


def _is_digest(reference: str) -> bool:
    return reference.startswith("sha256:")


def _required_level(policy: Policy, tag: str) -> tuple[EvidenceLevel, str]:
    """Return the level that an image has to have, and the reason."""
    if policy.level:
        return policy.level, "the policy requires it"
    promise = policy.find_promise(tag)
    return promise.level, f"its tag promises it ({promise.reason})" if tag else "a lower level is not a proof"


def _decide(results: Sequence[tuple[SignedResult, str]], required: Requirement) -> tuple[SignedResult, str]:
    """Return the newest result that meets the requirement, unless a newer one is not a pass."""

    def newness(result: tuple[SignedResult, str]) -> tuple[bool, datetime, bool]:
        # A pass from the future is the oldest: it neither counts nor hides a failure.
        blocks = not result[0].is_pass
        return blocks or result[0].ended <= required.now + MAX_CLOCK_SKEW, result[0].ended, blocks

    violations: list[TfimgError] = []
    for result in sorted(results, key=newness, reverse=True):
        violation = find_violation(result[0], required)
        if violation is None:
            return result
        violations.append(violation)
        if not result[0].is_pass:
            raise violation
    raise violations[0]

"""Verify an image in a registry: its evidence, its signatures, and the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tfimg.core.errors import PolicyViolation, TamperedError, TfimgError
from tfimg.evidence.collect import CollectedEnvelope, collect_envelopes
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.policy import Policy
from tfimg.evidence.policy_check import MAX_CLOCK_SKEW, Requirement, find_violation
from tfimg.evidence.promotions import read_statements, require_not_withdrawn, require_promoted
from tfimg.evidence.results import SignedResult, read_result
from tfimg.evidence.signatures import VerifiedStatement, filter_verified, verify_signatures
from tfimg.evidence.statement import TEST_RESULT
from tfimg.registry.protocol import Manifest, Registry, require_manifest


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageEvidence:
    """The statements about an image that trusted keys signed; `image` is its name in messages."""

    image: str
    digest: str
    statements: tuple[VerifiedStatement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedImage:
    """An image whose evidence is genuine and meets the policy.

    `outcome` is the test result that decided, `signer` the fingerprint of the key that signed it; `statements` are all
    that the keys signed.
    """

    image: str
    digest: str
    outcome: SignedResult
    signer: str
    statements: tuple[VerifiedStatement, ...]


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
    """Resolve a tag or digest, verify the signatures of its evidence, compare the newest test result with the policy.

    `tag` is a name that the image is to have though `reference` is its digest: what that promises counts. A promotion
    has to name this tag of `origin`, which of a mirror is the publisher's repository. `later` are statements that the
    registry does not have. Withdrawn images are refused, unless `allow_withdrawn`; a tag that the user gives the image
    needs no promotion.

    The newest result decides. One that is no pass (failed, incomplete, of whichever trusted key) blocks every older
    one; of two with the same time, the one that is no pass counts. A pass that shows less than is required, as from a
    machine without a GPU, contradicts no older result, which may show more. Fails closed: `NotInRegistry`,
    `NetworkError`, `UnsignedError` (no evidence, or another key's), `TamperedError`, `WithdrawnError`,
    `PolicyViolation`, `StaleEvidence`, `InvalidKey` (the policy refuses every key).
    """
    evidence = read_evidence(registry, reference, keys, policy)
    named = tag or ("" if reference.startswith("sha256:") else reference)
    later_statements = filter_verified(later, policy.accepted_keys(keys), digest=evidence.digest)
    known = read_statements((*evidence.statements, *later_statements), image=evidence.image)
    repository = origin or registry.repository
    if not allow_withdrawn:
        require_not_withdrawn(known, image=evidence.image, repository=repository, tag=named)
    demand = _demand(policy, named, evidence.digest, now)
    outcome, signer = _deciding(read_results(evidence), demand, evidence.image)
    if needs_promotion:
        require_promoted(known, image=evidence.image, repository=repository, tag=named)
    return VerifiedImage(
        image=evidence.image,
        digest=evidence.digest,
        outcome=outcome,
        signer=signer,
        statements=evidence.statements,
    )


def read_evidence(registry: Registry, reference: str, keys: Sequence[VerifyingKey], policy: Policy) -> ImageEvidence:
    """Resolve a tag or digest and return what trusted keys signed about the image. Raises as `verify` does."""
    accepted = policy.accepted_keys(keys)
    image = f"{registry.repository}{'@' if reference.startswith('sha256:') else ':'}{reference}"
    manifest = _found(registry, reference, image)
    evidence = collect_envelopes(registry, manifest.digest)
    statements = verify_signatures(evidence, accepted, image=image, digest=manifest.digest)
    return ImageEvidence(image=image, digest=manifest.digest, statements=statements)


def read_results(evidence: ImageEvidence) -> tuple[tuple[SignedResult, str], ...]:
    """Return the test results of an image, each with its signer. Raises `TamperedError` and `PolicyViolation`.

    One that cannot be read is an error: it may be the newest, and a failure.
    """
    found = tuple(
        (read_result(one.predicate, image=evidence.image), one.signer)
        for one in evidence.statements
        if one.predicate_type == TEST_RESULT
    )
    if not found:
        raise PolicyViolation(
            f"{evidence.image} has signed evidence, and no test result is among it.",
            next_step="Publish it with `tfimg publish`, which validates it first.",
        )
    return found


def _found(registry: Registry, reference: str, image: str) -> Manifest:
    manifest = require_manifest(registry, reference)
    if reference.startswith("sha256:") and manifest.digest != reference:
        raise TamperedError(
            f"The registry's answer for {image} has the digest {manifest.digest}.",
            next_step="Do not use it: the registry, or a proxy before it, changes what it sends.",
        )
    return manifest


def _demand(policy: Policy, tag: str, digest: str, now: datetime) -> Requirement:
    promise = policy.find_promise(tag)
    if policy.level:
        level, why = policy.level, "that is required"
    else:
        level = promise.level
        why = f"its tag promises it ({promise.reason})" if tag else "a lower level is no proof"
    return Requirement(policy=policy, level=level, why=why, now=now, tag=tag, digest=digest)


def _deciding(results: Sequence[tuple[SignedResult, str]], demand: Requirement, image: str) -> tuple[SignedResult, str]:
    """Return the newest result that meets the demand, unless a newer one is no pass."""

    def age(result: tuple[SignedResult, str]) -> tuple[bool, datetime, bool]:
        # A pass from the future is the oldest: it neither counts nor hides a failure.
        outcome, _ = result
        blocks = not outcome.is_pass
        return blocks or outcome.ended <= demand.now + MAX_CLOCK_SKEW, outcome.ended, blocks

    reasons: list[TfimgError] = []
    for result in sorted(results, key=age, reverse=True):
        reason = find_violation(result[0], demand, image=image)
        if reason is None:
            return result
        reasons.append(reason)
        if not result[0].is_pass:
            raise reason
    raise reasons[0]

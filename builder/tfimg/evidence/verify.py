"""Reference → what is proven of the bytes behind it, or the error that says what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tfimg.errors import NotInRegistry, PolicyUnmet, TamperedError
from tfimg.evidence.believe import Genuine, believe
from tfimg.evidence.collect import collect
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.outcome import Outcome, read_outcome
from tfimg.evidence.policy import Policy
from tfimg.evidence.promotions import read_statements, require_not_withdrawn, require_promoted
from tfimg.evidence.statement import TEST_RESULT
from tfimg.evidence.unmet import CLOCKS, Demand, unmet
from tfimg.registry.protocol import Manifest, Registry


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """An image whose evidence is genuine and shows what was required.

    `outcome` is the test result that shows it, `signer` the fingerprint of the key that signed that one; `statements`
    are all that the keys signed.
    """

    image: str
    digest: str
    outcome: Outcome
    signer: str
    statements: tuple[Genuine, ...]


def verify(
    registry: Registry,
    reference: str,
    keys: Sequence[VerifyingKey],
    policy: Policy,
    *,
    now: datetime,
    tag: str | None = None,
    origin: str | None = None,
    later: Sequence[Genuine] = (),
    allow_withdrawn: bool = False,
) -> Verified:
    """Resolve a tag or digest, read all evidence about it, believe what the keys signed, hold it against the policy.

    `tag` is a name that the image is to have though `reference` is its digest: what that promises counts. Promotions
    have to name the tag of `origin`, which of a mirror is the publisher's repository; `later` are statements that are
    not in the registry yet.
    Of several test results the newest that is enough counts, unless one that failed is newer. Fails closed:
    `NotInRegistry`, `NetworkError`, `UnsignedError` (no evidence, or another key's), `TamperedError`,
    `WithdrawnError`, `PolicyUnmet`, `StaleEvidence`.
    """
    by_digest = reference.startswith("sha256:")
    image = f"{registry.repository}{'@' if by_digest else ':'}{reference}"
    manifest = _found(registry, reference, image)
    statements = believe(collect(registry, manifest.digest), keys, image=image, digest=manifest.digest)
    named = tag or (None if by_digest else reference)
    known, repository = read_statements((*statements, *later), image=image), origin or registry.repository
    if not allow_withdrawn:
        require_not_withdrawn(known, image=image, repository=repository, tag=named)
    demand = _demand(policy, tag or ("" if by_digest else reference), now)
    outcomes = sorted(
        (
            (read_outcome(one.predicate, image=image), one.signer)
            for one in statements
            if one.predicate_type == TEST_RESULT
        ),
        key=lambda pair: _order(pair[0], now),
        reverse=True,
    )
    outcome, signer = _enough(outcomes, demand, image)
    require_promoted(known, image=image, repository=repository, tag=named)
    return Verified(
        image=image, digest=manifest.digest, outcome=outcome, signer=signer, statements=statements
    )


def _found(registry: Registry, reference: str, image: str) -> Manifest:
    manifest = registry.find(reference)
    if manifest is None:
        raise NotInRegistry(f"There is no {image}.", next_step="Check the name and the tag.")
    if reference.startswith("sha256:") and manifest.digest != reference:
        raise TamperedError(
            f"The registry's answer for {image} has the digest {manifest.digest}.",
            next_step="Do not use it: the registry or something before it changes what it sends.",
        )
    return manifest


def _order(outcome: Outcome, now: datetime) -> tuple[bool, datetime, bool]:
    """The newest result has the highest, of two at once the failure; no pass hides others with a time to come."""
    failed = bool(outcome.failed)
    return failed or outcome.ended <= now + CLOCKS, outcome.ended, failed


def _demand(policy: Policy, tag: str, now: datetime) -> Demand:
    if policy.level:
        return Demand(policy=policy, level=policy.level, why="that is required", now=now, tag=tag)
    promise = policy.promise(tag)
    why = f"the name promises it ({promise.reason})" if tag else "less is no proof"
    return Demand(policy=policy, level=promise.level, why=why, now=now, tag=tag)


def _enough(outcomes: Sequence[tuple[Outcome, str]], demand: Demand, image: str) -> tuple[Outcome, str]:
    if not outcomes:
        raise PolicyUnmet(
            f"{image} has signed evidence, and no test result is among it.",
            next_step="Publish it with `tfimg publish`, which validates it first.",
        )
    reasons = [unmet(outcome, demand, image=image) for outcome, _ in outcomes]
    for found, reason in zip(outcomes, reasons, strict=True):
        if reason is None:
            return found
        if found[0].failed:  # what passed before has failed since
            raise reason
    raise next(filter(None, reasons))

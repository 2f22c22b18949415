"""Reference → what is proven of the bytes behind it, or the error that says what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tfimg.recipe.describe import Level
from tfimg.registry.keys import VerifyingKey
from tfimg.registry.policy import Policy
from tfimg.registry.protocol import Registry


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """An image whose evidence is genuine and shows what was required."""

    reference: str
    digest: str
    level: Level


def verify(
    registry: Registry, reference: str, keys: Sequence[VerifyingKey], policy: Policy, *, now: datetime
) -> Verified:
    """Resolve a tag or digest, read all evidence about it, believe what the keys signed, hold it against the policy.

    Fails closed: `NotInRegistry`, `NetworkError`, `UnsignedError` (no evidence, or another key's), `TamperedError`,
    `PolicyUnmet`, `StaleEvidence`.
    """
    raise NotImplementedError

"""What the commands that move tags need: the signing key, the trusted keys, the repository and its publisher."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.keys import signing_key, trusted_keys
from tfimg.core.errors import UsageError
from tfimg.core.journal import Journal
from tfimg.core.levels import Level
from tfimg.evidence.keys import SigningKey, VerifyingKey
from tfimg.evidence.policy import EVIDENCE_LEVELS, EvidenceLevel, Policy
from tfimg.evidence.verify import verify
from tfimg.publish.publisher import Publisher
from tfimg.publish.runs import folder_of
from tfimg.registry.reference import Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """The key that signs, the publisher's name, and the keys whose statements count, that of `key` among them."""

    key: SigningKey
    name: str
    trusted: tuple[VerifyingKey, ...]


def signer_of(context: Context) -> Signer:
    """Read --key, --trust and --publisher. Raises `UsageError` where no key is named."""
    arguments = context.arguments
    if not arguments.key:
        raise UsageError(
            "No key is named to sign the evidence.",
            next_step="Make a pair with `tfimg keys DIR` and name --key DIR/tfimg.key.",
        )
    key = signing_key(context, arguments.key)
    return Signer(
        key=key,
        name=arguments.publisher or os.uname().nodename,
        trusted=(key.verifying_key, *trusted_keys(context)),
    )


def publisher_of(
    context: Context, target: Reference, signer: Signer, policy: Policy, *, run: str, journal: Journal
) -> Publisher:
    """Return the publisher of a run to a repository. Raises `InvalidKey` for a key that the policy refuses."""
    policy.accepted_keys([signer.key.verifying_key])
    registry = context.registry(target)
    trusted = policy.accepted_keys((*signer.trusted, *policy.trusted_keys))
    reinstates = getattr(context.arguments, "reinstate", False)

    def prove(digest: str, least: Level) -> Level:
        level: EvidenceLevel = next((one for one in EVIDENCE_LEVELS if one == least), "built")
        asked = Policy(level=level, max_age=policy.max_age, refused_keys=policy.refused_keys)
        found = verify(registry, digest, trusted, asked, now=context.services.now(), allow_withdrawn=reinstates)
        return found.outcome.proven_level

    return Publisher(
        registry=registry,
        journal=journal,
        run=run,
        key=signer.key,
        trusted=trusted,
        name=signer.name,
        version=__version__,
        locks=folder_of(context.services.state, target.repository) / "locks",
        prove=prove,
        now=lambda: context.services.now(),
        reinstates=reinstates,
    )


def default_repository(context: Context, tag: str) -> str:
    """Return the repository of TFIMG_REPOSITORY, where only a tag is named. Raises `UsageError`."""
    if named := context.services.environ.get("TFIMG_REPOSITORY"):
        return named
    raise UsageError(
        f"{tag} is a tag, and no repository is named.",
        next_step="Write `REGISTRY/NAME TAG`, or name the repository in TFIMG_REPOSITORY.",
    )

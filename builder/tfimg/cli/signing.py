"""Options of the commands that move tags: the signing key, the trusted keys, the policy and the repository."""

from __future__ import annotations

import os

from tfimg.cli.context import Context
from tfimg.cli.keys import signing_key, trusted_keys
from tfimg.cli.proofs import policy
from tfimg.core.errors import UsageError
from tfimg.evidence.keys import SigningKey
from tfimg.publish.repository import SignedRepository
from tfimg.registry.reference import Reference


def required_key(context: Context) -> SigningKey:
    """Return the private key. Raises `UsageError` without one, `InvalidKey` if the policy refuses it."""
    key = signing_key(context)
    policy(context).accepted_keys([key.verifying_key])
    return key


def signed_repository(context: Context, target: Reference, key: SigningKey) -> SignedRepository:
    """Return the repository to publish to."""
    arguments = context.arguments
    return SignedRepository(
        registry=context.registry(target),
        key=key,
        state=context.services.state,
        policy=policy(context),
        other_keys=trusted_keys(context),
        publisher=arguments.publisher or os.uname().nodename,
        reinstate=getattr(arguments, "reinstate", False),
        now=context.services.now,
    )


def default_repository(context: Context, tag: str) -> str:
    """Return the repository of TFIMG_REPOSITORY, for a tag without one. Raises `UsageError`."""
    if repository := context.services.environ.get("TFIMG_REPOSITORY"):
        return repository
    raise UsageError(
        f"{tag} is a tag, and no repository is named.",
        next_step="Write `REGISTRY/NAME TAG`, or name the repository in TFIMG_REPOSITORY.",
    )

"""Options of the commands that move tags: the signing key, the trusted keys, the policy and the repository."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tfimg.cli.context import Context
from tfimg.cli.keys import signing_key, trusted_keys
from tfimg.cli.options import SigningOptions
from tfimg.cli.proofs import read_policy
from tfimg.core.errors import UsageError
from tfimg.evidence.keys import SigningKey
from tfimg.publish.repository import SignedRepository
from tfimg.registry.reference import Reference


def required_key(options: SigningOptions, environ: Mapping[str, str]) -> SigningKey:
    """Return the private key. Raises `UsageError` without one, `InvalidKey` if the policy refuses it."""
    key = signing_key(options, environ)
    read_policy(options).accepted_keys([key.verifying_key])
    return key


def signed_repository(
    context: Context, options: SigningOptions, target: Reference, key: SigningKey, *, reinstate: bool = False
) -> SignedRepository:
    """Return the repository to publish to."""
    return SignedRepository(
        registry=context.registry(target),
        key=key,
        state=context.services.state,
        policy=read_policy(options),
        other_keys=trusted_keys(options.public_key, context.services.environ),
        publisher=options.publisher or os.uname().nodename,
        reinstate=reinstate,
        now=context.services.now,
    )


def default_repository(environ: Mapping[str, str], tag: str) -> str:
    """Return the repository of TFIMG_REPOSITORY, for a tag without one. Raises `UsageError`."""
    if repository := environ.get("TFIMG_REPOSITORY"):
        return repository
    raise UsageError(
        f"{tag} is a tag, and no repository is named.",
        next_step="Write `REGISTRY/NAME TAG`, or name the repository in TFIMG_REPOSITORY.",
    )

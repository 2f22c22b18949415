"""What the commands that move tags need: the signing key, the trusted keys, the repository and its publisher."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.keys import signing_key, trusted_keys
from tfimg.errors import UsageError
from tfimg.evidence.keyless import offered
from tfimg.evidence.keys import SigningKey, VerifyingKey
from tfimg.evidence.policy import REQUIRED, Policy, Required
from tfimg.evidence.unsigned import level_unsigned
from tfimg.evidence.verify import verify
from tfimg.journal import Journal
from tfimg.publishing.publisher import Publisher
from tfimg.publishing.runs import folder_of
from tfimg.recipe.describe import Level
from tfimg.registry.reference import Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """The key that signs, None with --unsigned, the publisher's name, and the keys whose statements count.

    `keyless`: cosign signs with the identity of the CI job too.
    """

    key: SigningKey | None
    name: str
    trusted: tuple[VerifyingKey, ...] = ()
    keyless: bool = False


def signer_of(context: Context) -> Signer:
    """Read --key, --trust, --unsigned, --keyless and --publisher. Raises `UsageError` where they do not fit."""
    arguments = context.arguments
    unsigned, keyless = (getattr(arguments, name, False) for name in ("unsigned", "keyless"))
    name = arguments.publisher or os.uname().nodename
    if unsigned and arguments.key:
        raise UsageError("--key and --unsigned contradict each other.", next_step="Leave one of them out.")
    if keyless and unsigned:
        raise UsageError(
            "--keyless and --unsigned contradict each other.", next_step="Leave one of them out."
        )
    if keyless and offered(context.environ) is None:
        raise UsageError(
            "--keyless needs a CI job that has an identity, and none is offered here.",
            next_step="On GitHub let the job have `id-token: write`, on GitLab the id token SIGSTORE_ID_TOKEN; "
            "anywhere else leave --keyless out.",
        )
    if unsigned:
        return Signer(key=None, name=name, trusted=trusted_keys(context))
    if not arguments.key:
        raise UsageError(
            "No key is named to sign the evidence.",
            next_step="Make a pair with `tfimg keys DIR` and name --key DIR/tfimg.key"
            + (
                "; --unsigned publishes without, and moves no alias."
                if hasattr(arguments, "unsigned")
                else "."
            ),
        )
    key = signing_key(context, arguments.key)
    return Signer(key=key, name=name, trusted=(key.verifying, *trusted_keys(context)), keyless=keyless)


def publisher_of(
    context: Context, target: Reference, signer: Signer, policy: Policy, *, run: str, journal: Journal
) -> Publisher:
    """Return the publisher of a run to a repository. Raises `KeyRefused` for a key that the policy refuses."""
    if signer.key:
        policy.accepted([signer.key.verifying])
    registry = context.registry(target)
    trusted = policy.accepted((*signer.trusted, *policy.trusted_keys)) if signer.trusted else ()
    reinstates = getattr(context.arguments, "reinstate", False)

    def prove(digest: str, least: Level) -> Level:
        if signer.key is None:
            return level_unsigned(registry, digest, least)
        level: Required = next((one for one in REQUIRED if one == least), "built")
        asked = Policy(level=level, max_age=policy.max_age, refused_keys=policy.refused_keys)
        found = verify(registry, digest, trusted, asked, now=context.now, allow_withdrawn=reinstates)
        return found.outcome.shown

    return Publisher(
        registry=registry, journal=journal, run=run, key=signer.key, trusted=trusted, name=signer.name,
        version=__version__, locks=folder_of(context.state, target.repository) / "locks", prove=prove,
        now=lambda: context.now, reinstates=reinstates,
    )  # fmt: skip


def default_repository(context: Context, tag: str) -> str:
    """Return the repository of TFIMG_REPOSITORY, where only a tag is named. Raises `UsageError`."""
    if named := context.environ.get("TFIMG_REPOSITORY"):
        return named
    raise UsageError(
        f"{tag} is a tag, and no repository is named.",
        next_step="Write `REGISTRY/NAME TAG`, or name the repository in TFIMG_REPOSITORY.",
    )

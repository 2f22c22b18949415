"""What commands need that move tags: the registry, whose signature, whose word counts."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.keys import signing_key
from tfimg.errors import TagMoved, UsageError
from tfimg.evidence.keyless import offered
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.policy import REQUIRED, Policy, Required
from tfimg.evidence.unsigned import level_unsigned
from tfimg.evidence.verify import verify
from tfimg.journal import Journal
from tfimg.publishing.promotion import Desk, finish
from tfimg.publishing.runs import folder_of
from tfimg.recipe.describe import Level
from tfimg.registry.reference import Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """Who publishes: the key, None where he signs nothing, and what he calls himself.

    `keyless`: the identity that his CI gives him says the same beside the key.
    """

    key: SigningKey | None
    name: str
    keyless: bool = False


def signer_of(context: Context) -> Signer:
    """What --key, --unsigned and --publisher say. Raises `UsageError` where neither of the first two does."""
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
        return Signer(key=None, name=name)
    if not arguments.key:
        raise UsageError(
            "No key is named that would sign the evidence.",
            next_step="Make a pair with `tfimg keys DIR` and name --key DIR/tfimg.key"
            + (
                "; --unsigned publishes without, and moves no alias."
                if hasattr(arguments, "unsigned")
                else "."
            ),
        )
    return Signer(key=signing_key(context, arguments.key), name=name, keyless=keyless)


def desk_of(
    context: Context, target: Reference, signer: Signer, policy: Policy, *, run: str, journal: Journal
) -> Desk:
    """Where tags are moved from."""
    registry = context.registry(target)

    def prove(digest: str, least: Level) -> Level:
        if signer.key is None:
            return level_unsigned(registry, digest, least)
        level: Required = next((one for one in REQUIRED if one == least), "built")
        asked = Policy(level=level, max_age=policy.max_age)
        return verify(registry, digest, [signer.key.verifying], asked, now=context.now).outcome.shown

    return Desk(
        registry=registry, journal=journal, run=run, key=signer.key, publisher=signer.name, version=__version__,
        locks=folder_of(context.state, target.repository) / "locks", prove=prove, now=lambda: context.now,
    )  # fmt: skip


def finish_killed(context: Context, desk: Desk) -> None:
    """Finish the tags that a killed run was moving; those that others have moved since are theirs."""
    try:
        if finish(desk):
            context.say(f"Finished what run {desk.run} was killed at.")
    except TagMoved as error:
        context.say(str(error))

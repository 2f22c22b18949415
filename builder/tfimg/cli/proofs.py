"""`tfimg verify` and `tfimg pull`: verify an image's evidence, and pull what was verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.keys import verifying_keys
from tfimg.cli.options import PolicyOptions, RequirementOptions
from tfimg.cli.output.transfers import render_transfer
from tfimg.core.errors import FileError
from tfimg.evidence.policy import Policy, parse_requirements
from tfimg.evidence.policy_file import MAX_BYTES, parse_policy
from tfimg.evidence.pull import pull_verified
from tfimg.evidence.results import ExemptCheck, SignedResult, SkippedCheck
from tfimg.evidence.statement import format_time, name_predicate
from tfimg.evidence.verify import VerifiedImage
from tfimg.evidence.verify import verify as verify_image
from tfimg.registry.reference import Reference, parse_reference, parse_repository

if TYPE_CHECKING:
    from tfimg.cli.commands.verify import Pull, Verify

MAX_LISTED = 20
"""Checks that a field names; `--json` has all."""


def verify(command: Verify, context: Context) -> int:
    """`tfimg verify IMAGE`: verify its evidence and print what that proves."""
    _print(context, _verify(context, command, parse_reference(command.image)))
    return 0


def pull(command: Pull, context: Context) -> int:
    """`tfimg pull IMAGE`: verify it, pull the verified digest, and give it the name that the user wrote."""
    reference = parse_reference(command.image)
    verified = _verify(context, command, reference)
    engine = context.services.runner()
    name = f"{reference.repository}@{verified.digest}"
    with render_transfer(context, f"pulling {name}") as on_event:
        pull_verified(engine, name, on_event)
    if reference.tag:
        engine.tag(name, [f"{reference.repository}:{reference.tag}"])
    _print(context, verified)
    context.say(f"The engine has it now, as {command.image}.")
    return 0


def _verify(context: Context, command: Verify | Pull, reference: Reference) -> VerifiedImage:
    required = read_policy(command)
    keys = verifying_keys(command.public_key, context.services.environ, required.trusted_keys)
    return verify_image(
        context.registry(reference),
        reference.target,
        keys,
        required,
        now=context.services.now(),
        tag=reference.tag,
        origin=origin(command),
    )


def origin(options: RequirementOptions) -> str | None:
    """Return the repository of --origin, whose promotions count. Raises `UsageError`."""
    return parse_repository(options.origin).repository if options.origin else None


def read_policy(options: PolicyOptions) -> Policy:
    """Return what --policy, --require and --refuse-key ask for. Raises `FileError` and `UsageError`."""
    policy = _policy_file(options.policy) if options.policy else Policy()
    policy = replace(policy, refused_keys=policy.refused_keys | set(options.refuse_key))
    requirements = options.require if isinstance(options, RequirementOptions) else None
    return policy if requirements is None else parse_requirements(requirements, policy=policy)


def _policy_file(file: str) -> Policy:
    if not Path(file).is_file():
        raise FileError(f"--policy {file} is not a file.", next_step="Name the policy's file.")
    with Path(file).open("rb") as opened:
        content = opened.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise FileError(f"--policy {file} is larger than {MAX_BYTES >> 10} KiB.", next_step="Name the policy's file.")
    return parse_policy(content.decode(), source=file)


def _print(context: Context, verified: VerifiedImage) -> None:
    outcome = verified.outcome
    if context.command.json:
        context.emit(
            {
                "event": "verified",
                "image": verified.image,
                "digest": verified.digest,
                "signer": verified.signer,
                "level": outcome.proven_level,
                "tested": outcome.model_dump(mode="json"),
                "evidence": sorted({statement.predicate_type for statement in verified.statements}),
            }
        )
        return
    machine = outcome.environment
    kinds = {name_predicate(statement.predicate_type) for statement in verified.statements}
    print_fields(
        {
            "image": verified.image,
            "digest": verified.digest,
            "identifier": outcome.identifier,
            "level": outcome.proven_level,
            "tested": f"{format_time(outcome.ended)} on "
            f"{', '.join(filter(None, (machine.host, machine.engine, machine.kernel)))}",
            "gpu": _gpus(outcome),
            "skipped": _names(outcome.skipped),
            "waived": _names(outcome.waived),
            "unproven": _names(outcome.unproven),
            "signed by": verified.signer,
            "evidence": sorted(kinds),
        }
    )


def _names(checks: Sequence[SkippedCheck | ExemptCheck]) -> str | None:
    more = f" and {len(checks) - MAX_LISTED} more" if len(checks) > MAX_LISTED else ""
    return ", ".join(check.name for check in checks[:MAX_LISTED]) + more or None


def _gpus(outcome: SignedResult) -> str:
    gpus = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in outcome.environment.gpus)
    return f"{gpus}, driver {outcome.environment.driver}" if gpus else "none"

"""`tfimg verify`, `tfimg pull`: what is proven of an image, and that image alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.keys import verifying_keys
from tfimg.cli.output.transfers import transfer
from tfimg.core.errors import FileError, TamperedError
from tfimg.engine.protocol import Engine
from tfimg.evidence.policy import Policy, parse_requirements
from tfimg.evidence.policy_file import MAX_BYTES, parse_policy
from tfimg.evidence.promotions import PROMOTION, WITHDRAWAL
from tfimg.evidence.results import ExemptCheck, SignedResult, SkippedCheck
from tfimg.evidence.statement import CYCLONEDX, PROVENANCE, REPORT, TEST_RESULT, format_time
from tfimg.evidence.verify import VerifiedImage
from tfimg.evidence.verify import verify as prove
from tfimg.registry.reference import Reference, parse_reference, parse_repository

KINDS = {
    TEST_RESULT: "test result",
    REPORT: "validation report",
    PROVENANCE: "SLSA provenance",
    CYCLONEDX: "CycloneDX bill of materials",
    PROMOTION: "promotion",
    WITHDRAWAL: "withdrawal",
}
"""Statements, in words."""

MAX_LISTED = 20
"""Checks that a field names; `--json` has all."""


def verify(context: Context) -> int:
    """`tfimg verify IMAGE`: read its evidence, say what that proves."""
    _tell(context, _proven(context, parse_reference(context.arguments.image)))
    return 0


def pull(context: Context) -> int:
    """`tfimg pull IMAGE`: verify it, pull by the digest that was verified, give it the name that was asked for."""
    reference = parse_reference(context.arguments.image)
    proven = _proven(context, reference)
    engine = context.services.runner()
    name = f"{reference.repository}@{proven.digest}"
    pull_verified(context, engine, name)
    if reference.tag:
        engine.tag(name, [f"{reference.repository}:{reference.tag}"])
    _tell(context, proven)
    context.say(f"The engine has it now, as {context.arguments.image}.")
    return 0


def pull_verified(context: Context, engine: Engine, name: str) -> None:
    """Pull REPOSITORY@DIGEST. Raises `TamperedError` where the engine is given another digest."""
    with transfer(context, f"pulling {name}") as told:
        pulled = engine.pull(name, told)
    if pulled != name.partition("@")[2]:
        raise TamperedError(
            f"The engine was given {pulled} for {name}, which is not what was verified.",
            next_step="Do not use it: the registry answers differently to different programs.",
        )


def _proven(context: Context, reference: Reference) -> VerifiedImage:
    required = policy(context)
    keys = verifying_keys(context, required.trusted_keys)
    registry = context.registry(reference)
    return prove(
        registry,
        reference.target,
        keys,
        required,
        now=context.services.now(),
        tag=reference.tag,
        origin=origin(context),
    )


def origin(context: Context) -> str | None:
    """Return the repository of --origin, whose promotions count. Raises `UsageError`."""
    named = context.arguments.origin
    return parse_repository(named).repository if named else None


def policy(context: Context) -> Policy:
    """Return what --policy, --require and --refuse-key ask for. Raises `FileError` and `UsageError`."""
    arguments = context.arguments
    read = _policy_file(arguments.policy) if arguments.policy else Policy()
    read = replace(read, refused_keys=read.refused_keys | set(arguments.refuse_key))
    words = getattr(arguments, "require", None)
    return read if words is None else parse_requirements(words, policy=read)


def _policy_file(file: str) -> Policy:
    if not Path(file).is_file():
        raise FileError(f"--policy {file} is not a file.", next_step="Name the policy's file.")
    with Path(file).open("rb") as opened:
        content = opened.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise FileError(f"--policy {file} has more than {MAX_BYTES >> 10} KiB.", next_step="Name the policy's file.")
    return parse_policy(content.decode(), source=file)


def _tell(context: Context, proven: VerifiedImage) -> None:
    outcome = proven.outcome
    if context.arguments.json:
        context.emit(_document(proven))
        return
    where = outcome.environment
    place = (where.host, where.engine, where.kernel)
    print_fields(
        {
            "image": proven.image,
            "digest": proven.digest,
            "identifier": outcome.identifier,
            "level": outcome.proven_level,
            "tested": f"{format_time(outcome.ended)} on {', '.join(filter(None, place))}",
            "gpu": _gpus(outcome),
            "skipped": _names(outcome.skipped),
            "waived": _names(outcome.waived),
            "unproven": _names(outcome.unproven),
            "signed by": proven.signer,
            "evidence": _kinds(proven),
        }
    )


def _names(checks: Sequence[SkippedCheck | ExemptCheck]) -> str | None:
    more = f" and {len(checks) - MAX_LISTED} more" if len(checks) > MAX_LISTED else ""
    return ", ".join(one.name for one in checks[:MAX_LISTED]) + more or None


def _gpus(outcome: SignedResult) -> str:
    found = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in outcome.environment.gpus)
    return f"{found}, driver {outcome.environment.driver}" if found else "none"


def _kinds(proven: VerifiedImage) -> Sequence[str]:
    return sorted({KINDS.get(one.predicate_type, one.predicate_type) for one in proven.statements})


def _document(proven: VerifiedImage) -> dict[str, Any]:
    return {
        "event": "verified",
        "image": proven.image,
        "digest": proven.digest,
        "signer": proven.signer,
        "level": proven.outcome.proven_level,
        "tested": proven.outcome.model_dump(mode="json"),
        "evidence": sorted({one.predicate_type for one in proven.statements}),
    }

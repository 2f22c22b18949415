"""`tfimg rollback` and `tfimg withdraw`: finish what was killed, else plan and carry out a new retraction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.keep import require_writable
from tfimg.cli.proofs import policy as policy_of
from tfimg.cli.publisher import Signer, default_repository, publisher_of, signer_of
from tfimg.core.errors import UsageError
from tfimg.evidence.dsse import sign_statement
from tfimg.evidence.promotions import predicate_statement
from tfimg.evidence.statement import Subject
from tfimg.publish.publisher import Publisher
from tfimg.publish.retract import (
    Retraction,
    resume,
    rollback_request,
    unfinished,
    withdraw_request,
)
from tfimg.publish.retract import rollback as roll_back
from tfimg.publish.retract import withdraw as withdraw_image
from tfimg.publish.runs import folder_of, opened_run
from tfimg.registry.reference import Reference, parse_reference


def rollback(context: Context) -> int:
    """`tfimg rollback REPOSITORY:TAG`: point the tag to the image before, and withdraw the present one for it."""
    arguments = context.arguments
    image = arguments.image
    reference = parse_reference(image if set("/:") & set(image) else f"{default_repository(context, image)}:{image}")
    if not reference.tag or reference.digest:
        raise UsageError(f"{reference} has to be a tag without a digest.", next_step="Write REGISTRY/NAME:TAG.")
    if arguments.reinstate and not arguments.to:
        raise UsageError("--reinstate needs --to.", next_step="Name the withdrawn image with --to DIGEST.")
    tag, policy = reference.tag, policy_of(context)
    done = _retract(
        context,
        reference,
        signer_of(context),
        rollback_request(tag, arguments.to),
        lambda publisher: roll_back(publisher, tag, policy, to=arguments.to, reason=arguments.reason),
    )
    (move,) = done.moves
    if arguments.json:
        context.emit({"event": "rollback", "repository": reference.repository, **_document(done)})
    else:
        print(f"{reference} points to {move.after} again; {move.before} was withdrawn for this tag.")
    return 0


def withdraw(context: Context) -> int:
    """`tfimg withdraw REPOSITORY@DIGEST`: move its tags back, then withdraw it, for all time or for some tags."""
    arguments = context.arguments
    reference = parse_reference(arguments.image)
    if not reference.digest or reference.tag:
        raise UsageError(f"{reference} has to be a digest.", next_step="Write REGISTRY/NAME@sha256:….")
    if arguments.output is not None:  # before anything is withdrawn
        require_writable("--output", arguments.output)
    digest, policy, signer = reference.digest, policy_of(context), signer_of(context)
    done = _retract(
        context,
        reference,
        signer,
        withdraw_request(digest, arguments.tag),
        lambda publisher: withdraw_image(publisher, digest, policy, tags=arguments.tag, reason=arguments.reason),
    )
    if arguments.output and done.withdrawal:
        subject = Subject(name=reference.repository, digest=digest)
        envelope = sign_statement(predicate_statement(subject, done.withdrawal), signer.key)
        with Path(arguments.output).open("ab") as file:
            file.write(envelope + b"\n")
    if arguments.json:
        context.emit({"event": "withdrawal", "repository": reference.repository, **_document(done)})
        return 0
    for move in done.moves:
        print(f"{move.tag} points to {move.after} now.")
    for tag, why in done.left.items():
        print(f"{tag} still points to the image, and is refused: {why}")
    what = f"for {', '.join(arguments.tag)}" if arguments.tag else "for every tag"
    print(f"{reference} {'is' if done.withdrawal else 'was already'} withdrawn {what}.")
    return 0


def _retract(
    context: Context,
    reference: Reference,
    signer: Signer,
    request: dict[str, Any],
    act: Callable[[Publisher], Retraction],
) -> Retraction:
    """Finish the same request of a killed run, or act; what other requests of killed runs left is named."""
    policy = policy_of(context)
    folder = folder_of(context.services.state, reference.repository) / "retract"
    with opened_run(folder, new=True) as (run, journal, killed):
        for other in killed:
            begun = unfinished(other.records)
            if begun is None:
                other.note("finished")
            elif begun.request == request:
                journal.note("finished")
                left = publisher_of(context, reference, signer, policy, run=other.path.stem, journal=other)
                context.say(f"Finishing what run {other.path.stem} was killed at.")
                return resume(left, begun)
            else:
                asked = " ".join(str(value) for value in begun.request.values() if value)
                context.say(f"Not finished, because it was killed: {asked}. Run that command again.")
        publisher = publisher_of(context, reference, signer, policy, run=run, journal=journal)
        return act(publisher)


def _document(done: Retraction) -> dict[str, Any]:
    return {
        "digest": done.digest,
        "moves": [{"tag": move.tag, "before": move.before, "after": move.after} for move in done.moves],
        "left": done.left,
        "withdrawal": done.withdrawal.model_dump(mode="json") if done.withdrawal else None,
    }

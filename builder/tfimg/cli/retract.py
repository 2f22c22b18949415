"""`tfimg rollback` and `tfimg withdraw`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfimg.cli.context import Context
from tfimg.cli.report_files import require_writable
from tfimg.cli.signing import default_repository, required_key, signed_repository
from tfimg.core.errors import UsageError
from tfimg.evidence.dsse import sign_statement
from tfimg.evidence.promotions import make_predicate_statement
from tfimg.evidence.statement import Subject
from tfimg.publish import retract
from tfimg.publish.retract import Retraction
from tfimg.registry.reference import parse_reference

if TYPE_CHECKING:
    from tfimg.cli.commands.rollback import Rollback, Withdraw


def rollback(command: Rollback, context: Context) -> int:
    """`tfimg rollback REPOSITORY:TAG`: point the tag to the image before, and withdraw the present one for it."""
    image, environ = command.image, context.services.environ
    reference = parse_reference(image if set("/:") & set(image) else f"{default_repository(environ, image)}:{image}")
    if not reference.tag or reference.digest:
        raise UsageError(f"{reference} must be a tag without a digest.", next_step="Write REGISTRY/NAME:TAG.")
    if command.reinstate and not command.to:
        raise UsageError("--reinstate needs --to.", next_step="Name the withdrawn image with --to DIGEST.")
    key = required_key(command, environ)
    repository = signed_repository(context, command, reference, key, reinstate=command.reinstate)
    with context.render_events(title="rollback") as on_event:
        done = retract.roll_back(repository, reference.tag, to=command.to, reason=command.reason, on_event=on_event)
    if command.json:
        context.emit({"event": "rollback", "repository": reference.repository, **_to_json(done)})
    else:
        (move,) = done.moves
        print(f"{reference} points to {move.after} again; {move.before} was withdrawn for this tag.")
    return 0


def withdraw(command: Withdraw, context: Context) -> int:
    """`tfimg withdraw REPOSITORY@DIGEST`: move its tags back, then withdraw it, for all tags or for some."""
    reference = parse_reference(command.image)
    if not reference.digest or reference.tag:
        raise UsageError(
            f"{reference} must be a digest.", next_step="Write REGISTRY/NAME@sha256:…; `tfimg verify` prints it."
        )
    if command.output is not None:  # before anything is withdrawn
        require_writable("--output", command.output)
    key = required_key(command, context.services.environ)
    repository = signed_repository(context, command, reference, key)
    with context.render_events(title="withdraw") as on_event:
        done = retract.withdraw(
            repository, reference.digest, tags=command.tag, reason=command.reason, on_event=on_event
        )
    if command.output and done.withdrawal:
        subject = Subject(name=reference.repository, digest=done.digest)
        envelope = sign_statement(make_predicate_statement(subject, done.withdrawal), repository.key)
        with Path(command.output).open("ab") as file:
            file.write(envelope + b"\n")
    if command.json:
        context.emit({"event": "withdrawal", "repository": reference.repository, **_to_json(done)})
        return 0
    for move in done.moves:
        print(f"{move.tag} points to {move.after} now.")
    for tag, reason in done.unmoved.items():
        print(f"{tag} still points to the image, and is refused: {reason}")
    scope = f"for {', '.join(command.tag)}" if command.tag else "for every tag"
    print(f"{reference} {'is' if done.withdrawal else 'was already'} withdrawn {scope}.")
    return 0


def _to_json(done: Retraction) -> dict[str, Any]:
    return {
        "digest": done.digest,
        "moves": [{"tag": move.tag, "before": move.before, "after": move.after} for move in done.moves],
        "left": done.unmoved,
        "withdrawal": done.withdrawal.model_dump(mode="json") if done.withdrawal else None,
    }

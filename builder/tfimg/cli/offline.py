"""`tfimg save` and `tfimg load`: move an image with its evidence to a machine without network, in one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.keys import verifying_keys
from tfimg.cli.output.transfers import render_transfer
from tfimg.cli.proofs import origin, read_policy
from tfimg.core.errors import FileError, InvalidKey, UsageError
from tfimg.core.events import ProgressEvent
from tfimg.core.text import to_plain_text
from tfimg.evidence.keys import VerifyingKey, read_verifying_key
from tfimg.evidence.promotions import read_withdrawals
from tfimg.evidence.statement import format_time
from tfimg.evidence.verify import verify
from tfimg.inspect.archive.collect import collect_image
from tfimg.inspect.archive.layout import ArchiveRegistry
from tfimg.inspect.archive.load import find_signed_name, load_archive
from tfimg.inspect.archive.save import archive_size, save_archive
from tfimg.registry.reference import Reference, parse_reference

if TYPE_CHECKING:
    from tfimg.cli.commands.save import Load, Save


def bundle(command: Save, context: Context) -> int:
    """`tfimg save IMAGE FILE`: verify the image if a key is named, and write it with its evidence."""
    reference, file = parse_reference(command.image), _target(command.file)
    registry, required, target = context.registry(reference), read_policy(command), reference.target
    environ = context.services.environ
    named = command.public_key or command.policy or command.refuse_key or environ.get("TFIMG_PUBLIC_KEY")
    verifies = named or command.require is not None
    keys = verifying_keys(command.public_key, environ, required.trusted_keys) if verifies else ()
    if keys:
        target = verify(
            registry, target, keys, required, now=context.services.now(), tag=reference.tag, origin=origin(command)
        ).digest
    else:
        context.say("Not verified: no key is named. `tfimg load` needs one.")
    archive = collect_image(registry, target, tag=reference.tag, keys=keys)
    if not archive.evidence:
        context.say("The image has no evidence: `tfimg load` will refuse it.")
    with render_transfer(context, f"writing {file.name}") as on_event:
        save_archive(archive, file, on_progress=_progress(on_event, file.name))
    fields = {
        "image": str(reference),
        "digest": archive.digest,
        "file": str(file),
        "bytes": archive_size(archive),
        "evidence": archive.evidence,
        "keys": [key.identifier for key in keys],
        "verified": bool(keys),
    }
    if command.json:
        context.emit({"event": "bundled", **fields})
        return 0
    fields["bytes"] = f"{fields['bytes']:,}"
    fields["verified"] = "yes" if keys else "no: no key was named"
    fields["evidence"] = f"{archive.evidence} documents"
    print_fields(fields | {"keys": fields["keys"] or None})
    return 0


def load(command: Load, context: Context) -> int:
    """`tfimg load FILE`: verify the image, then load it under the signed or the chosen name."""
    registry = ArchiveRegistry(_source(command.file))
    required, chosen = read_policy(command), _chosen_name(command.name)
    keys = _trusted_keys(command, context.services.environ, registry, required.trusted_keys)
    # A chosen tag is verified instead of the archive's: it must not state what the image is not.
    target, tag = (registry.digest, chosen.tag) if chosen else (registry.reference, None)
    file = command.withdrawals
    verified = verify(
        registry,
        target,
        keys,
        required,
        now=context.services.now(),
        tag=tag,
        origin=origin(command),
        later=read_withdrawals(_source(file).read_bytes(), keys) if file else (),
        needs_promotion=chosen is None,
    )
    name = chosen or find_signed_name(registry, verified)
    with render_transfer(context, f"reading {registry.path.name}") as on_event:
        progress = _progress(on_event, registry.path.name)
        load_archive(registry, verified.digest, name, context.services.runner(), on_progress=progress)
    outcome = verified.outcome
    fields = {
        "image": str(name),
        "digest": verified.digest,
        "identifier": outcome.identifier,
        "level": outcome.proven_level,
        "tested": format_time(outcome.ended),
        "signer": verified.signer,
    }
    if command.json:
        context.emit({"event": "loaded", **fields})
        return 0
    print_fields({field: to_plain_text(str(value)) for field, value in fields.items()})
    context.say(f"The key signed {'' if chosen else 'repository, '}identifier, level and time.")
    context.say(f"The engine has it now, as {name}.")
    return 0


def _progress(on_event: Callable[[ProgressEvent], None], name: str) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        on_event(ProgressEvent(step="offline", what=name, current=done, total=total))

    return report


def _target(name: str) -> Path:
    """Return the file to write. A link of that name is replaced: it could point to any file of the user."""
    file = Path(name)
    folder = file.parent.resolve()
    if file.is_dir() or not folder.is_dir():
        raise FileError(
            f"{name} cannot be written: {'it is a folder' if file.is_dir() else 'its folder does not exist'}.",
            next_step="Name a file in a folder that exists.",
        )
    return folder / file.name


def _chosen_name(name: str | None) -> Reference | None:
    reference = None if name is None else parse_reference(name)
    if reference and reference.digest:
        raise UsageError(f"--as {reference} has a digest.", next_step="Name the image NAME:TAG.")
    return reference


def _source(name: str) -> Path:
    if not Path(name).is_file():
        raise FileError(f"{name} is not a file.", next_step="Name a file that tfimg wrote.")
    return Path(name)


def _trusted_keys(
    command: Load, environ: Mapping[str, str], registry: ArchiveRegistry, policy_keys: Sequence[VerifyingKey]
) -> tuple[VerifyingKey, ...]:
    """Return the keys that the user trusts; those in the archive only by fingerprint, as anyone can add a key."""
    fingerprints, files = set(command.fingerprint), command.public_key
    contained = {
        key.identifier: key
        for name, pem in registry.keys.items()
        for key in (read_verifying_key(pem, source=f"{name} of {registry.path}"),)
    }
    listed = ", ".join(contained) or "none"
    if missing := fingerprints - contained.keys():
        raise InvalidKey(
            f"{registry.path} contains no key {', '.join(sorted(missing))}; it contains {listed}.",
            next_step="Compare the fingerprint with the publisher's, character by character; or name the key's file "
            "with --public-key.",
        )
    trusted = tuple(contained[fingerprint] for fingerprint in contained if fingerprint in fingerprints)
    if trusted and not files:
        return (*trusted, *policy_keys)
    if contained and not policy_keys and not files and not environ.get("TFIMG_PUBLIC_KEY"):
        raise UsageError(
            f"No key is named. {registry.path} contains {listed}, and that proves nothing: anyone who changed the file "
            "could have added a key.",
            next_step="Get the publisher's key, or its fingerprint, in another way. Name it with --public-key FILE or "
            "--fingerprint SHA256:….",
        )
    return (*trusted, *verifying_keys(files, environ, policy_keys))

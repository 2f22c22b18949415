"""`tfimg bundle`, `tfimg load`: move an image with its evidence in one file to where there is no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.keys import verifying_keys
from tfimg.cli.output.transfers import transfer
from tfimg.cli.proofs import origin, policy
from tfimg.core.errors import FileError, InvalidKey, UsageError
from tfimg.core.events import ProgressEvent
from tfimg.core.text import to_plain_text
from tfimg.evidence.collect import CollectedEnvelope
from tfimg.evidence.keys import VerifyingKey, read_verifying_key
from tfimg.evidence.promotions import read_withdrawals
from tfimg.evidence.statement import format_time
from tfimg.evidence.verify import verify
from tfimg.inspect.archive.collect import collect_image
from tfimg.inspect.archive.layout import ArchiveRegistry
from tfimg.inspect.archive.load import find_signed_name, load_archive
from tfimg.inspect.archive.save import archive_size, save_archive
from tfimg.registry.reference import Reference, parse_reference


def bundle(context: Context) -> int:
    """`tfimg bundle IMAGE FILE`: verify it if a key is named, find all that speaks of it, write it."""
    reference, file = parse_reference(context.arguments.image), _target(context.arguments.file)
    registry = context.registry(reference)
    arguments = context.arguments
    asked = arguments.key or arguments.require is not None or arguments.policy or arguments.refuse_key
    required = policy(context)
    asked = asked or context.services.environ.get("TFIMG_KEY")
    keys = verifying_keys(context, required.trusted_keys) if asked else ()
    target = reference.target
    if keys:
        target = verify(
            registry, target, keys, required, now=context.services.now(), tag=reference.tag, origin=origin(context)
        ).digest
    else:
        context.say("Not verified: no key is named. Whoever loads the file has to have one.")
    archive = collect_image(registry, target, tag=reference.tag, keys=keys)
    if not archive.evidence:
        context.say("The image has no evidence: `tfimg load` will refuse it.")
    with transfer(context, f"writing {file.name}") as follow:
        save_archive(archive, file, on_progress=partial(_tell, follow, file.name))
    told_of = {
        "image": str(reference),
        "digest": archive.digest,
        "file": str(file),
        "bytes": archive_size(archive),
        "evidence": archive.evidence,
        "keys": [key.identifier for key in keys],
        "verified": bool(keys),
    }
    if context.arguments.json:
        context.emit({"event": "bundled", **told_of})
        return 0
    print_fields(
        told_of
        | {
            "bytes": f"{told_of['bytes']:,}",
            "verified": "yes" if keys else "no: no key was named",
            "evidence": f"{archive.evidence} documents",
            "keys": told_of["keys"] or None,
        }
    )
    return 0


def _tell(follow: Callable[[ProgressEvent], None], name: str, done: int, total: int) -> None:
    follow(ProgressEvent(step="offline", what=name, current=done, total=total))


def _target(name: str) -> Path:
    """Return the file to write. A link under its name is replaced: it could lead to any file of the user."""
    file = Path(name)
    folder = file.parent.resolve()
    if file.is_dir() or not folder.is_dir():
        raise FileError(
            f"{name} cannot be written: {'it is a folder' if file.is_dir() else 'its folder is not there'}.",
            next_step="Name a file in a folder that exists.",
        )
    return folder / file.name


def load(context: Context) -> int:
    """`tfimg load FILE`: verify the image, then load it under the signed or the chosen name."""
    layout = ArchiveRegistry(_source(context.arguments.file))
    required, chosen = policy(context), _chosen(context)
    keys = _keys(context, layout, required.trusted_keys)
    # A chosen tag is verified in the place of the claimed one: it must not state what the image is not.
    target, tag = (layout.digest, chosen.tag) if chosen else (layout.reference, None)
    proven = verify(
        layout,
        target,
        keys,
        required,
        now=context.services.now(),
        tag=tag,
        origin=origin(context),
        later=_withdrawals(context, keys),
        needs_promotion=chosen is None,
    )
    name = chosen or find_signed_name(layout, proven)
    engine = context.services.runner()
    with transfer(context, f"reading {layout.path.name}") as follow:
        load_archive(layout, proven.digest, name, engine, on_progress=partial(_tell, follow, layout.path.name))
    outcome = proven.outcome
    shown = {
        "image": str(name),
        "digest": proven.digest,
        "identifier": outcome.identifier,
        "level": outcome.proven_level,
        "tested": format_time(outcome.ended),
        "signer": proven.signer,
    }
    if context.arguments.json:
        context.emit({"event": "loaded", **shown})
        return 0
    print_fields({field: to_plain_text(str(value)) for field, value in shown.items()})
    context.say(f"The key signed {'' if chosen else 'repository, '}identifier, level and time.")
    return 0


def _withdrawals(context: Context, keys: Sequence[VerifyingKey]) -> tuple[CollectedEnvelope, ...]:
    file = context.arguments.withdrawals
    return read_withdrawals(_source(file).read_bytes(), keys) if file else ()


def _chosen(context: Context) -> Reference | None:
    if context.arguments.name is None:
        return None
    name = parse_reference(context.arguments.name)
    if name.digest:
        raise UsageError(f"--as {name} has a digest.", next_step="Name the image NAME:TAG.")
    return name


def _source(name: str) -> Path:
    if not Path(name).is_file():
        raise FileError(f"{name} is not a file.", next_step="Name a file that tfimg wrote.")
    return Path(name)


def _keys(context: Context, layout: ArchiveRegistry, of_policy: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
    """Return the keys that the user trusts. Those in the file count by their fingerprint alone: anyone can add a key.

    `of_policy` are those of a policy file.
    """
    brought = tuple(_brought(layout))
    trusted = tuple(key for key in brought if key.identifier in context.arguments.fingerprint)
    if missing := set(context.arguments.fingerprint) - {key.identifier for key in trusted}:
        there = ", ".join(key.identifier for key in brought) or "none"
        raise InvalidKey(
            f"{layout.path} brings no key {', '.join(sorted(missing))}; it brings {there}.",
            next_step="Compare the fingerprint with the publisher's, character by character; or name the key's file "
            "with --key.",
        )
    if trusted and not context.arguments.key:
        return (*trusted, *of_policy)
    if brought and not of_policy and not context.arguments.key and not context.services.environ.get("TFIMG_KEY"):
        there = ", ".join(key.identifier for key in brought)
        raise UsageError(
            f"No key is named. {layout.path} brings {there}, and that proves nothing: whoever made or changed the file "
            "could have put any key into it.",
            next_step="Get the publisher's key, or its fingerprint, in another way, and name it with --key FILE.pub or "
            "--fingerprint SHA256:….",
        )
    return (*trusted, *verifying_keys(context, of_policy))


def _brought(layout: ArchiveRegistry) -> Iterator[VerifyingKey]:
    for name, pem in layout.keys.items():
        yield read_verifying_key(pem, source=f"{name} of {layout.path}")

"""Verify the image of an archive, and load it into an engine by the digest that was verified."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from tfimg.core.errors import InvalidKey, PolicyViolation, TamperedError, TfimgError, UsageError
from tfimg.engine.protocol import Engine
from tfimg.evidence.collect import CollectedEnvelope
from tfimg.evidence.keys import VerifyingKey, fingerprints, read_verifying_key
from tfimg.evidence.policy import Policy
from tfimg.evidence.verify import VerifiedImage, verify
from tfimg.inspect.archive.collect import collect_image
from tfimg.inspect.archive.layout import ArchiveRegistry
from tfimg.inspect.archive.save import OnProgress, read_file, stream_archive
from tfimg.registry.images import open_image
from tfimg.registry.reference import TAG, Reference, parse_repository


def select_keys(
    layout: ArchiveRegistry, wanted: Collection[str], named: Sequence[VerifyingKey]
) -> tuple[VerifyingKey, ...]:
    """Return the keys to verify an archive with: `named` ones, and those in it with the `wanted` fingerprints.

    Anyone can add a key to an archive. Raises `InvalidKey` if it lacks a wanted one, `UsageError` without any key.
    """
    contained = [read_verifying_key(pem, source=f"{name} of {layout.path}") for name, pem in layout.keys.items()]
    listed = fingerprints(contained) or "none"
    if missing := set(wanted) - {key.identifier for key in contained}:
        raise InvalidKey(
            f"{layout.path} contains no key {', '.join(sorted(missing))}; it contains {listed}.",
            next_step="Compare the fingerprint with the publisher's, character by character; or name the key's file "
            "with --public-key.",
        )
    keys = (*(key for key in contained if key.identifier in wanted), *named)
    if not keys:
        reason = (
            f"{layout.path} contains {listed}, and that proves nothing: anyone who changed the file could have added "
            "a key."
            if contained
            else "Only evidence that a trusted key signed counts."
        )
        raise UsageError(
            f"No key is named. {reason}",
            next_step="Get the publisher's key, or its fingerprint, in another way. Name it with --public-key FILE or "
            "--fingerprint SHA256:….",
        )
    return keys


def verify_archive(
    layout: ArchiveRegistry,
    keys: Sequence[VerifyingKey],
    policy: Policy,
    *,
    now: datetime,
    name: Reference | None = None,
    later: Sequence[CollectedEnvelope] = (),
) -> tuple[VerifiedImage, Reference]:
    """Verify the image of an archive, and return the name to load it as: `name`, or that which the key signed.

    `later` are withdrawals that are newer than the archive. Raises as `verify` and `find_signed_name`.
    """
    # A chosen tag is verified instead of the archive's: it must not state what the image is not.
    reference, tag = (layout.digest, name.tag) if name else (layout.reference, None)
    policy = replace(policy, needs_promotion=name is None)
    verified = verify(layout, reference, keys, policy, now=now, tag=tag, later=later)
    return verified, name or find_signed_name(layout, verified)


def find_signed_name(layout: ArchiveRegistry, proven: VerifiedImage) -> Reference:
    """Return the name that the file claims for its image, if the signed statements name its repository.

    Without a claim, it is the one signed repository; without a tag, the signed identifier. Raises `PolicyViolation`.
    """
    repositories = dict.fromkeys(name for statement in proven.statements for name in statement.subjects if name)
    claimed = layout.claimed
    repository = claimed.repository if claimed else next(iter(repositories)) if len(repositories) == 1 else ""
    if repository not in repositories:
        signed = " or ".join(repositories) or "nothing"
        raise PolicyViolation(
            f"{layout.path} names its image {claimed or 'nothing'}, but the signed statements name it {signed}.",
            next_step="Give it a name of your choice with --as NAME:TAG.",
        )
    identifier = proven.outcome.identifier
    tag = identifier if TAG.fullmatch(identifier) else proven.digest.removeprefix("sha256:")[:12]
    named = parse_repository(repository)
    return Reference(host=named.host, path=named.path, tag=(claimed and claimed.tag) or tag)


def load_archive(
    layout: ArchiveRegistry, digest: str, name: Reference, engine: Engine, *, on_progress: OnProgress = lambda *_: None
) -> None:
    """Load the image `digest` as `name`, after every byte of it was compared with its digest.

    Raises `TamperedError`, and the errors of engines.
    """
    image = open_image(layout, digest)
    # Without evidence, which engines would take for images.
    archive = collect_image(layout, digest, repository=name.repository, tag=str(name.tag), with_evidence=False)
    # Read everything once first: no part of a changed image may reach the engine.
    done = 0
    for entry in archive.entries:
        for piece in read_file(entry):
            done += len(piece)
            on_progress(done, archive.size)
    before = engine.find_digest(str(name))
    try:
        engine.load(stream_archive(archive))
    except BaseException:
        # The containerd store tags an image before it unpacks its layers, and keeps the tag when the disk is full.
        if before is None:
            with suppress(TfimgError):  # the first error is the cause
                engine.remove(str(name))
        raise
    loaded = engine.find_digest(str(name))
    configured = {platform.config_descriptor.digest for platform in image.images if platform.config_descriptor}
    # The containerd store identifies an image by its manifest or index, the classic one by its configuration.
    if loaded != digest and loaded not in configured:
        raise TamperedError(
            f"{digest} was loaded as {name}, but the engine has {loaded} under that name.",
            next_step="Do not run it; remove it, and load it into an engine that no other program uses.",
        )

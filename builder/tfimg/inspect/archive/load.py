"""Verify the image of a layout, and load it into an engine by the digest that was verified."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime

from tfimg.core.errors import InvalidKey, PolicyViolation, TamperedError, TfimgError, UsageError, WithdrawnError
from tfimg.core.text import list_first
from tfimg.engine.protocol import Engine
from tfimg.evidence.collect import CollectedEnvelope
from tfimg.evidence.keys import VerifyingKey, fingerprints, read_verifying_key
from tfimg.evidence.policy import Policy
from tfimg.evidence.promotions import ImageStatements, read_statements, require_not_withdrawn
from tfimg.evidence.signatures import filter_verified
from tfimg.evidence.verify import ImageEvidence, VerifiedImage, decide, read_evidence, read_results
from tfimg.inspect.archive.layout import LayoutRegistry
from tfimg.inspect.archive.save import OnProgress, collect_image
from tfimg.registry.images import open_image
from tfimg.registry.reference import Reference, parse_repository

MAX_LISTED = 6
"""Names that a message lists."""

Name = tuple[str, str]
"""A repository, and a tag of it."""


def select_keys(
    layout: LayoutRegistry, wanted: Collection[str], named: Sequence[VerifyingKey]
) -> tuple[VerifyingKey, ...]:
    """Return the keys to verify a layout with: `named` ones, and those in it with the `wanted` fingerprints.

    Anyone can add a key to a layout. Raises `InvalidKey` if it lacks a wanted one, `UsageError` without any key.
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
            f"{layout.path} contains {listed}, and that proves nothing: anyone who changed it could have added a key."
            if contained
            else "Only evidence that a trusted key signed counts."
        )
        raise UsageError(
            f"No key is named. {reason}",
            next_step="Get the publisher's key, or its fingerprint, in another way. Name it with --public-key FILE or "
            "--fingerprint SHA256:….",
        )
    return keys


def verify_layout(
    layout: LayoutRegistry,
    keys: Sequence[VerifyingKey],
    policy: Policy,
    *,
    now: datetime,
    name: Reference | None = None,
    later: Sequence[CollectedEnvelope] = (),
) -> tuple[VerifiedImage, Reference]:
    """Verify the image of a layout, and return the name to load it as: `name`, or the one that the key signed.

    The layout's own names are not signed, and must not decide what counts. Without `name`, every name counts that
    signed statements give the image: none is withdrawn, and what each promises is proven. With it, its tag counts;
    if no statement has that tag, the withdrawals of all. `later` are withdrawals that are newer than the layout. Raises
    as `verify`, and `PolicyViolation` if no promotion gives the image the layout's name.
    """
    evidence = read_evidence(layout, layout.digest, keys, policy)
    carried = filter_verified(later, policy.accepted_keys(keys), digest=evidence.digest)
    known = read_statements((*evidence.statements, *carried), image=evidence.image)
    promoted, withdrawn = _list_names(known, policy.origin)
    own = {one for one in promoted | withdrawn if name and one[1] == name.tag}
    try:
        for repository, tag in sorted(own or promoted | withdrawn) or [("", "")]:
            require_not_withdrawn(known, image=evidence.image, repository=repository, tag=tag)
    except WithdrawnError as error:
        if name or known.in_force("", None):
            raise
        other = "To load it under another of its tags, name that with --as REPOSITORY:TAG."
        raise WithdrawnError(error.what, next_step=f"{error.next_step} {other}") from None
    target = name or _find_signed_name(layout, evidence, promoted)
    promises = [str(target.tag), *(() if name else sorted(tag for _, tag in promoted))]
    (outcome, signer), *_ = [decide(evidence, policy, tag, now) for tag in promises]
    verified = VerifiedImage(
        image=evidence.image, digest=evidence.digest, statements=evidence.statements, outcome=outcome, signer=signer
    )
    return verified, target


def _list_names(known: ImageStatements, origin: str | None) -> tuple[set[Name], set[Name]]:
    """Return the names that promotions give the image, and those that withdrawals are about; of an origin alone."""
    promoted = ((one.predicate.repository, move.tag) for one in known.promotions for move in one.predicate.tags)
    withdrawn = ((one.predicate.repository, tag) for one in known.withdrawals for tag in one.predicate.tags or ())
    return {one for one in promoted if origin in (None, one[0])}, {one for one in withdrawn if origin in (None, one[0])}


def _find_signed_name(layout: LayoutRegistry, evidence: ImageEvidence, promoted: Collection[Name]) -> Reference:
    """Return the one promoted name that fits what the layout says; without a tag there, that with the identifier."""
    claimed = layout.claimed_repository
    tags = {layout.tag} if layout.tag else {result.identifier for result, _ in read_results(evidence)}
    found = [one for one in promoted if one[1] in tags and claimed in (None, one[0])]
    if len(found) != 1:
        signed = list_first([":".join(one) for one in sorted(promoted)], MAX_LISTED) or "nothing"
        stated = f"{claimed or 'without a repository'}:{' or '.join(sorted(tags))}"
        raise PolicyViolation(
            f"{layout.path} names its image {stated}, but signed promotions name it {signed}.",
            next_step="Anyone could have changed the name in it. Name the image yourself with --as NAME:TAG.",
        )
    ((repository, tag),) = found
    named = parse_repository(repository)
    return Reference(host=named.host, path=named.path, tag=tag)


def load_layout(
    layout: LayoutRegistry, digest: str, name: Reference, engine: Engine, *, on_progress: OnProgress = lambda *_: None
) -> None:
    """Load the image `digest` as `name`, after every byte of it was compared with its digest.

    Raises `TamperedError`, and the errors of engines.
    """
    image = open_image(layout, digest)
    # Without attestations, which engines would take for images.
    found = collect_image(layout, digest, repository=name.repository, tag=str(name.tag), with_attestations=False)
    # Read everything once first: no part of a changed image may reach the engine.
    done = 0
    for file in found.files:
        for piece in file.read():
            done += len(piece)
            on_progress(done, found.size)
    before = engine.find_digest(str(name))
    try:
        engine.load(found.stream())
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

"""What the builds of a repository prove, as one document for pages and other programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tfimg import __version__
from tfimg.core.documents import Digest, Document, InvalidDocument, parse_document, validate
from tfimg.core.errors import FileError, NotInRegistry, PolicyViolation, TfimgError
from tfimg.core.text import to_plain_text, truncate
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.policy import EvidenceLevel, Policy
from tfimg.evidence.promotions import MAX_TAGS, ImageStatements, Repository, Tag, Text, read_statements
from tfimg.evidence.statement import Time
from tfimg.evidence.verify import VerifiedImage, verify
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import parse_release
from tfimg.publish.indexes import PlatformTags, list_digests
from tfimg.publish.repository import INSUFFICIENT
from tfimg.recipe.tags import DIGEST_DIGITS, find_shared_tag, make_build_tag
from tfimg.registry.images import open_image
from tfimg.registry.protocol import MAX_BLOB_BYTES, MAX_LAYERS, Manifest, Registry

MAX_BUILDS = 1000
"""Builds in one document: as many as `tfimg history --limit` reads."""

Identifier = Annotated[
    str,
    StringConstraints(
        max_length=100,
        pattern=r"^(custom-)?[0-9]+(\.[0-9a-z]+)+(_[0-9a-z.]+)?-(cpu|tpu|cuda[0-9]+(\.[0-9]+)*)-py[0-9]+\.[0-9]+(-arm64)?"
        r"(-[a-z][a-z0-9]{0,30}){0,2}$",  # flavour, packages of a user
    ),
]
Size = Annotated[int, Field(ge=0, le=MAX_BLOB_BYTES * MAX_LAYERS)]


class PublishedImage(Document):
    """A build that trusted keys attested and promoted.

    `tags` are the promoted tags that point to it now, and the indexes that list it under them; `size` is the compressed
    bytes of its layers, `withdrawn` the reason of a withdrawal in force.
    """

    identifier: Identifier
    build: Tag
    digest: Digest
    tags: Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS)]
    device: Device
    level: EvidenceLevel
    tested: Time
    gpu: Text | None
    driver: Text | None
    emulated: bool = False
    size: Size
    signer: Text
    withdrawn: Text | None

    @property
    def tensorflow(self) -> str:
        """The TensorFlow release."""
        return parse_release(self.identifier)

    @property
    def python(self) -> str:
        """The Python minor."""
        return self.identifier.partition("-py")[2].partition("-")[0]


class UnprovenBuild(Document):
    """A build without evidence that counts, and why."""

    build: Tag
    digest: Digest
    reason: Text


class PublishedRepository(Document):
    """What the builds of a repository prove. `builds` is how many it has, of which the newest were read."""

    format: Literal[1]
    """Version of the document."""
    repository: Repository
    time: Time
    tfimg: Text
    builds: Annotated[int, Field(ge=0)]
    images: Annotated[tuple[PublishedImage, ...], Field(max_length=MAX_BUILDS)]
    unproven: Annotated[tuple[UnprovenBuild, ...], Field(max_length=MAX_BUILDS)]


def collect_published(
    registry: Registry, builds: Sequence[str], keys: Sequence[VerifyingKey], *, limit: int, now: datetime
) -> PublishedRepository:
    """Return what the newest builds of a repository prove; `builds` are its build tags, newest first.

    A build without evidence of trusted keys is `unproven`; raises if the registry fails.
    """
    find = cache(PlatformTags(registry, keys).find)
    images: list[PublishedImage] = []
    unproven: list[UnprovenBuild] = []
    for build in builds[:limit]:
        manifest = find(build)
        if manifest is None:
            continue  # deleted since the tags were listed
        try:
            verified = _verify_build(registry, build, manifest, keys, now=now)
            statements = read_statements(verified.statements, image=verified.image)
            own = [
                tag
                for tag in _promoted_tags(statements, registry.repository)
                if (found := find(tag)) and found.digest == manifest.digest
            ]
            shared = (find_shared_tag(tag) for tag in own)
            indexes = [tag for tag in shared if tag not in own and manifest.digest in list_digests(registry, tag)]
            tags = [*own, *indexes][:MAX_TAGS]
            images.append(_describe(registry, build, verified, statements, tags))
        except (*INSUFFICIENT, NotInRegistry, InvalidDocument) as error:
            reason = error.what if isinstance(error, TfimgError) else f"The evidence is malformed: {error}."
            text = truncate(to_plain_text(reason))
            unproven.append(UnprovenBuild(build=build, digest=manifest.digest, reason=text))
    return PublishedRepository(
        format=1,
        repository=registry.repository,
        time=now,
        tfimg=__version__,
        builds=len(builds),
        images=tuple(images),
        unproven=tuple(unproven),
    )


def format_published(published: PublishedRepository) -> str:
    """Return the document as JSON."""
    return published.model_dump_json(indent=1) + "\n"


def parse_published(content: bytes, *, source: str) -> PublishedRepository:
    """Read the document. Raises `FileError`, naming `source`."""
    try:
        return parse_document(PublishedRepository, content)
    except InvalidDocument as error:
        raise FileError(
            f"{source} is not a list of published images: {error}.",
            next_step="Write it with `tfimg history REPOSITORY --published FILE`.",
        ) from None


def _verify_build(
    registry: Registry, build: str, manifest: Manifest, keys: Sequence[VerifyingKey], *, now: datetime
) -> VerifiedImage:
    """Return what the evidence of a build proves, whatever its level and age. Raises as `verify`."""
    identifier = build[: -DIGEST_DIGITS - 1]
    policy = Policy(level="built", max_age=None, allow_withdrawn=True)
    if build != make_build_tag(identifier, manifest.digest):
        raise PolicyViolation(
            f"The tag {build} points to {manifest.digest}, which is another build.",
            next_step="A build's tag never moves: ask who can write to the repository.",
        )
    verified = verify(registry, manifest.digest, keys, policy, now=now, tag=build)
    if verified.outcome.identifier != identifier:
        raise PolicyViolation(
            f"The tag {build} points to an image of {verified.outcome.identifier}.",
            next_step="Its publisher can explain it; `tfimg history` lists who promoted it.",
        )
    return verified


def _promoted_tags(statements: ImageStatements, repository: str) -> list[str]:
    """Return the tags that promotions give to an image and no withdrawal in force takes away, first promoted first."""
    named = (
        move.tag
        for promotion in reversed(statements.promotions)
        if promotion.predicate.repository == repository
        for move in promotion.predicate.tags
    )
    return [tag for tag in dict.fromkeys(named) if not statements.in_force(repository, tag)][:MAX_TAGS]


def _describe(
    registry: Registry, build: str, verified: VerifiedImage, statements: ImageStatements, tags: Sequence[str]
) -> PublishedImage:
    outcome = verified.outcome
    gpus = ", ".join(dict.fromkeys(to_plain_text(gpu.name) for gpu in outcome.environment.gpus))
    name = registry.repository
    withdrawals = (*statements.in_force(name, build), *statements.in_force(name, outcome.identifier))
    layers = [layer for image in open_image(registry, verified.digest).platforms for layer in image.layers]
    fields = {
        "identifier": outcome.identifier,
        "build": build,
        "digest": verified.digest,
        "tags": tuple(tag for tag in tags if tag != build),
        "device": outcome.device,
        "level": outcome.proven_level,
        "tested": outcome.ended,
        "gpu": truncate(gpus) or None,
        "driver": truncate(to_plain_text(outcome.environment.driver or "")) or None,
        "emulated": outcome.environment.emulated,
        "size": sum(layer.size for layer in layers),
        "signer": verified.signer,
        "withdrawn": truncate(to_plain_text(withdrawals[0].predicate.reason)) if withdrawals else None,
    }
    return validate(PublishedImage, fields)

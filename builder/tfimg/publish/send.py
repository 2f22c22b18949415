"""One image from the engine into its registry: searched, pushed, pulled by digest, validated, searched, vouched for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tfimg.core.errors import PolicyViolation, PublicationIncomplete, StaleEvidence, TamperedError, UnsignedError
from tfimg.core.levels import Level
from tfimg.publish.publisher import Publisher
from tfimg.publish.release import Release, is_image, release_of
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Manifest
from tfimg.validation.report import Report

CANDIDATE = "candidate-"
"""Beginning of the tags that images have until they are named."""

Stage = Literal["search", "push", "validate", "scan", "attach", "name", "aliases", "compare"]
"""`search`: for what must not leave the machine, before it could; `scan`: the same in what the registry has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """An image that is built and tagged here. `name` is its own in the engine, `digest` what that says of it.

    `aliases` are the tags that it may have beside its own; `level` is the most that can be shown of it here.
    """

    identifier: str
    tensorflow: str
    name: str
    digest: str
    aliases: tuple[str, ...]
    level: Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Hands:
    """What is done with an image on its way; each of them raises where it finds that the image must not go on.

    `search` looks through what the engine has, `scan` through what the registry has of a digest. `push` sends an image
    under a reference and returns its digest, and `drop` takes a name away in the engine, with its
    containers. `validate` pulls a reference by digest and runs the suite in it, under a name that nobody else has, or
    finds that an earlier run did. `attach` puts the evidence beside a digest, and `mend` what a kill left out of it.
    `revalidate`: evidence that is there is not enough.
    """

    search: Callable[[Source], object]
    push: Callable[[Source, str], str]
    drop: Callable[[str], object]
    validate: Callable[[Source, str, str], tuple[Report, bool]]
    scan: Callable[[Source, str], object]
    attach: Callable[[Source, str, Report], object]
    mend: Callable[[str], object]
    tell: Callable[[str, Stage, str], object]
    revalidate: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """An image that the registry has, with evidence. `pushed` is false where it was there before."""

    source: Source
    manifest: Manifest
    release: Release
    level: Level
    pushed: bool
    reused: bool

    @property
    def digest(self) -> str:
        """What the image is called for ever."""
        return self.manifest.digest


def send(source: Source, publisher: Publisher, hands: Hands) -> Sent:
    """Bring an image and its evidence into the registry; nothing is done that is done already.

    Raises what the `Hands` raise, and what the registry does.
    """
    candidate = f"{CANDIDATE}{publisher.run}-{source.identifier}"
    there = _there(source, publisher)
    manifest, pushed = (there, False) if there else _pushed(source, publisher, hands, candidate)
    proven = None if hands.revalidate else _proven(publisher, manifest, source)
    if proven:
        hands.mend(manifest.digest)  # one place is enough for proof, and other programs look into the others
        return _sent(source, manifest, publisher, level=proven, pushed=pushed, reused=True)
    image = f"{publisher.registry.repository}@{manifest.digest}"
    hands.tell(source.identifier, "validate", image)
    publisher.journal.note("validate", identifier=source.identifier, candidate=candidate, digest=manifest.digest)
    report, reused = hands.validate(source, image, f"{publisher.registry.repository}:{candidate}")
    publisher.journal.note("validated", identifier=source.identifier, digest=manifest.digest, level=report.level)
    hands.tell(source.identifier, "scan", manifest.digest)
    hands.scan(source, manifest.digest)
    hands.tell(source.identifier, "attach", manifest.digest)
    publisher.journal.note("attach", identifier=source.identifier, digest=manifest.digest)
    hands.attach(source, manifest.digest, report)
    level = publisher.prove(manifest.digest, report.level)
    return _sent(source, manifest, publisher, level=level, pushed=pushed, reused=reused)


def clear(publisher: Publisher, hands: Hands) -> tuple[str, ...]:
    """Take away the candidates that this run's journal knows; returns those that the registry does not let go.

    In the engine too, with the containers that a kill left of them.
    """
    left = []
    candidates = _candidates(publisher)
    listed = set(publisher.registry.list_tags()) if candidates else set()
    for candidate in candidates:
        hands.drop(f"{publisher.registry.repository}:{candidate}")
        if candidate in listed and not publisher.registry.delete_tag(candidate):
            left.append(candidate)
    return tuple(left)


def _there(source: Source, publisher: Publisher) -> Manifest | None:
    """What the registry has of an image under its own tags."""
    for tag in (make_build_tag(source.identifier, source.digest), source.identifier):
        manifest = publisher.registry.find(tag)
        if manifest and is_image(manifest, source.digest):
            return manifest
    return None


def _proven(publisher: Publisher, manifest: Manifest, source: Source) -> Level | None:
    """What is shown of an image, if that is as much as could be shown here."""
    try:
        return publisher.prove(manifest.digest, source.level)
    except (UnsignedError, PolicyViolation, StaleEvidence, TamperedError):
        return None  # it is proven now


def _pushed(source: Source, publisher: Publisher, hands: Hands, candidate: str) -> tuple[Manifest, bool]:
    """What the registry has of the image, and whether that was sent now: a killed run may have done it."""
    known = any(
        record.get("event") == "push" and (record.get("candidate"), record.get("local")) == (candidate, source.digest)
        for record in publisher.journal.records
    )
    found = publisher.registry.find(candidate) if known else None
    if found is not None:
        return found, False
    hands.tell(source.identifier, "search", source.name)
    hands.search(source)
    hands.tell(source.identifier, "push", candidate)
    publisher.journal.note("push", identifier=source.identifier, candidate=candidate, local=source.digest)
    digest = hands.push(source, f"{publisher.registry.repository}:{candidate}")
    manifest = publisher.registry.find(candidate)
    if manifest is None or manifest.digest != digest:
        raise PublicationIncomplete(
            f"The engine pushed {candidate} to {publisher.registry.repository} as {digest}, and that is not there.",
            next_step="Run it again; if it is so again, look at what stands between the engine and the registry.",
        )
    publisher.journal.note("pushed", identifier=source.identifier, digest=manifest.digest)
    return manifest, True


def _sent(
    source: Source, manifest: Manifest, publisher: Publisher, *, level: Level, pushed: bool, reused: bool
) -> Sent:
    release = release_of(publisher.registry, manifest) or Release(
        identifier=source.identifier, tensorflow=source.tensorflow
    )
    return Sent(source=source, manifest=manifest, release=release, level=level, pushed=pushed, reused=reused)


def _candidates(publisher: Publisher) -> Sequence[str]:
    """Every name that this run may have given an image, in the registry or in the engine."""
    found = (record.get("candidate") for record in publisher.journal.read_records())
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))

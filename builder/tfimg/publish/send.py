"""Send one image to its registry: scan, push, pull by digest, validate, attach evidence."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from tfimg.core.errors import PublicationIncomplete
from tfimg.core.events import OnEvent
from tfimg.core.journal import Journal
from tfimg.core.levels import Level
from tfimg.evidence.attach import repair
from tfimg.publish.engine_steps import EngineSteps, PublishJob
from tfimg.publish.release import Release, is_same_image, read_release
from tfimg.publish.repository import INSUFFICIENT, SignedRepository
from tfimg.publish.runs import StageStarted
from tfimg.publish.stages import stage
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Manifest, Registry

CANDIDATE = "candidate-"
"""Prefix of the tags that images have before they are promoted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SentImage:
    """An image that the registry has with its evidence. `is_new` is false if an earlier run sent it."""

    job: PublishJob
    digest: str
    release: Release
    level: Level
    is_new: bool
    reused: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishSession:
    """One run of a publisher, whose journal is `run`: where to, with which steps.

    `revalidate` ignores evidence that images already have.
    """

    repository: SignedRepository
    run: Journal
    steps: EngineSteps
    on_event: OnEvent
    revalidate: bool = False

    @property
    def registry(self) -> Registry:
        """The registry of the repository, in which each tag means the image of its platform."""
        return self.repository.tags


def send(job: PublishJob, session: PublishSession) -> SentImage:
    """Send an image and its evidence to the registry; skip what an earlier run has done.

    Raises what the steps and the registry raise.
    """
    repository = session.repository
    candidate = f"{CANDIDATE}{session.run.path.stem}-{job.identifier}"
    own_tags = (make_build_tag(job.identifier, job.digest), job.identifier)
    named = (manifest for tag in own_tags if (manifest := session.registry.find(tag)))
    published = next((manifest for manifest in named if is_same_image(manifest, job.digest)), None)
    manifest, is_new = (published, False) if published else _push(job, session, candidate)
    level: Level | None = None
    reused = True
    if not session.revalidate:
        # Without enough evidence, validating here may prove more.
        with suppress(*INSUFFICIENT):
            level = repository.require_level(manifest.digest, job.level)
    if level:
        # One copy of the evidence proves the image, but other programs read the other copies.
        repair(session.registry, manifest.digest, key=repository.key)
    else:
        if not is_new:
            # Another program may have pushed it, or this one with other secrets.
            _scan(job, session)
        level, reused = _prove(job, manifest.digest, session, candidate)
    release = read_release(session.registry, manifest) or job.release
    return SentImage(job=job, digest=manifest.digest, release=release, level=level, is_new=is_new, reused=reused)


def remove_candidates(session: PublishSession) -> tuple[str, ...]:
    """Remove a run's candidates from engine and registry; return the tags that the registry does not delete."""
    undeleted = []
    candidates = dict.fromkeys(record.candidate for record in session.run.read(StageStarted))
    existing = set(session.registry.list_tags()) if candidates else set()
    for candidate in candidates:
        session.steps.remove_candidate(candidate)
        if candidate in existing and not session.registry.delete_tag(candidate):
            undeleted.append(candidate)
    return tuple(undeleted)


def _push(job: PublishJob, session: PublishSession, candidate: str) -> tuple[Manifest, bool]:
    """Return the candidate's manifest, and whether it was pushed now: a killed run may have done it."""
    repository, registry = session.repository.name, session.registry
    record = StageStarted(stage="push", identifier=job.identifier, candidate=candidate, digest=job.digest)
    manifest = registry.find(candidate) if record in session.run.earlier(StageStarted) else None
    if manifest:
        return manifest, False
    _scan(job, session)
    with stage(session.on_event, f"{job.identifier}: push") as on_event:
        session.run.write(record)
        digest = session.steps.push(job, candidate, on_event)
        manifest = registry.find(candidate)
        if manifest is None or manifest.digest != digest:
            raise PublicationIncomplete(
                f"The engine pushed {candidate} to {repository} as {digest}, but the registry does not have it.",
                next_step="Run the command again; if it fails again, check the proxies between engine and registry.",
            )
    return manifest, True


def _scan(job: PublishJob, session: PublishSession) -> None:
    with stage(session.on_event, f"{job.identifier}: scan for secrets") as on_event:
        session.steps.scan(job, on_event)


def _prove(job: PublishJob, digest: str, session: PublishSession, candidate: str) -> tuple[Level, bool]:
    """Validate a digest and attach evidence; return its level, and whether a report was reused."""
    steps = session.steps
    record = StageStarted(stage="validate", identifier=job.identifier, candidate=candidate, digest=digest)
    with stage(session.on_event, f"{job.identifier}: validate by digest") as on_event:
        session.run.write(record)
        report, reused = steps.validate(job, digest, candidate, on_event)
    with stage(session.on_event, f"{job.identifier}: attach evidence"):
        session.run.write(replace(record, stage="attach"))
        steps.attach_evidence(job, digest, report)
        return session.repository.require_level(digest, report.level), reused

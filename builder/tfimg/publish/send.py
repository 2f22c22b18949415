"""Send one image to its registry: scan, push, pull by digest, validate, attach evidence.

Until it is promoted it has the tag of a candidate, which names this machine and the image: the next run, also after a
kill, finds what was pushed and what is left.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tfimg.core.errors import PublicationIncomplete
from tfimg.core.events import OnEvent
from tfimg.core.files import AlreadyLocked, try_lock
from tfimg.core.levels import Level
from tfimg.publish.engine_steps import EngineSteps, PublishJob
from tfimg.publish.release import Release, is_same_image, read_release
from tfimg.publish.repository import INSUFFICIENT, SignedRepository
from tfimg.publish.stages import stage
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.documents import Manifest, Registry


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
    """One run of a publisher: where to, with which steps.

    `revalidate` ignores evidence that images already have.
    """

    repository: SignedRepository
    steps: EngineSteps
    on_event: OnEvent
    revalidate: bool = False

    @property
    def registry(self) -> Registry:
        """The registry of the repository, in which each tag means the image of its platform."""
        return self.repository.tags

    def candidate(self, job: PublishJob) -> str:
        """Return the tag that an image has before it is promoted."""
        return f"{self.repository.candidate_prefix}{job.identifier}"


def send(job: PublishJob, session: PublishSession) -> SentImage:
    """Send an image and its evidence to the registry; skip what an earlier run has done.

    Raises what the steps and the registry raise.
    """
    repository = session.repository
    tags = (make_build_tag(job.identifier, job.digest), job.identifier, session.candidate(job))
    named = (manifest for tag in tags if (manifest := session.registry.find(tag)))
    sent = next((manifest for manifest in named if is_same_image(manifest, job.digest)), None)
    manifest = sent or _push(job, session)
    level: Level | None = None
    reused = True
    if not session.revalidate:
        # Without enough evidence, validating here may prove more.
        with suppress(*INSUFFICIENT):
            level = repository.require_level(manifest.digest, job.level)
    if not level:
        if sent:  # another program may have pushed it, or this one with other secrets
            _scan(job, session)
        level, reused = _prove(job, manifest.digest, session)
    release = read_release(session.registry, manifest) or job.release
    return SentImage(job=job, digest=manifest.digest, release=release, level=level, is_new=sent is None, reused=reused)


def remove_candidates(session: PublishSession) -> tuple[str, ...]:
    """Remove this machine's candidates from engine and registry, also those that killed runs have left.

    Those that another process is sending stay. Returns the tags that the registry does not delete.
    """
    prefix, undeleted = session.repository.candidate_prefix, []
    tagged = {tag for tag in session.registry.list_tags() if tag.startswith(prefix)}
    for candidate in sorted(tagged | session.steps.find_candidates(prefix)):
        with suppress(AlreadyLocked), try_lock(session.repository.lock_file(candidate)):
            session.steps.remove_candidate(candidate)
            if candidate in tagged and not session.registry.delete_tag(candidate):
                undeleted.append(candidate)
    return tuple(undeleted)


def _push(job: PublishJob, session: PublishSession) -> Manifest:
    """Push an image that holds no secret under its candidate's tag, and return its manifest."""
    repository, candidate = session.repository.name, session.candidate(job)
    _scan(job, session)
    with stage(session.on_event, f"{job.identifier}: push") as on_event:
        digest = session.steps.push(job, candidate, on_event)
        manifest = session.registry.find(candidate)
        if manifest is None or manifest.digest != digest:
            raise PublicationIncomplete(
                f"The engine pushed {candidate} to {repository} as {digest}, but the registry does not have it.",
                next_step="Run the command again; if it fails again, check the proxies between engine and registry.",
            )
    return manifest


def _scan(job: PublishJob, session: PublishSession) -> None:
    with stage(session.on_event, f"{job.identifier}: scan for secrets") as on_event:
        session.steps.scan(job, on_event)


def _prove(job: PublishJob, digest: str, session: PublishSession) -> tuple[Level, bool]:
    """Validate a digest and attach evidence; return its level, and whether a report was reused."""
    steps, candidate = session.steps, session.candidate(job)
    with stage(session.on_event, f"{job.identifier}: validate by digest") as on_event:
        steps.remove_candidate(candidate)  # a killed run's container may still occupy a GPU
        report, reused = steps.validate(job, digest, candidate, on_event)
    with stage(session.on_event, f"{job.identifier}: attach evidence"):
        steps.attach_evidence(job, digest, report)
        return session.repository.require_level(digest, report.level), reused

"""Publish the images of an engine to a registry repository."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from tfimg.core import errors
from tfimg.core.errors import MAX_LISTED, raise_for_failures
from tfimg.core.events import Note, OnEvent, ignore
from tfimg.core.text import list_first
from tfimg.engine.protocol import Engine, LocalImage
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.validator import Validator
from tfimg.publish.engine_steps import EngineSteps, PublishJob
from tfimg.publish.indexes import update_indexes
from tfimg.publish.promote import PublishResult, TagDecider, promote
from tfimg.publish.release import is_same_image, read_release
from tfimg.publish.repository import SignedRepository
from tfimg.publish.send import PublishSession, SentImage, remove_candidates, send
from tfimg.recipe.labels import IDENTIFIER_LABEL
from tfimg.recipe.tags import list_aliases
from tfimg.validation.report import ProvableLevel
from tfimg.validation.run import ERRORS

IMAGE_ERRORS: tuple[type[errors.TfimgError], ...] = (
    *ERRORS.values(),
    errors.UnsuitableHost,
    errors.NoEmulation,
    errors.SecretFound,
    errors.TagConflict,
    errors.LockError,
    errors.WithdrawnError,
)
"""Errors that concern one image: the others are still published. Any other error would stop them too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """The result of each image, and the candidates' tags that the registry does not delete."""

    images: tuple[PublishResult, ...]
    candidates: tuple[str, ...]

    def raise_for_failures(self) -> None:
        """Raise the error of the image that failed, or `PublicationIncomplete` if several did."""
        failures = [(image.identifier, image.failure) for image in self.images if image.failure]
        raise_for_failures(failures, total=len(self.images), action="published", error=errors.PublicationIncomplete)


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Publish images that are built and tagged in an engine.

    `level` is the level to prove, None for the highest that this machine can prove. `revalidate` uses no report and no
    evidence of an earlier run. `report_missing` reports images that are not built.
    """

    project: Project
    engine: Engine
    level: ProvableLevel | None = None
    revalidate: bool = False
    report_missing: bool = True

    def publish(
        self, specs: Sequence[ImageSpec], repository: SignedRepository, on_event: OnEvent = ignore
    ) -> Publication:
        """Publish those of the images that the engine has; remove the candidates of killed runs.

        The result contains the failures of single images. Raises `ResolutionError` if the engine has none of them,
        `TagConflict`, `PublicationIncomplete`, and what the engine and the registry raise.
        """
        images = self._find_images(specs, on_event)
        by_identifier = {spec.identifier: spec for spec in specs}
        steps = EngineSteps(validator=self._validator, repository=repository, specs=by_identifier, images=images)
        session = PublishSession(repository=repository, steps=steps, on_event=on_event, revalidate=self.revalidate)
        return publish_jobs(self._jobs(specs, images), session)

    def plan(
        self, specs: Sequence[ImageSpec], decider: TagDecider, on_event: OnEvent = ignore
    ) -> tuple[PublishResult, ...]:
        """Return what publishing would do. Raises `ResolutionError` if the engine has none of the images."""
        return tuple(plan_job(job, decider) for job in self._jobs(specs, self._find_images(specs, on_event)))

    @cached_property
    def _validator(self) -> Validator:
        return Validator(project=self.project, engine=self.engine, level=self.level, reuse_reports=not self.revalidate)

    def _find_images(self, specs: Sequence[ImageSpec], on_event: OnEvent) -> dict[str, LocalImage]:
        """Return the engine's images by identifier: a validated image has its own tag."""
        named = {name: image for image in self.engine.list_images() for name in image.names}
        images = {
            spec.identifier: image
            for spec in specs
            if (image := named.get(f"{self.project.repository}:{spec.identifier}"))
            and image.labels.get(IDENTIFIER_LABEL) == spec.identifier
        }
        if not images:
            identifiers = {spec.identifier for spec in specs}
            found = (name.rpartition(":") for name in named)
            others = sorted({repository for repository, _, tag in found if tag in identifiers})[:MAX_LISTED]
            raise errors.ResolutionError(
                f"The engine has none of these images under {self.project.repository}.",
                next_step=f"It has some under {', '.join(others)}: name one of these with --from."
                if others
                else "Build them with `tfimg build`, or name the repository of their tags with --from.",
            )
        missing = [spec.identifier for spec in specs if spec.identifier not in images]
        if missing and self.report_missing:
            on_event(Note(text=f"Not published, because not built here: {list_first(missing, MAX_LISTED)}"))
        return images

    def _jobs(self, specs: Sequence[ImageSpec], images: dict[str, LocalImage]) -> list[PublishJob]:
        return [
            PublishJob(
                identifier=spec.identifier,
                tensorflow=spec.tensorflow,
                name=f"{self.project.repository}:{spec.identifier}",
                digest=images[spec.identifier].digest,
                aliases=list_aliases(spec),
                level=self._validator.target(spec).level,
            )
            for spec in specs
            if spec.identifier in images
        ]


def publish_jobs(jobs: Sequence[PublishJob], session: PublishSession) -> Publication:
    """Send images, one after the other, then promote all of them.

    The result contains the failures of single images. Any other error is raised, and the next run goes on.
    Raises what `promote` does.
    """
    repository, on_event = session.repository, session.on_event
    results: dict[str, PublishResult] = {}
    sent: list[SentImage] = []
    with repository.lock_tags(map(session.candidate, jobs), on_event):
        try:
            for job in jobs:
                try:
                    sent.append(send(job, session))
                except IMAGE_ERRORS as error:
                    results[job.identifier] = PublishResult(identifier=job.identifier, status="failed", failure=error)
            if sent:
                results |= {result.identifier: result for result in promote(sent, session)}
        finally:  # list the evidence of images that this run does not promote: the next one need not prove it again
            with suppress(errors.TfimgError):
                for image in sent:
                    repository.tags.put_referrers((), subject=image.digest)
        tags = [tag for image in sent for kind, tag in image.job.tags(image.digest) if kind != "build"]
        update_indexes(repository.tags, tags, on_event)
    candidates = remove_candidates(session)
    return Publication(images=tuple(results[job.identifier] for job in jobs), candidates=candidates)


def plan_job(job: PublishJob, decider: TagDecider) -> PublishResult:
    """Return what publishing would do if validation proved the highest level that is possible on this machine."""
    registry = decider.registry
    tagged = registry.find(job.identifier)
    published = tagged if tagged and is_same_image(tagged, job.digest) else registry.find(job.digest)
    is_tagged = published is not None and published is tagged
    release = read_release(registry, published) if published else None
    digest = published.digest if published else None
    return PublishResult(
        identifier=job.identifier,
        status="unchanged" if is_tagged else "planned",
        decisions=decider.decide(job.tags(digest), digest=digest, release=release or job.release, level=job.level),
        digest=digest,
        level=job.level,
    )

"""Publish images: plan, send, promote.

A killed run leaves its state in the registry: the next run that publishes the same digest moves the tags of a promotion
that is attached already.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from tfimg.attestations.envelopes import require_time
from tfimg.attestations.keys import VerifyingKey
from tfimg.attestations.policy import Policy
from tfimg.attestations.promotions import ImageStatements, TagMove, read_image_statements, withdrawn_error
from tfimg.core import errors, events
from tfimg.core.levels import Level
from tfimg.core.text import list_first
from tfimg.engine.interface import Engine, LocalImage
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.validator import Validator
from tfimg.publish import tags
from tfimg.publish.indexes import update_indexes
from tfimg.publish.repository import SignedRepository
from tfimg.publish.send import EngineSteps, PublishJob, PublishSession, SentImage, remove_candidates, send, stage
from tfimg.recipe.labels import IDENTIFIER_LABEL
from tfimg.recipe.tags import find_shared_tag, list_aliases
from tfimg.registry.documents import Manifest, Reader
from tfimg.validation.run import ERRORS


@dataclass(frozen=True, slots=True)
class TagDecider:
    """Decides about tags with what a registry contains. Each image that tags point to is read once.

    Without `trusted` keys it uses the labels of images.
    """

    registry: Reader
    trusted: Sequence[VerifyingKey]
    policy: Policy
    reinstate: bool = False
    _images: dict[str, tags.TaggedImage] = field(default_factory=dict)
    _statements: dict[str, ImageStatements] = field(default_factory=dict)

    def decide(
        self,
        named: Sequence[tuple[tags.TagKind, str]],
        *,
        digest: str | None,
        release: tags.PublishedRelease,
        level: Level,
    ) -> tuple[tags.Decision, ...]:
        questions = (
            tags.Question(
                repository=self.registry.repository,
                tag=tag,
                kind=kind,
                digest=digest,
                release=release,
                level=level,
                current=self._read_image(manifest) if (manifest := self.registry.find(tag)) else None,
                promise=self.policy.find_promise(tag),
                statements=self.statements(digest) if digest else ImageStatements(),
                reinstate=self.reinstate,
            )
            for kind, tag in named
        )
        return tuple(map(tags.decide, questions))

    def statements(self, digest: str) -> ImageStatements:
        if digest not in self._statements:
            self._statements[digest] = read_image_statements(self.registry, digest, self.trusted)
        return self._statements[digest]

    def find_withdrawal(self, decisions: Sequence[tags.Decision], digest: str | None) -> errors.WithdrawnError | None:
        """Return the error for tags that are refused because the image was withdrawn; None without such a tag."""
        if digest is None or self.reinstate:
            return None
        name, known = self.registry.repository, self.statements(digest)
        refused = (one.tag for one in decisions if one.verdict == "refuse")
        if not (withdrawals := [signed for tag in refused for signed in known.in_force(name, tag)]):
            return None
        error = withdrawn_error(withdrawals[0].predicate, image=f"{name}@{digest}")
        return errors.WithdrawnError(
            f"{error.what.rstrip('.')}.", next_step="Publish another build, or cancel the withdrawal with --reinstate."
        )

    def _read_image(self, manifest: Manifest) -> tags.TaggedImage:
        if manifest.digest not in self._images:
            self._images[manifest.digest] = (
                tags.read_signed_image(self.registry, manifest, self.statements(manifest.digest))
                if self.trusted
                else tags.TaggedImage(digest=manifest.digest, release=tags.read_release(self.registry, manifest))
            )
        return self._images[manifest.digest]


Status = Literal["planned", "published", "unchanged", "failed"]  # `unchanged`: nothing was pushed and no tag was moved


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishResult:
    """The result of one image. `reused`: its report is one of an earlier run."""

    identifier: str
    status: Status
    decisions: tuple[tags.Decision, ...] = ()
    digest: str | None = None
    level: Level | None = None
    reused: bool = False
    failure: errors.TfimgError | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "identifier": self.identifier,
            "status": self.status,
            "digest": self.digest,
            "level": self.level,
            "reused": self.reused,
            "tags": [asdict(decision) for decision in self.decisions],
            "error": type(self.failure).__name__ if self.failure else None,
            "exit_code": self.failure.exit_code if self.failure else 0,
            "reason": str(self.failure) if self.failure else None,
        }


def promote(images: Sequence[SentImage], session: PublishSession) -> list[PublishResult]:
    """Promote images and return their results; a `failure` is why tags of an image could not be moved.

    Exact tags are moved image by image, then the aliases of all images together. Raises `TagConflict` for an alias that
    another publisher moved, `TagImmutable`, `PublicationIncomplete`, and what `require_level` and the registry raise.
    """
    repository = session.repository
    with repository.lock_tags(tag for image in images for _, tag in image.job.tags(image.digest)):
        decider = TagDecider(session.registry, repository.trusted, repository.policy, repository.reinstate)
        results: list[PublishResult] = []
        decided: list[tuple[SentImage, tags.Decision]] = []
        # A tag that platforms share is that of the first one: the others come before, so that it is written once.
        for image in sorted(images, key=lambda image: find_shared_tag(image.job.identifier) == image.job.identifier):
            decisions: tuple[tags.Decision, ...] = ()
            failure: errors.TfimgError | None = None
            try:
                with stage(session.on_event, f"{image.job.identifier}: move exact tags"):
                    decisions = _promote_exact_tags(image, session, decider)
                failure = decider.find_withdrawal(decisions, image.digest)
            except (errors.TagConflict, errors.TagImmutable, errors.WithdrawnError) as error:
                failure = error
            decided += [(image, decision) for decision in decisions]
            is_changed = image.is_new or any(decision.verdict in ("move", "attest") for decision in decisions)
            results.append(
                PublishResult(
                    identifier=image.job.identifier,
                    status="failed" if failure else "published" if is_changed else "unchanged",
                    decisions=decisions,
                    digest=image.digest,
                    level=image.level,
                    reused=image.reused,
                    failure=failure,
                )
            )
        with stage(session.on_event, "move aliases"):
            _move(session, [(image, decision) for image, decision in decided if decision.kind == "alias"])
        with stage(session.on_event, "read tags back"):
            expected = {decision.tag: image.digest for image, decision in decided if decision.verdict != "refuse"}
            tags.require_tags(session.registry, expected)
    return results


def _promote_exact_tags(image: SentImage, session: PublishSession, decider: TagDecider) -> tuple[tags.Decision, ...]:
    """Decide about all tags of an image, attach its promotion and move its exact tags.

    The promotion leaves out tags that an attached promotion, which was not completed, gives the image already.
    """
    repository = session.repository
    named = image.job.tags(image.digest)
    decisions = decider.decide(named, digest=image.digest, release=image.release, level=image.level)
    promoted = [decision for decision in decisions if decision.verdict in ("move", "attest")]
    if promoted:
        repository.require_level(image.digest, image.level)
        known = decider.statements(image.digest)
        moves = []
        for decision in promoted:
            if decision.verdict == "attest":
                promotions = known.promotions_of(repository.name, decision.tag)
                previous = promotions[0].predicate.previous(decision.tag) if promotions else None
                moves.append(TagMove(tag=decision.tag, previous=previous))
                continue
            move = TagMove(tag=decision.tag, previous=decision.before)
            after = decider.statements(decision.before) if decision.before else ImageStatements()
            # A killed run may have attached one that says the same.
            if not known.has_promoted(repository.name, move, after=after, cancels=decision.cancels):
                moves.append(move)
        if moves:
            earlier = [known, *(decider.statements(move.previous) for move in moves if move.previous)]
            cancels = [statement for decision in promoted for statement in decision.cancels]
            promotion = repository.promotion(moves, earlier, reason="publish", cancels=cancels)
            repository.attach(image.digest, promotion)
    repository.registry.put_referrers((), subject=image.digest)  # new attestations that no new promotion has listed
    _move(session, [(image, decision) for decision in decisions if decision.kind != "alias"])
    return decisions


def _move(session: PublishSession, decided: Sequence[tuple[SentImage, tags.Decision]]) -> None:
    moves = [
        tags.Move(tag=decision.tag, before=decision.before, after=image.digest)
        for image, decision in decided
        if decision.verdict == "move"
    ]
    tags.move_tags(session.registry, moves)


IMAGE_ERRORS: tuple[type[errors.TfimgError], ...] = (
    *ERRORS.values(),
    errors.UnsuitableHost,
    errors.NoEmulation,
    errors.SecretFound,
    errors.TagConflict,
    errors.TagImmutable,
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
        errors.raise_for_failures(
            failures, total=len(self.images), action="published", error=errors.PublicationIncomplete
        )


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Publish images that are built and tagged in an engine.

    `level` is the level to prove, None for the highest that this machine can prove. `revalidate` uses no report and no
    attestations of an earlier run. `report_missing` reports images that are not built.
    """

    project: Project
    engine: Engine
    level: Level | None = None
    revalidate: bool = False
    report_missing: bool = True

    def publish(
        self, specs: Sequence[ImageSpec], repository: SignedRepository, on_event: events.OnEvent = events.ignore
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
        self, specs: Sequence[ImageSpec], decider: TagDecider, on_event: events.OnEvent = events.ignore
    ) -> Publication:
        """Return what publishing would do. Raises `ResolutionError` if the engine has none of the images."""
        jobs = self._jobs(specs, self._find_images(specs, on_event))
        return Publication(images=tuple(plan_job(job, decider) for job in jobs), candidates=())

    @cached_property
    def _validator(self) -> Validator:
        return Validator(project=self.project, engine=self.engine, level=self.level, reuse_reports=not self.revalidate)

    def _find_images(self, specs: Sequence[ImageSpec], on_event: events.OnEvent) -> dict[str, LocalImage]:
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
            others = sorted({repository for repository, _, tag in found if tag in identifiers})[: errors.MAX_LISTED]
            raise errors.ResolutionError(
                f"The engine has none of these images under {self.project.repository}.",
                next_step=f"It has some under {', '.join(others)}: name one of these with --from."
                if others
                else "Build them with `tfimg build`, or name the repository of their tags with --from.",
            )
        missing = [spec.identifier for spec in specs if spec.identifier not in images]
        if missing and self.report_missing:
            on_event(
                events.WarningEvent(
                    text=f"Not published, because not built here: {list_first(missing, errors.MAX_LISTED)}"
                )
            )
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
    Raises what `promote` does, and `WrongClock`.
    """
    repository, on_event = session.repository, session.on_event
    require_time(repository.now())  # before anything is sent
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
        finally:  # list the attestations of images that this run does not promote: the next one need not prove it again
            with suppress(errors.TfimgError):
                for image in sent:
                    repository.registry.put_referrers((), subject=image.digest)
        moved = [tag for image in sent for kind, tag in image.job.tags(image.digest) if kind != "build"]
        update_indexes(repository.tags, moved, on_event)
    candidates = remove_candidates(jobs, session)
    return Publication(images=tuple(results[job.identifier] for job in jobs), candidates=candidates)


def plan_job(job: PublishJob, decider: TagDecider) -> PublishResult:
    """Return what publishing would do if validation proved the highest level that is possible on this machine."""
    registry = decider.registry
    tagged = registry.find(job.identifier)
    is_tagged = tagged is not None and tags.is_same_image(tagged, job.digest)
    published = tagged if is_tagged else _find_published(job, registry)
    release = tags.read_release(registry, published) if published else None
    digest = published.digest if published else None
    decisions = decider.decide(job.tags(digest), digest=digest, release=release or job.release, level=job.level)
    failure = decider.find_withdrawal(decisions, digest)
    return PublishResult(
        identifier=job.identifier,
        status="failed" if failure else "unchanged" if is_tagged else "planned",
        decisions=decisions,
        digest=digest,
        level=job.level,
        failure=failure,
    )


def _find_published(job: PublishJob, registry: Reader) -> Manifest | None:
    """Return the manifest of an engine's image that its identifier does not name; None if it was not published.

    The classic store knows no digest of a manifest: the tags of builds name those of the identifier.
    """
    if found := registry.find(job.digest):
        return found
    builds = (tag for tag in registry.list_tags() if tag.rpartition("-")[0] == job.identifier)
    manifests = (registry.find(tag) for tag in builds)
    return next((one for one in manifests if one and tags.is_same_image(one, job.digest)), None)

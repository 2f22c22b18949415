"""Push one image, validate and attest it, and give it its tags.

Until it is promoted it has the tag of a candidate, which names this machine and the image: the next run, also after a
kill, finds what was pushed and what is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from tfimg import __version__
from tfimg.attestations import attach, envelopes, predicates
from tfimg.core import errors, files, retry
from tfimg.core.events import Event, InfoEvent, OnEvent, ProgressEvent, StepEvent, StepState, WarningEvent
from tfimg.core.levels import Level
from tfimg.core.text import quote_argument
from tfimg.engine.interface import LocalImage
from tfimg.engine.machine import CANDIDATE, remove_name
from tfimg.inspect.host_secrets import make_key_secret
from tfimg.inspect.secrets import require_clean, scan_export
from tfimg.matrix.spec import ImageSpec
from tfimg.project.validator import Validator
from tfimg.publish.repository import INSUFFICIENT, SignedRepository
from tfimg.publish.tags import PublishedRelease, TagKind, is_same_image, read_release
from tfimg.recipe.labels import BASE_DIGEST_LABEL, BASE_NAME_LABEL, LABEL_PREFIX, LOCK_LABEL, RECIPE_LABEL
from tfimg.recipe.lock import hash_lock
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.documents import EMPTY_JSON, Manifest, Tags
from tfimg.validation.report import Report
from tfimg.validation.run import raise_for_verdict

MIN_INTERVAL = 1.0  # seconds between two progress events of a stage: engines report each layer several times a second


@contextmanager
def stage(on_event: OnEvent, step: str) -> Iterator[OnEvent]:
    """Report the start and the end of a stage; yield a function for the events of what runs in it.

    It passes on progress at most once per interval, with the name of the stage.
    """
    start, last_progress = time.monotonic(), 0.0

    def pass_on(event: Event) -> None:
        nonlocal last_progress
        if isinstance(event, ProgressEvent):
            now = time.monotonic()
            if now - last_progress < MIN_INTERVAL:
                return
            last_progress, event = now, replace(event, step=step)
        on_event(event)

    on_event(StepEvent(step=step, state="started"))
    try:
        yield pass_on
    except BaseException as error:
        state: StepState = "interrupted" if isinstance(error, KeyboardInterrupt | errors.Interrupted) else "failed"
        on_event(StepEvent(step=step, state=state, seconds=round(time.monotonic() - start, 3)))
        raise
    on_event(StepEvent(step=step, state="done", seconds=round(time.monotonic() - start, 3)))


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishJob:
    """An image to publish: `name` and `digest` are those in the engine.

    `aliases` are the tags that it may have beside its own; `level` is the highest that can be proven on this machine.
    """

    identifier: str
    tensorflow: str
    name: str
    digest: str
    aliases: tuple[str, ...]
    level: Level

    @property
    def release(self) -> PublishedRelease:
        return PublishedRelease(identifier=self.identifier, tensorflow=self.tensorflow)

    def tags(self, digest: str | None) -> Sequence[tuple[TagKind, str]]:
        """Return every tag that the image may have, exact tags first; `digest` is that in the registry, if known."""
        build: list[tuple[TagKind, str]] = [("build", make_build_tag(self.identifier, digest))] if digest else []
        return *build, ("identifier", self.identifier), *(("alias", alias) for alias in self.aliases)


@dataclass(frozen=True, kw_only=True)
class EngineSteps:
    """Send images of an engine to a repository; `specs` and `images` are by identifier."""

    validator: Validator
    repository: SignedRepository
    specs: Mapping[str, ImageSpec]
    images: Mapping[str, LocalImage]
    retries: retry.RetryPolicy = field(default_factory=retry.RetryPolicy)

    def scan(self, job: PublishJob, on_event: OnEvent) -> None:
        """Search the engine's image for secrets of this machine.

        The registry has no other image: what is pulled by digest must be this one. Raises `SecretFound`, and
        `LockError` if the image was built from another lock.
        """
        project = self.validator.project
        if self.images[job.identifier].labels.get(LOCK_LABEL) != hash_lock(project.lock(self.specs[job.identifier])):
            raise errors.LockError(
                f"{job.name} was built from another lock than {job.identifier} has now.", next_step="Build it again."
            )
        key = self.repository.key.private.private_numbers().private_value
        secrets = [*project.services.secrets(), make_key_secret(key.to_bytes(32, "big"), "the key that signs")]

        def on_bytes(blob: str, count: int) -> None:  # how much there is shows only at its end: a layer is compressed
            on_event(ProgressEvent(step="", what=blob[:19], current=count, total=count))

        require_clean(job.name, scan_export(self.validator.engine.export(job.name), secrets, on_bytes=on_bytes))

    def push(self, job: PublishJob, candidate: str, on_event: OnEvent) -> str:
        """Push the image under a candidate tag and return the digest that it has in the registry."""
        reference = f"{self.repository.name}:{candidate}"

        def push() -> str:
            self.validator.engine.tag(job.name, [reference])
            return self.validator.engine.push(reference, on_event)

        try:
            return self.retries.retry_on((errors.NetworkError, errors.ImageMissing), push)
        finally:
            remove_name(self.validator.engine, reference)

    def validate(self, job: PublishJob, digest: str, candidate: str, on_event: OnEvent) -> tuple[Report, bool]:
        """Pull a digest and validate it; return the report, and whether it is one of an earlier run."""
        # In another repository: an engine that removes REPOSITORY@DIGEST for another publisher of the same image also
        # removes the tags of REPOSITORY.
        name = f"{CANDIDATE}:{candidate}"
        spec, image = self.specs[job.identifier], self.images[job.identifier]
        try:
            self._pull(job, f"{self.repository.name}@{digest}", name, on_event)
            report, reused = self.validator.validate(
                self.validator.project.plan(spec),
                name,
                digest=digest,
                content=image.content,
                same_as=(image.digest, digest),
                max_age=self.repository.policy.max_age,
                on_event=on_event,
            )
        finally:
            remove_name(self.validator.engine, name)
        raise_for_verdict(
            report,
            subject=f"{job.identifier} was pulled by digest",
            consequence="No tag points to it.",
            details=f"`tfimg validate {quote_argument(job.name)} --report FILE` writes the whole report.",
        )
        if reused:
            date = report.date.replace("+00:00", "Z")
            on_event(InfoEvent(text=f"{job.identifier}: reusing the validation report of {date} for this digest"))
        return report, reused

    def attach_attestations(self, job: PublishJob, digest: str, report: Report) -> None:
        """Sign and attach the attestations of a digest, the test result last: it means that all is there.

        Where a tag holds the list of referrers, it is listed with the promotion, before any tag moves.
        """
        registry = self.repository.registry
        subject = envelopes.Subject(name=self.repository.name, digest=digest)
        project, image = self.validator.project, self.images[job.identifier]
        engine = f"Docker {self.validator.engine.get_capabilities().engine}"
        inventory = project.inventories.take(job.name, image.content, self.validator.engine)
        manifest = registry.find(digest)
        release = read_release(registry, manifest) if manifest else None
        created = (release.created if release else None) or self.repository.now()
        labels, spec = image.labels, self.specs[job.identifier]
        lock = project.lock(spec)
        build = predicates.BuildRecord(
            identifier=job.identifier,
            base=labels.get(BASE_NAME_LABEL, "unknown"),
            base_digest=labels.get(BASE_DIGEST_LABEL),
            locks={layer: files.hash_files({layer: text.encode()}) for layer, text in lock.items()},
            recipe=labels.get(RECIPE_LABEL),
            revision=labels.get("org.opencontainers.image.revision"),
            engine=engine,
            version=labels.get(f"{LABEL_PREFIX}version", __version__),
            ended=created,
            wheel=f"sha256:{spec.wheel.sha256}" if spec.wheel else None,
        )
        ran = predicates.RunContext(host=self.repository.publisher, engine=engine, version=__version__)
        statements = (
            predicates.make_sbom(inventory, subject=subject, created=created),
            predicates.make_provenance(build, subject=subject),
            predicates.make_report_statement(report, subject=subject),
            predicates.make_test_result(report, subject=subject, ran=ran),
        )
        attach.attach(registry, digest, statements, key=self.repository.key, list_later=True)

    def find_candidates(self, prefix: str) -> set[str]:
        names = (name.rpartition(":") for image in self.validator.engine.list_images() for name in image.names)
        repositories = (self.repository.name, CANDIDATE)
        return {tag for repository, _, tag in names if repository in repositories and tag.startswith(prefix)}

    def remove_candidate(self, candidate: str) -> None:
        for repository in (self.repository.name, CANDIDATE):
            with suppress(errors.EngineError):
                self.validator.engine.remove_with_containers(f"{repository}:{candidate}")

    def _pull(self, job: PublishJob, reference: str, name: str, on_event: OnEvent) -> None:
        """Pull REPOSITORY@DIGEST and name it; remove the pulled name unless the engine had it before.

        Raises `TamperedError` if the registry returns another image than it received.
        """
        is_known = self.validator.engine.find_digest(reference) is not None

        def pull() -> None:
            self.validator.engine.pull(reference, on_event)
            digest = self.validator.engine.find_digest(reference)
            if digest is None:
                raise errors.ImageMissing(
                    f"{reference} was pulled, but the engine does not have it any more.", next_step="Run it again."
                )
            if digest != job.digest:
                raise errors.TamperedError(
                    f"{reference} is {digest} in the engine, but {job.name}, which was pushed, is {job.digest}.",
                    next_step="Find out what changes images between the engine and the registry.",
                )
            self.validator.engine.tag(reference, [name])

        try:
            self.retries.retry_on((errors.NetworkError, errors.ImageMissing), pull)
        finally:
            if not is_known:
                remove_name(self.validator.engine, reference)


@dataclass(frozen=True, kw_only=True, slots=True)
class SentImage:
    """An image that the registry has with its attestations. `is_new` is false if an earlier run sent it."""

    job: PublishJob
    digest: str
    release: PublishedRelease
    level: Level
    is_new: bool
    reused: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishSession:
    """One run of a publisher: where to, with which steps.

    `revalidate` ignores attestations that images already have.
    """

    repository: SignedRepository
    steps: EngineSteps
    on_event: OnEvent
    revalidate: bool = False

    @property
    def registry(self) -> Tags:
        return self.repository.tags

    def candidate(self, job: PublishJob) -> str:
        """Return the tag that a build has before it is promoted: where tags do not move, each build needs its own."""
        return f"{self.repository.candidate_prefix}{make_build_tag(job.identifier, job.digest)}"


def send(job: PublishJob, session: PublishSession) -> SentImage:
    """Send an image and its attestations to the registry; skip what an earlier run has done.

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
        # Without enough attestations, validating here may prove more.
        with suppress(*INSUFFICIENT):
            level = repository.require_level(manifest.digest, job.level)
    if not level:
        if sent:  # another program may have pushed it, or this one with other secrets
            _scan(job, session)
        steps, candidate = session.steps, session.candidate(job)
        with stage(session.on_event, f"{job.identifier}: validate by digest") as on_event:
            _remove_left(session, job)
            report, reused = steps.validate(job, manifest.digest, candidate, on_event)
        with stage(session.on_event, f"{job.identifier}: attach attestations"):
            steps.attach_attestations(job, manifest.digest, report)
            level = repository.require_level(manifest.digest, report.level)
    release = read_release(session.registry, manifest) or job.release
    return SentImage(job=job, digest=manifest.digest, release=release, level=level, is_new=sent is None, reused=reused)


def _remove_left(session: PublishSession, job: PublishJob) -> None:
    """Remove what killed runs have in the engine of an image, of any build: a container may still occupy a GPU."""
    own, steps = session.candidate(job), session.steps
    steps.remove_candidate(own)
    for candidate in steps.find_candidates(f"{session.repository.candidate_prefix}{job.identifier}") - {own}:
        with suppress(files.AlreadyLocked), files.try_lock(session.repository.lock_file(candidate)):
            steps.remove_candidate(candidate)


def remove_candidates(jobs: Sequence[PublishJob], session: PublishSession) -> tuple[str, ...]:
    """Remove this machine's candidates from engine and registry, also those that killed runs have left.

    Those that another process is sending stay. Where the registry lists no tags, those of `jobs` are removed. Returns
    the tags that the registry does not delete.
    """
    prefix, undeleted = session.repository.candidate_prefix, []
    try:
        tagged = {tag for tag in session.registry.list_tags() if tag.startswith(prefix)}
    except errors.RegistryError as error:
        warning = f"Candidates of earlier runs may remain, as the registry lists no tags: {error.what}"
        session.on_event(WarningEvent(text=warning))
        own = map(session.candidate, jobs)
        tagged = {candidate for candidate in own if session.registry.find(candidate)}
    for candidate in sorted(tagged | session.steps.find_candidates(prefix)):
        with suppress(files.AlreadyLocked), files.try_lock(session.repository.lock_file(candidate)):
            session.steps.remove_candidate(candidate)
            if candidate in tagged and not session.registry.delete_tag(candidate):
                undeleted.append(candidate)
    return tuple(undeleted)


def _push(job: PublishJob, session: PublishSession) -> Manifest:
    """Push an image that holds no secret under its candidate's tag, and return its manifest."""
    repository, candidate = session.repository.name, session.candidate(job)
    # A registry that refuses does so before gigabytes are sent, and in its own words: engines quote the status alone.
    session.repository.registry.put_blob(EMPTY_JSON)
    _scan(job, session)
    with stage(session.on_event, f"{job.identifier}: push") as on_event:
        digest = session.steps.push(job, candidate, on_event)
        manifest = session.registry.find(candidate)
        if manifest is None or manifest.digest != digest:
            raise errors.PublicationIncomplete(
                f"The engine pushed {candidate} to {repository} as {digest}, but the registry does not have it.",
                next_step="Run the command again; if it fails again, check the proxies between engine and registry.",
            )
    return manifest


def _scan(job: PublishJob, session: PublishSession) -> None:
    with stage(session.on_event, f"{job.identifier}: scan for secrets") as on_event:
        session.steps.scan(job, on_event)

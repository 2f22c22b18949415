"""A machine that publishes, with an engine in memory and everything else real."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.memory_registry import MemoryRegistry
from support.published_images import Mortal, public_tags, put_image
from support.reports import GREEN
from support.signing import OURS
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import Subject
from tfimg.attestations.keys import SigningKey, VerifyingKey
from tfimg.attestations.policy import Policy
from tfimg.attestations.predicates import RunContext, make_test_result
from tfimg.attestations.promotions import ImageStatements, read_image_statements, walk_history
from tfimg.attestations.verify import verify
from tfimg.core.errors import SecretFound, ValidationFailed
from tfimg.core.events import OnEvent, ignore
from tfimg.core.levels import Level
from tfimg.publish.publisher import Publication, PublishResult, TagDecider, plan_job, publish_jobs
from tfimg.publish.repository import SignedRepository
from tfimg.publish.retract import RetractedImage, roll_back, withdraw
from tfimg.publish.send import PublishJob, PublishSession
from tfimg.registry.documents import Manifest, Registry
from tfimg.validation.report import Report

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CPU, GPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11"
ALIASES = {CPU: ("2.15.1", "2.15"), GPU: ("2.15.1-gpu", "2.15-gpu")}


@dataclass
class Machine:
    """A machine that publishes: its engine's images, its state folder, and the steps that it has done.

    `engine` has manifests by local name, `reports` the suite's by identifier, `done` the steps in order.
    `candidates` are the names that a step has in the engine while it runs. `pace` is by how many seconds the clock goes
    on whenever it is read.
    """

    folder: Path
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    engine: dict[str, Manifest] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    leaks: set[str] = field(default_factory=set)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(ALIASES))
    key: SigningKey = OURS
    policy: Policy = field(default_factory=Policy)
    done: list[tuple[str, str]] = field(default_factory=list)
    candidates: set[str] = field(default_factory=set)
    run: Mortal | None = None
    seconds: int = 0
    pace: int = 1

    def job(self, identifier: str) -> PublishJob:
        store = MemoryRegistry()
        manifest = put_image(store, identifier, age=self.ages.get(identifier, 0))
        self.engine[f"tf:{identifier}"] = manifest
        level: Level = Level.LINKED if "cuda" in identifier else Level.VALIDATED
        return PublishJob(
            identifier=identifier, tensorflow=identifier.partition("-")[0], name=f"tf:{identifier}",
            digest=manifest.digest, aliases=self.aliases.get(identifier, ()), level=level,
        )  # fmt: skip

    def publish(self, *identifiers: str, via: Registry | None = None, reinstate: bool = False) -> Publication:
        """Publish images to the registry, or `via` a line to it that fails."""
        session = self.session(via, reinstate=reinstate)
        return publish_jobs([self.job(identifier) for identifier in identifiers or (CPU,)], session)

    def publish_builds(self, *ages: int, identifier: str = CPU) -> list[str]:
        """Publish builds of an image, each so many hours old; return their digests."""
        digests = []
        for age in ages:
            self.ages[identifier] = age
            (image,) = self.publish(identifier).images
            digests.append(str(image.digest))
        return digests

    def rollback(
        self, *to: str, tag: str = "2.15", via: Registry | None = None, reinstate: bool = False
    ) -> tuple[RetractedImage, ...]:
        return roll_back(self.repository(via, reinstate=reinstate), tag, to=to)

    def withdraw(
        self, digest: str, *tags: str, reason: str = "it leaks", via: Registry | None = None
    ) -> tuple[RetractedImage, ...]:
        return withdraw(self.repository(via), digest, tags=tags, reason=reason)

    def session(self, via: Registry | None = None, *, reinstate: bool = False) -> PublishSession:
        repository = self.repository(via, reinstate=reinstate)
        return PublishSession(repository=repository, steps=MemorySteps(self, repository.registry), on_event=ignore)

    def repository(self, via: Registry | None = None, *, reinstate: bool = False) -> SignedRepository:
        return SignedRepository(
            registry=via or self.registry, key=self.key, state=self.folder, policy=self.policy, publisher="me",
            now=self.now, reinstate=reinstate,
        )  # fmt: skip

    @property
    def tags(self) -> dict[str, str]:
        """Every tag of the registry that people see, with its digest."""
        return public_tags(self.registry.named)

    def statements(self, digest: str) -> ImageStatements:
        """Return what this machine's key signed about an image."""
        return read_image_statements(self.registry, digest, self.trusted)

    def verified(self, reference: str) -> str:
        """Verify a reference as a user does who trusts this machine's key; return its digest."""
        return verify(self.registry, reference, self.trusted, Policy(), now=NOW).digest

    @property
    def steps(self) -> list[str]:
        """What this machine has done, in order."""
        return [what for what, _ in self.done]

    def moved(self, digest: str | None) -> list[str]:
        """Return the tags of all promotions of an image."""
        return [move.tag for one in self.statements(str(digest)).promotions for move in one.predicate.tags]

    def plan(self, job: PublishJob) -> PublishResult:
        return plan_job(job, TagDecider(registry=self.registry, trusted=(), policy=Policy()))

    def chain(self, tag: str = "2.15") -> list[tuple[str, bool]]:
        return chain(self.registry, tag, self.key)

    def now(self) -> datetime:
        """Each statement is a second later than the one before, unless the clock stands still or goes back."""
        self.seconds += self.pace
        return NOW + timedelta(seconds=self.seconds)

    @property
    def trusted(self) -> tuple[VerifyingKey, ...]:
        return (self.key.verifying_key,)

    def prove(self, digest: str, level: Level, via: Registry | None = None) -> Level:
        return replace(self.repository(via), now=lambda: NOW).require_level(digest, level)


@dataclass
class MemorySteps:
    """Steps of publishing without an engine, which record themselves in the machine's `done`."""

    machine: Machine
    registry: Registry

    def _do(self, what: str, job: PublishJob) -> None:
        assert not (self.machine.run and self.machine.run.dead)
        self.machine.done.append((what, job.identifier))

    @contextmanager
    def _named(self, candidate: str) -> Iterator[None]:
        """Have a name in the engine, which a kill leaves there."""
        self.machine.candidates.add(candidate)
        yield
        self.machine.candidates.remove(candidate)

    def scan(self, job: PublishJob, _: OnEvent) -> None:
        self._do("scan", job)
        if job.identifier in self.machine.leaks:
            raise SecretFound(f"{job.name} holds a token.", next_step="Take it out.")

    def push(self, job: PublishJob, candidate: str, _: OnEvent) -> str:
        self._do("push", job)
        age = self.machine.ages.get(job.identifier, 0)
        with self._named(candidate):
            return put_image(self.registry, job.identifier, age=age, tag=candidate).digest

    def validate(self, job: PublishJob, digest: str, candidate: str, _: OnEvent) -> tuple[Report, bool]:
        builds = candidate.rpartition("-")[0]
        left = [one for one in self.machine.candidates if one.startswith(builds)]
        assert left == [], "a container of a killed run, of this build or another, occupies the GPU"
        self._do("validate", job)
        with self._named(candidate):
            assert self.registry.find(digest)
        green = replace(GREEN, identifier=job.identifier)
        usual = replace(green, device="gpu", aim=Level.LINKED) if "cuda" in job.identifier else green
        report = self.machine.reports.get(job.identifier, usual)
        if not report.passed:
            raise ValidationFailed("A check failed.", next_step="Look.")
        return replace(report, digest=digest), False

    def attach_attestations(self, job: PublishJob, digest: str, report: Report) -> None:
        self._do("attach", job)
        subject = Subject(name=self.registry.repository, digest=digest)
        statements = [make_test_result(report, subject=subject, ran=RunContext(host="h", engine="e", version="0"))]
        attach(self.registry, digest, statements, key=self.machine.key, list_later=True)

    def find_candidates(self, prefix: str) -> set[str]:
        return {candidate for candidate in self.machine.candidates if candidate.startswith(prefix)}

    def remove_candidate(self, candidate: str) -> None:
        self.machine.candidates.discard(candidate)


def chain(registry: Registry, tag: str = "2.15", key: SigningKey = OURS) -> list[tuple[str, bool]]:
    """Return the history of a tag, newest first: each digest, and whether a signed promotion gave it the tag."""
    found = registry.find(tag)
    assert found
    steps = walk_history(
        registry.repository, tag, found.digest,
        lambda digest: read_image_statements(registry, digest, [key.verifying_key]), limit=100,
    )  # fmt: skip
    return [(step.digest, step.promotion is not None) for step in steps]

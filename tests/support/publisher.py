"""A machine that publishes, with hands of its own and everything else real: for tests of what a registry does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from support.memory_registry import MemoryRegistry
from support.published_images import Mortal, put_image
from support.reports import GREEN
from support.signing import OURS
from tfimg.core.errors import SecretFound, ValidationFailed
from tfimg.core.levels import Level
from tfimg.evidence.attach import attach, repair
from tfimg.evidence.keys import SigningKey, VerifyingKey
from tfimg.evidence.policy import Policy
from tfimg.evidence.promotions import read_image_statements, walk_history
from tfimg.evidence.results import RunContext, make_test_result
from tfimg.evidence.statement import Subject
from tfimg.evidence.verify import verify
from tfimg.publish.publish import Publication, publish
from tfimg.publish.publisher import Publisher
from tfimg.publish.retract import (
    Retraction,
    resume,
    rollback,
    rollback_request,
    unfinished,
    withdraw,
    withdraw_request,
)
from tfimg.publish.runs import opened_run
from tfimg.publish.send import Hands, Source
from tfimg.registry.protocol import Manifest, Registry
from tfimg.validation.report import Report

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CPU, GPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11"
ALIASES = {CPU: ("2.15.1", "2.15"), GPU: ("2.15.1-gpu", "2.15-gpu")}


@dataclass
class Machine:
    """A machine that publishes: an engine's images, a state folder, what it does with its hands.

    `engine` has manifests by local name; `reports` what the suite says of an image; `done` what was done, in order.
    """

    folder: Path
    engine: dict[str, Manifest] = field(default_factory=dict)
    ages: dict[str, int] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    leaks: set[str] = field(default_factory=set)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(ALIASES))
    key: SigningKey = OURS
    policy: Policy = field(default_factory=Policy)
    done: list[tuple[str, str]] = field(default_factory=list)
    on_note: Callable[[], None] = lambda: None
    run: Mortal | None = None
    seconds: int = 0

    def source(self, identifier: str) -> Source:
        store = MemoryRegistry()
        manifest = put_image(store, identifier, age=self.ages.get(identifier, 0))
        self.engine[f"tf:{identifier}"] = manifest
        level: Level = "linked" if "cuda" in identifier else "validated"
        return Source(
            identifier=identifier, tensorflow=identifier.partition("-")[0], name=f"tf:{identifier}",
            digest=manifest.digest, aliases=self.aliases.get(identifier, ()), level=level,
        )  # fmt: skip

    def publish(self, registry: Registry, *identifiers: str, reinstate: bool = False) -> Publication:
        sources = [self.source(identifier) for identifier in identifiers or (CPU,)]
        with self.publisher(registry, reinstate=reinstate) as publisher:
            return publish(sources, publisher, self.hands(registry), self.policy)

    def rollback(
        self, registry: Registry, tag: str = "2.15", *, to: str | None = None, reinstate: bool = False
    ) -> Retraction:
        with self.publisher(registry, reinstate=reinstate, folder="retract") as publisher:
            if begun := unfinished(publisher.journal.records):
                if begun.request == rollback_request(tag, to):
                    return resume(publisher, begun)
                publisher.journal.note("finished")
        with self.publisher(registry, reinstate=reinstate, folder="retract") as publisher:
            return rollback(publisher, tag, self.policy, to=to, reason=None)

    def withdraw(self, registry: Registry, digest: str, *tags: str, reason: str = "it leaks") -> Retraction:
        with self.publisher(registry, folder="retract") as publisher:
            if begun := unfinished(publisher.journal.records):
                if begun.request == withdraw_request(digest, tags):
                    return resume(publisher, begun)
                publisher.journal.note("finished")
        with self.publisher(registry, folder="retract") as publisher:
            return withdraw(publisher, digest, self.policy, tags=tags, reason=reason)

    @contextmanager
    def publisher(self, registry: Registry, *, reinstate: bool = False, folder: str = "runs") -> Iterator[Publisher]:
        """Open a run, or go on as one that was killed. Each statement is a second later than the one before."""
        with opened_run(self.folder / folder) as (run, journal, _):

            def noted() -> datetime:
                self.on_note()
                return NOW

            def now() -> datetime:
                self.seconds += 1
                return NOW + timedelta(seconds=self.seconds)

            journal.now = noted
            yield Publisher(
                registry=registry, journal=journal, run=run, key=self.key, trusted=self.trusted, name="me",
                version="0.0", locks=self.folder / "locks", now=now, reinstates=reinstate,
                prove=lambda digest, least: self.prove(registry, digest, least, reinstate=reinstate),
            )  # fmt: skip

    @property
    def trusted(self) -> tuple[VerifyingKey, ...]:
        return (self.key.verifying_key,)

    def prove(self, registry: Registry, digest: str, least: Level, *, reinstate: bool = False) -> Level:
        assert least != "declared"
        policy = Policy(level=least)
        found = verify(registry, digest, self.trusted, policy, now=NOW, allow_withdrawn=reinstate)
        return found.outcome.proven_level

    def hands(self, registry: Registry) -> Hands:
        return Hands(
            search=self._search, push=partial(self._push, registry), drop=lambda name: self.engine.pop(name, None),
            validate=partial(self._validate, registry), scan=lambda source, _: self._do("scan", source),
            attach=partial(self._attach, registry), tell=lambda *_: None,
            mend=lambda digest: repair(registry, digest, key=self.key),
        )  # fmt: skip

    def _do(self, what: str, source: Source) -> None:
        assert not (self.run and self.run.dead)
        self.done.append((what, source.identifier))

    def _search(self, source: Source) -> None:
        self._do("search", source)
        if source.identifier in self.leaks:
            raise SecretFound(f"{source.name} holds a token.", next_step="Take it out.")

    def _push(self, registry: Registry, source: Source, reference: str) -> str:
        self._do("push", source)
        repository, _, tag = reference.rpartition(":")
        assert repository == registry.repository
        return put_image(registry, source.identifier, age=self.ages.get(source.identifier, 0), tag=tag).digest

    def _validate(self, registry: Registry, source: Source, image: str, _: str) -> tuple[Report, bool]:
        self._do("validate", source)
        digest = image.partition("@")[2]
        assert registry.find(digest)
        green = replace(GREEN, identifier=source.identifier)
        usual = replace(green, device="gpu", aim="linked") if "cuda" in source.identifier else green
        report = self.reports.get(source.identifier, usual)
        if not report.passed:
            raise ValidationFailed("A check failed.", next_step="Look.")
        return replace(report, digest=digest), False

    def _attach(self, registry: Registry, source: Source, digest: str, report: Report) -> None:
        self._do("attach", source)
        subject = Subject(name=registry.repository, digest=digest)
        said = [make_test_result(report, subject=subject, ran=RunContext(host="h", engine="e", version="0"))]
        attach(registry, digest, said, key=self.key)


def visible(named: Mapping[str, str]) -> dict[str, str]:
    """Return every tag that people see."""
    return {tag: digest for tag, digest in named.items() if not tag.startswith("sha256-")}


def chain(registry: Registry, tag: str = "2.15", key: SigningKey = OURS) -> list[tuple[str, bool]]:
    """Return the history of a tag, newest first: each digest, and whether a signed promotion gave it the tag."""
    found = registry.find(tag)
    assert found
    steps = walk_history(
        registry.repository, tag, found.digest,
        lambda digest: read_image_statements(registry, digest, [key.verifying_key]), limit=100,
    )  # fmt: skip
    return [(step.digest, step.promotion is not None) for step in steps]

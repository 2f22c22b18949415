"""A machine that publishes, with hands of its own and everything else real: for tests of what a registry does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from support.memory_registry import MemoryRegistry
from support.published_images import Mortal, put_image
from support.reports import GREEN
from support.signing import OURS
from tfimg.errors import LeakFound, ValidationFailed
from tfimg.evidence.attach import attach, mend
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.policy import Policy
from tfimg.evidence.statement import Subject
from tfimg.evidence.tested import Ran
from tfimg.evidence.tested import test_result as result_statement
from tfimg.evidence.unsigned import attach_unsigned, level_unsigned
from tfimg.evidence.verify import verify
from tfimg.publishing.ledger_store import is_ours
from tfimg.publishing.promotion import Desk, finish
from tfimg.publishing.publish import Publication, publish
from tfimg.publishing.runs import opened_run
from tfimg.publishing.sending import Hands, Source
from tfimg.recipe.describe import Level
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
    key: SigningKey | None = OURS
    policy: Policy = field(default_factory=Policy)
    done: list[tuple[str, str]] = field(default_factory=list)
    on_note: Callable[[], None] = lambda: None
    run: Mortal | None = None

    def source(self, identifier: str) -> Source:
        store = MemoryRegistry()
        manifest = put_image(store, identifier, age=self.ages.get(identifier, 0))
        self.engine[f"tf:{identifier}"] = manifest
        level: Level = "linked" if "cuda" in identifier else "validated"
        return Source(
            identifier=identifier, tensorflow=identifier.partition("-")[0], name=f"tf:{identifier}",
            digest=manifest.digest, aliases=self.aliases.get(identifier, ()), level=level,
        )  # fmt: skip

    def publish(self, registry: Registry, *identifiers: str) -> Publication:
        sources = [self.source(identifier) for identifier in identifiers or (CPU,)]
        with self.desk(registry) as desk:
            finish(desk)
            return publish(sources, desk, self.hands(registry), self.policy)

    @contextmanager
    def desk(self, registry: Registry) -> Iterator[Desk]:
        with opened_run(self.folder) as (run, journal, _):

            def now() -> datetime:
                self.on_note()
                return NOW

            journal.now = now
            yield Desk(
                registry=registry, journal=journal, run=run, key=self.key, publisher="me", version="0.0",
                locks=self.folder / "locks", prove=lambda digest, least: self.prove(registry, digest, least),
                now=lambda: NOW,
            )  # fmt: skip

    def prove(self, registry: Registry, digest: str, least: Level) -> Level:
        if not self.key:
            return level_unsigned(registry, digest, least)
        assert least != "declared"
        found = verify(registry, digest, [self.key.verifying], Policy(level=least), now=NOW)
        return found.outcome.shown

    def hands(self, registry: Registry) -> Hands:
        return Hands(
            search=self._search, push=partial(self._push, registry), drop=lambda name: self.engine.pop(name, None),
            validate=partial(self._validate, registry), scan=lambda source, _: self._do("scan", source),
            attach=partial(self._attach, registry), tell=lambda *_: None,
            mend=lambda digest: mend(registry, digest, key=self.key) if self.key else None,
        )  # fmt: skip

    def _do(self, what: str, source: Source) -> None:
        assert not (self.run and self.run.dead)
        self.done.append((what, source.identifier))

    def _search(self, source: Source) -> None:
        self._do("search", source)
        if source.identifier in self.leaks:
            raise LeakFound(f"{source.name} holds a token.", next_step="Take it out.")

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
        said = [result_statement(report, subject=subject, ran=Ran(host="h", engine="e", version="0"))]
        if self.key:
            attach(registry, digest, said, key=self.key)
        else:
            attach_unsigned(registry, digest, said)


def visible(named: Mapping[str, str]) -> dict[str, str]:
    """Every tag that people see."""
    return {
        tag: digest for tag, digest in named.items() if not is_ours(tag) and not tag.startswith("sha256-")
    }

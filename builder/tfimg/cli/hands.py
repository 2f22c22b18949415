"""What publishing does with the engine at hand: search, push, pull by digest, validate, attach evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from typing import Literal, ParamSpec, TypeVar

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.output.transfers import SECONDS
from tfimg.cli.publisher import Signer
from tfimg.core.errors import EngineError, ImageMissing, LockError, TamperedError, TfimgError
from tfimg.core.events import OnEvent, ProgressEvent, StepEvent
from tfimg.engine.candidates import CANDIDATE
from tfimg.engine.protocol import LocalImage
from tfimg.evidence.attach import attach, repair
from tfimg.evidence.provenance import BuildRecord, make_provenance
from tfimg.evidence.results import RunContext, make_report_statement, make_test_result
from tfimg.evidence.sbom import make_sbom
from tfimg.evidence.statement import Statement, Subject
from tfimg.host.survey import TargetHost
from tfimg.inspect.secrets.findings import require_clean
from tfimg.inspect.secrets.scan import ScanProgress, scan_export, scan_image
from tfimg.matrix.spec import ImageSpec
from tfimg.project.validator import Validator
from tfimg.publish.release import release_of
from tfimg.publish.send import Hands, Source, Stage
from tfimg.recipe.labels import LABEL_PREFIX, LOCK_LABEL, RECIPE_LABEL
from tfimg.recipe.lockfile import hash_lock
from tfimg.recipe.plan import hash_files
from tfimg.registry.protocol import Registry
from tfimg.registry.retry import RetryPolicy
from tfimg.validation.explain import explained
from tfimg.validation.report import Report
from tfimg.validation.run import CheckSelection
from tfimg.validation.verdict import raise_for_verdict

WORDS: Mapping[Stage, str] = {
    "search": "search for secrets",
    "push": "push",
    "validate": "validate by digest",
    "scan": "search what is there",
    "attach": "attach evidence",
    "name": "exact tags",
    "aliases": "aliases",
    "compare": "compare with the plan",
}
"""Stages, for people."""


P = ParamSpec("P")
T = TypeVar("T")

PATIENT = RetryPolicy()
"""Pushes and pulls are tried again as often as requests are: layers that are there are not sent twice."""


class Machine:
    """The engine at hand, its images by identifier, and what is known about them."""

    def __init__(
        self,
        context: Context,
        specs: Mapping[str, ImageSpec],
        images: Mapping[str, LocalImage],
        retry_policy: RetryPolicy = PATIENT,
    ) -> None:
        self._context, self._specs, self.images = context, specs, images
        self._engine = context.engine
        self._on_event: OnEvent | None = None
        self._stage: tuple[str, float] | None = None
        self._told = 0.0
        self._patience = retry_policy

    @cached_property
    def target_host(self) -> TargetHost:
        """This machine, and the engine."""
        return self._context.project.target_host(self._engine)

    def hands(self, registry: Registry, signer: Signer, on_event: OnEvent) -> Hands:
        """The hands with which images go into a registry."""
        noting = self._noting
        self._on_event = on_event
        return Hands(
            search=noting(self._search),
            push=noting(self._push),
            drop=self._abandon,
            validate=noting(partial(self._validate, on_event)),
            scan=noting(partial(self._scan, registry)),
            attach=noting(partial(self._attach, registry, signer)),
            mend=partial(repair, registry, key=signer.key),
            tell=self._tell,
            revalidate=self._context.arguments.revalidate,
        )

    def ended(self, state: Literal["done", "failed"] = "done") -> None:
        """The stage has come to its end, a good one or not."""
        if self._stage and self._on_event:
            step, began = self._stage
            seconds = round(time.monotonic() - began, 3)
            self._on_event(StepEvent(step=step, state=state, seconds=seconds))
        self._stage = None

    def _noting(self, act: Callable[P, T]) -> Callable[P, T]:
        """The same, and where it fails or is interrupted nobody is told that it is done."""

        def noted(*arguments: P.args, **named: P.kwargs) -> T:
            try:
                return act(*arguments, **named)
            except BaseException:
                self.ended("failed")
                raise

        return noted

    def _search(self, source: Source) -> None:
        self._require_lock(source)
        require_clean(
            source.name,
            scan_export(self._engine.export(source.name), self._context.services.secrets(), on_progress=self._searched),
        )

    def _require_lock(self, source: Source) -> None:
        """Raises `LockError` for an image of another lock than its evidence would speak of."""
        spec = self._specs[source.identifier]
        if self.images[source.identifier].labels.get(LOCK_LABEL) != hash_lock(self._context.project.lock(spec)):
            raise LockError(
                f"{source.name} was built from another lock than that of {source.identifier} now.",
                next_step="Build it again.",
            )

    def _push(self, source: Source, reference: str) -> str:
        def attempt() -> str:
            self._engine.tag(source.name, [reference])
            return self._engine.push(reference, self._moved)

        try:
            return self._patience.retry_network_errors(attempt, also=(ImageMissing,))
        finally:
            self._drop(reference)

    def _drop(self, name: str) -> None:
        with suppress(EngineError):  # it is gone already
            self._engine.remove(name)

    def _abandon(self, reference: str) -> None:
        for name in (reference, _passing(reference)):
            with suppress(EngineError):
                self._engine.remove_with_containers(name)

    def _pull(self, source: Source, image: str, name: str) -> None:
        """Pull by digest, and give what came a name of our own."""
        known = self._engine.find_digest(image) is not None  # somebody has pulled it: the name is his

        def attempt() -> None:
            self._engine.pull(image, self._moved)
            self._require_same(source, image)
            self._engine.tag(image, [name])

        try:
            self._patience.retry_network_errors(attempt, also=(ImageMissing,))
        finally:
            if not known:
                self._drop(image)

    def _validate(self, on_event: OnEvent, source: Source, image: str, reference: str) -> tuple[Report, bool]:
        name = _passing(reference)
        try:
            self._pull(source, image, name)
            spec = self._specs[source.identifier]
            arguments = self._context.arguments
            validator = Validator(
                project=self._context.project,
                engine=self._engine,
                level=arguments.level,
                checks=CheckSelection(profile=arguments.profile),
                reuse_reports=not arguments.revalidate,
            )
            local = self.images[source.identifier]
            digest = image.partition("@")[2]
            report, reused = validator.validate(
                self._context.project.plan(spec),
                validator.target(spec),
                name,
                digest=digest,
                content=local.content,
                same_as=(local.digest, digest),
                on_event=on_event,
            )
            self._demand(report, source)
            if reused:
                self._context.say(f"{source.identifier}: a report of {report.date} on these very bytes is believed")
            return report, reused
        finally:
            self._drop(name)

    def _require_same(self, source: Source, image: str) -> None:
        """Raises `TamperedError` where the registry gave another image back than it got."""
        found = self._engine.find_digest(image)
        if found is None:
            raise ImageMissing(f"{image} was pulled, and the engine has it no more.", next_step="Run it again.")
        if found != source.digest:
            raise TamperedError(
                f"{image} is {found} in the engine, and {source.name}, which was pushed, is {source.digest}.",
                next_step="Find out what changes images between the engine and the registry.",
            )

    def _demand(self, report: Report, source: Source) -> None:
        try:
            raise_for_verdict(
                report,
                subject=f"{source.identifier} was pulled by digest",
                consequence="No tag leads to it.",
                details=f"`tfimg validate {source.name} --report FILE` keeps the whole evidence.",
            )
        except TfimgError as error:
            raise explained(error, suite=self._context.project.workspace.validation) from None

    def _scan(self, registry: Registry, source: Source, digest: str) -> None:
        kept = self._context.services.state / "registry" / "leaks"
        found = scan_image(registry, digest, self._context.services.secrets(), cache=kept, on_progress=self._searched)
        require_clean(f"{registry.repository}@{digest} ({source.identifier})", found)

    def _attach(self, registry: Registry, signer: Signer, source: Source, digest: str, report: Report) -> None:
        said = self._statements(registry, signer, source, digest, report)
        attach(registry, digest, said, key=signer.key)

    def _statements(
        self, registry: Registry, signer: Signer, source: Source, digest: str, report: Report
    ) -> Sequence[Statement]:
        """The test result last: once it is there, all is."""
        subject = Subject(name=registry.repository, digest=digest)
        engine = f"Docker {self._engine.get_capabilities().engine}"
        content = self.images[source.identifier].content
        inventory = self._context.project.inventories.take(source.name, content, self._engine)
        manifest = registry.find(digest)
        release = release_of(registry, manifest) if manifest else None
        made = (release and release.created) or self._context.services.now()
        ran = RunContext(host=signer.name, engine=engine, version=__version__)
        return (
            make_sbom(inventory, subject=subject, made=made),
            make_provenance(self._making(source, engine, made), subject=subject),
            make_report_statement(report, subject=subject),
            make_test_result(report, subject=subject, ran=ran),
        )

    def _making(self, source: Source, engine: str, made: datetime) -> BuildRecord:
        labels = self.images[source.identifier].labels
        lock = self._context.project.lock(self._specs[source.identifier])
        base = "org.opencontainers.image.base"
        return BuildRecord(
            identifier=source.identifier,
            base=labels.get(f"{base}.name", "unknown"),
            base_digest=labels.get(f"{base}.digest"),
            locks={layer: hash_files({layer: text.encode()}) for layer, text in lock.items()},
            recipe=labels.get(RECIPE_LABEL),
            revision=labels.get("org.opencontainers.image.revision"),
            engine=engine,
            version=labels.get(f"{LABEL_PREFIX}version", __version__),
            began=None,
            ended=made,
        )

    def _moved(self, event: ProgressEvent) -> None:
        now = time.monotonic()
        if self._on_event and self._stage and now - self._told >= SECONDS:
            self._told = now
            self._on_event(replace(event, step=self._stage[0]))

    def _searched(self, scanned: ScanProgress) -> None:
        event = ProgressEvent(step="", what=scanned.digest[:19], current=scanned.searched, total=scanned.searched)
        self._moved(event)

    def _tell(self, identifier: str, stage: Stage | None, _: str) -> None:
        if self._on_event is None:
            return
        self.ended()
        if stage:
            step = f"{identifier}: {WORDS[stage]}" if identifier else WORDS[stage]
            self._stage = step, time.monotonic()
            self._on_event(StepEvent(step=step, state="started"))


def _passing(reference: str) -> str:
    """The name under which a candidate is validated here, in another repository than its own.

    Where an engine forgets REPOSITORY@DIGEST, as somebody who publishes the same image beside us may have it do, it
    forgets tags of that repository with it.
    """
    return f"{CANDIDATE}:{reference.rpartition(':')[2]}"

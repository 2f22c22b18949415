"""The way of one image: build, validate, tag. For one image and for many; who listens prints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from tfimg.build import candidate as building
from tfimg.build.candidate import BuiltImage
from tfimg.build.report_cache import Inventories, Kept, Subject
from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.process import defer_signals
from tfimg.engine.base_images.choose import BaseImage
from tfimg.engine.build_cache import BuildCache
from tfimg.engine.protocol import BuildEvent, Capabilities, Engine
from tfimg.host.target_level import TargetLevel
from tfimg.index.network import HostNetwork
from tfimg.recipe.layout import Compression
from tfimg.recipe.plan import Plan
from tfimg.validation.event_stream import ChecksPlanned, CheckStarted, SuiteEvent
from tfimg.validation.report import CheckResult, Report
from tfimg.validation.run import CheckSelection, ValidationRequest
from tfimg.validation.run import validate as run_suite
from tfimg.validation.verdict import raise_for_verdict


class Progress(Protocol):
    """Who is told what happens."""

    def build(self, event: BuildEvent) -> None:
        """Something happened in the build."""

    def planned(self, checks: Sequence[str]) -> None:
        """The suite has said which checks it will run."""

    def check_started(self, check: str) -> None:
        """A check begins."""

    def check_ended(self, result: CheckResult) -> None:
        """A check has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One image on one engine: what it was planned to be, and what to show of it where."""

    plan: Plan
    aim: TargetLevel
    accelerator: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One image on one engine: what to build, on which base, with which labels, and what to show of it where."""

    plan: Plan
    base: BaseImage
    labels: Mapping[str, str]
    aim: TargetLevel
    accelerator: str

    @property
    def trial(self) -> Trial:
        """What to show once it is built."""
        return Trial(plan=self.plan, aim=self.aim, accelerator=self.accelerator)


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """What every image of a run is made with. `fresh` forgets cached steps; `reuse` believes kept reports.

    `hand_in` makes the stages of a plan that an engine of such capabilities need not build.
    """

    network: HostNetwork
    context: Path
    suite: Mapping[str, bytes]
    suite_digest: str
    selection: CheckSelection
    kept: Kept
    inventories: Inventories
    fresh: bool
    reuse: bool
    cache: BuildCache
    compression: Compression
    hand_in: Callable[[Plan, Capabilities, Callable[[BuildEvent], None]], Mapping[str, str]]

    def subject(self, trial: Trial, content: str) -> Subject:
        """What a report on an image's content would be about."""
        return Subject(
            identifier=trial.plan.spec.identifier,
            content=content,
            suite=self.suite_digest,
            level=trial.aim.level,
            profile=self.selection.profile,
            accelerator=trial.accelerator,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """An image that has its tags. `reused` says that its report is of an earlier run."""

    built: BuiltImage
    report: Report
    reused: bool


def make(
    work: Work,
    means: Means,
    *,
    name: str,
    engine: Engine,
    capabilities: Capabilities,
    progress: Progress,
    keep: Callable[[Report], None],
    evidence: str = "--report FILE keeps the whole evidence.",
    conclude: Callable[[Made], None] = lambda _: None,
) -> Made:
    """Build an image under the candidate's `name`, validate it, keep its inventory and tag it; then remove the name.

    `keep` gets the report, green or not, and `evidence` says where people find it; `conclude` gets what was made, in
    one move with the tags. Raises what the build raises, the verdict's error for an image that is not green,
    `Interrupted` where the work was cancelled.
    """
    built = building.build(
        work.plan,
        name=name,
        base=work.base,
        engine=engine,
        capabilities=capabilities,
        network=means.network,
        context=means.context,
        labels=work.labels,
        fresh=means.fresh,
        cache=means.cache,
        compression=means.compression,
        stages=means.hand_in(work.plan, capabilities, progress.build),
        on_event=progress.build,
    )
    try:
        raise_if_cancelled()
        stored = built.stored
        report, reused = shown(
            work.trial,
            means,
            image=built.name,
            digest=stored.digest,
            content=stored.content,
            engine=engine,
            progress=progress,
        )
        raise_if_cancelled()
        keep(report)
        raise_for_verdict(
            report, subject=f"{built.identifier} was built", consequence="No tag was given.", details=evidence
        )
        means.inventories.take(built.name, stored.content, engine)
        raise_if_cancelled()
        made = Made(built=built, report=report, reused=reused)
        with defer_signals():
            engine.tag(built.name, work.plan.tags)
            conclude(made)
        return made
    finally:
        building.discard(engine, built.name)


def shown(
    trial: Trial,
    means: Means,
    *,
    image: str,
    digest: str,
    content: str | None,
    engine: Engine,
    progress: Progress,
    of: Collection[str] = (),
) -> tuple[Report, bool]:
    """The report on an image in an engine, and whether it is an earlier run's; `content` is as in `LocalImage`.

    `of`: digests, one of which an earlier report must be about; without any, one on the same content counts too.
    Green or not. Raises `Interrupted` where the work was cancelled.
    """
    subject = means.subject(trial, content) if content else None
    if subject and means.reuse and (earlier := means.kept.read(subject)) and (not of or earlier.digest in of):
        return replace(earlier, digest=digest), True
    report = examine(
        trial.plan,
        image=image,
        digest=digest,
        engine=engine,
        suite=means.suite,
        selection=means.selection,
        aim=trial.aim,
        progress=progress,
    )
    raise_if_cancelled()  # a container that was ended shows nothing
    if subject:
        means.kept.forget(subject)
        means.kept.keep(subject, report)
    return report, False


def examine(
    plan: Plan,
    *,
    image: str,
    digest: str,
    engine: Engine,
    suite: Mapping[str, bytes],
    selection: CheckSelection,
    aim: TargetLevel,
    progress: Progress,
    ours: bool = True,
) -> Report:
    """Run the suite in an image and tell how it goes. `ours` says that it was built from the plan's lock."""
    return run_suite(
        ValidationRequest(
            spec=plan.spec,
            lock=plan.lock,
            image=image,
            digest=digest,
            suite=suite,
            target_level=aim.level,
            access=aim.access,
            from_lock=ours,
            selection=selection,
        ),
        engine,
        on_event=partial(_show, progress),
    )


def _show(progress: Progress, event: SuiteEvent) -> None:
    match event:
        case ChecksPlanned():
            progress.planned(event.checks)
        case CheckStarted():
            progress.check_started(event.check)
        case CheckResult():
            progress.check_ended(event)

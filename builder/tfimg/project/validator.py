"""Validate images in an engine, for builds and publications; green reports on equal images are reused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.core import cancellation, errors, files
from tfimg.core.events import InfoEvent, OnEvent, ignore
from tfimg.core.levels import Level
from tfimg.core.text import parse_time
from tfimg.engine.interface import Engine
from tfimg.host.survey import Execution, TargetHost, TargetLevel, choose_target_level
from tfimg.matrix.schema import Platform
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.labels import IDENTIFIER_LABEL, LOCK_LABEL
from tfimg.recipe.lock import hash_lock
from tfimg.recipe.plan import Plan
from tfimg.validation.suite import ALL_CHECKS, MAX_FILES, CheckSelection, Profile, suite_files

if TYPE_CHECKING:
    from tfimg.validation.report import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptReport:
    """The place of a green report on an image's content: by which suite, to which level, on which accelerator."""

    folder: Path
    identifier: str
    content: str
    suite: str
    level: str
    profile: Profile
    accelerator: str

    @property
    def file(self) -> Path:
        subject = repr(astuple(self)[1:])
        return self.folder / f"{hashlib.sha256(subject.encode()).hexdigest()}.json"

    def read(self) -> Report | None:
        """Return the report; None if there is none that can be read."""
        from tfimg.validation.record import read_report

        with suppress(errors.FileError, OSError, UnicodeDecodeError):
            return read_report(self.file.read_text(encoding="utf-8"), source=str(self.file))
        return None

    def read_date(self) -> str | None:
        """Return the date of the report, ISO 8601 in UTC; None as `read`, in a hundredth of its time."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            date = str(json.loads(self.file.read_bytes())["date"])
            return date if parse_time(date) else None
        return None

    def replace(self, report: Report) -> None:
        """Remove the earlier report, and keep the new one if it is green and complete."""
        from tfimg.validation.report import format_json

        self.file.unlink(missing_ok=True)
        if report.level == report.aim:
            files.write_atomically(self.file, format_json(report))
            files.remove_oldest(self.folder, keep=MAX_FILES)


@dataclass(frozen=True, kw_only=True)
class Validator:
    """Validate images in one engine. `level` is the level to prove, None for the highest that this machine can prove.

    `reuse_reports` accepts a kept green report instead of running the suite.
    """

    project: Project
    engine: Engine
    level: Level | None = None
    checks: CheckSelection = ALL_CHECKS
    reuse_reports: bool = False
    _emulated: dict[Platform, bool] = field(default_factory=dict, init=False)

    @cached_property
    def target_host(self) -> TargetHost:
        return self.project.target_host(self.engine)

    @cached_property
    def suite(self) -> Mapping[str, bytes]:
        return suite_files(self.project.workspace.validation)

    def target(self, spec: ImageSpec, on_event: OnEvent = ignore) -> TargetLevel:
        """Return the level to prove of an image here; report if that is not the highest. See `choose_target_level`."""
        execution: Execution = "native"
        if spec.platform != self.target_host.toolkit.platform:
            if spec.platform not in self._emulated:  # it is tried once
                self._emulated[spec.platform] = self.engine.can_run(spec.platform)
            execution = "emulated" if self._emulated[spec.platform] else "none"
        target = choose_target_level(spec, self.target_host, self.level, execution)
        if target.reason:
            on_event(InfoEvent(text=f"Level {target.level} is the highest that can be proven here. {target.reason}"))
        return target

    def kept_report(self, spec: ImageSpec, target: TargetLevel, content: str) -> KeptReport:
        return KeptReport(
            folder=self.project.services.state / "reports",
            identifier=spec.identifier,
            content=content,
            suite=files.hash_files(self.suite),
            level=target.level,
            profile=self.checks.profile,
            accelerator=target.accelerator,
        )

    def validate(
        self,
        plan: Plan,
        image: str,
        *,
        digest: str,
        content: str | None = None,
        same_as: Collection[str] = (),
        max_age: timedelta | None = None,
        from_lock: bool = True,
        may_be_derived: bool = False,
        on_event: OnEvent = ignore,
    ) -> tuple[Report, bool]:
        """Return the report on an image, green or not, and whether an earlier run wrote it.

        `content` is as in `LocalImage`; without it, no report is reused or kept. `same_as` restricts reuse to reports
        on these digests, `max_age` to newer ones. `from_lock`: it was built from the plan's lock; `may_be_derived`: or
        is made of such an image. Raises `Interrupted` if it was cancelled.
        """
        target = self.target(plan.spec)
        if target.level == Level.BUILT:
            raise errors.NoEmulation(
                target.reason or f"{plan.spec.identifier} cannot run in this engine.",
                next_step=f"Or validate it on a machine of {plan.spec.platform}.",
            )
        kept = self.kept_report(plan.spec, target, content) if content else None
        if kept and self.reuse_reports:
            earlier = kept.read()
            now = self.project.services.now()
            if earlier and max_age and now - (parse_time(earlier.date) or now) > max_age:
                earlier = None
            if earlier and (not same_as or earlier.digest in same_as):
                return replace(earlier, digest=digest), True
        from tfimg.validation import run

        request = run.ValidationRequest(
            spec=plan.spec,
            lock=plan.lock,
            image=image,
            digest=digest,
            suite=self.suite,
            target_level=target.level,
            access=target.access,
            emulated=target.emulated,
            from_lock=from_lock,
            may_be_derived=may_be_derived,
            selection=self.checks,
        )
        report = run.validate(request, self.engine, on_event=on_event, now=self.project.services.now)
        cancellation.raise_if_cancelled()  # a container that was stopped proves nothing
        if kept:
            kept.replace(report)
        return report, False

    def validate_image(
        self, image: str, identifier: str | None = None, *, needs_lock: bool = False, on_event: OnEvent = ignore
    ) -> Report:
        """Return the report on an image that the engine has, as what `identifier` says that it is, else its label.

        Raises as `Project.spec_of_image`, and with `needs_lock` `UsageError` if it was not built from its row's lock.
        """
        from tfimg.validation.run import explain_errors

        project, engine = self.project, self.engine
        digest = project.require_image(engine, image)
        spec = project.spec_of_image(engine, image, identifier)
        plan = project.plan(spec)
        if needs_lock and spec.wheel:
            raise errors.UsageError(
                f"{spec.identifier} is the image of a custom wheel: the matrix has no row for its record.",
                next_step="Leave --record out; --report FILE writes the report, and --push of `tfimg build` publishes "
                "it.",
            )
        labels = engine.find_labels(image) or {}
        label, lock = labels.get(IDENTIFIER_LABEL), labels.get(LOCK_LABEL)
        if label and label != spec.identifier:
            on_event(InfoEvent(text=f"{image} is labelled {label}; it is validated as {spec.identifier}."))
        if needs_lock and lock != hash_lock(plan.lock):
            raise errors.UsageError(
                f"{image} was not built from the lock of {spec.identifier}; its label says {lock or 'none'}.",
                next_step="Build it again with --record, or leave --record out.",
            )
        with explain_errors(project.workspace.validation):
            self.target(spec, on_event)
            report, _ = self.validate(
                plan, image, digest=digest, from_lock=bool(lock), may_be_derived=not needs_lock, on_event=on_event
            )
        return report

    def validate_workers(self, image: str, report: Report, count: int, *, on_event: OnEvent = ignore) -> Report:
        """Return a report on an image with the results of the distributed checks across `count` containers.

        They raise no level; one that fails makes the report red. They are skipped where the suite did not pass in one
        container, or on an emulated processor. `image` is a name of the report's image.
        """
        from tfimg.validation import workers

        if not report.passed:
            found = workers.skip_workers("the suite did not pass in one container", on_event)
        elif report.environment.get("emulated"):
            found = workers.skip_workers("on an emulated processor, several containers take too long", on_event)
        elif not (self.engine.find_labels(image) or {}).get(LOCK_LABEL):
            found = workers.skip_workers("the image was not built by tfimg, and has no tfimg-cluster", on_event)
        else:
            services = self.project.services
            found = workers.validate_workers(
                image,
                self.suite,
                count,
                self.engine,
                folder=self.project.workspace.validation,
                locks=services.state / "workers",
                now=services.now(),
                on_event=on_event,
            )
        return replace(report, results=(*report.results, *found))

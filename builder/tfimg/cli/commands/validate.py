"""`tfimg validate`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    ValidationOptions,
    identifier_option,
    image_argument,
    option,
    values,
)
from tfimg.core.errors import UsageError


@dataclass(frozen=True)
class Validate(Command, ValidationOptions):
    """Run the suite in an image that is in the engine.

    Examples:
      tfimg validate tfimg/tensorflow:2.15 --as 2.15.1-cpu-py3.11
    """

    image: str = image_argument()
    _: KW_ONLY
    identifier: str | None = identifier_option()
    profile: Literal["smoke", "standard", "full"] = option(
        "how much of the suite to run (default: standard)", default="standard"
    )
    only: tuple[str, ...] = values("run these checks alone: 'gpu.*'", "PATTERN")
    skip: tuple[str, ...] = values("leave these checks out: 'gpu.*'", "PATTERN")

    def run(self, context: Context) -> int:
        """Run the suite, write its report, and raise the error of its verdict."""
        from tfimg.cli.report_files import check_report_files, write_reports
        from tfimg.project.validator import Validator
        from tfimg.recipe.labels import IDENTIFIER_LABEL, LOCK_LABEL
        from tfimg.recipe.lockfile import hash_lock
        from tfimg.validation.explain import explaining
        from tfimg.validation.report_text import level_words
        from tfimg.validation.run import CheckSelection
        from tfimg.validation.verdict import raise_for_verdict

        project, engine, image = context.project, context.engine, self.image
        check_report_files(self.report)
        digest = project.require_image(engine, image)
        spec = project.spec_of_image(engine, image, self.identifier)
        plan = project.plan(spec)
        labels = engine.find_labels(image) or {}
        label, lock = labels.get(IDENTIFIER_LABEL), labels.get(LOCK_LABEL)
        if label and label != spec.identifier:
            context.say(f"{image} is labelled {label}; it is validated as {spec.identifier}.")
        if self.record and lock != hash_lock(plan.lock):
            raise UsageError(
                f"{image} was not built from the lock of {spec.identifier}; its label says {lock or 'none'}.",
                next_step="Build it again with --record, or leave --record out.",
            )
        checks = CheckSelection(profile=self.profile, only=self.only, skip=self.skip)
        validator = Validator(project=project, engine=engine, level=self.level, checks=checks)
        with explaining(project.workspace.validation), context.render_events() as on_event:
            validator.target(spec, on_event)
            report, _ = validator.validate(plan, image, digest=digest, from_lock=bool(lock), on_event=on_event)
        write_reports(self.report, report)
        if self.record:
            project.record(report)
        if self.json:
            context.emit({"event": "report", **report.to_json()})
        raise_for_verdict(report, subject=f"{image} was validated", consequence="Its tags are as they were.")
        if not self.json:
            passed = sum(result.outcome == "passed" for result in report.results)
            print(f"{image}: {passed} check{'' if passed == 1 else 's'} passed, level {level_words(report)}")
        return 0

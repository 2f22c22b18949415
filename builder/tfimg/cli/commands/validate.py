"""`tfimg validate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfimg.cli.context import Context
from tfimg.cli.options import Command, IdentifierOptions, LocalImage, ValidationOptions, option, values


@dataclass(frozen=True, kw_only=True)
class Validate(Command, LocalImage, IdentifierOptions, ValidationOptions):
    """Run the suite in an image that is in the engine.

    Examples:
      tfimg validate tfimg/tensorflow:2.15 --as 2.15.1-cpu-py3.11
    """

    profile: Literal["smoke", "standard", "full"] = option(
        "how much of the suite to run (default: standard)", default="standard"
    )
    only: tuple[str, ...] = values("run these checks alone: 'gpu.*'", "PATTERN")
    skip: tuple[str, ...] = values("leave these checks out: 'gpu.*'", "PATTERN")

    def run(self, context: Context) -> int:
        from tfimg.cli.report_files import check_report_files, write_reports
        from tfimg.project.project import record_evidence
        from tfimg.project.validator import Validator
        from tfimg.validation.report import level_words
        from tfimg.validation.run import CheckSelection, raise_for_verdict

        check_report_files(self.report)
        checks = CheckSelection(profile=self.profile, only=self.only, skip=self.skip)
        validator = Validator(
            project=context.project, engine=context.services.runner(), level=self.level, checks=checks
        )
        with context.render_events() as on_event:
            report = validator.validate_image(self.image, self.identifier, needs_lock=self.record, on_event=on_event)
        write_reports(self.report, report)
        if self.record:
            # What the image says of its recipe is no proof: nothing was built here.
            record_evidence(context.project.workspace, report, content=None, recipe=None)
        if self.json:
            context.emit({"event": "report", **report.to_json()})
        raise_for_verdict(report, subject=f"{self.image} was validated", consequence="Its tags are as they were.")
        if not self.json:
            passed = sum(result.outcome == "passed" for result in report.results)
            print(f"{self.image}: {passed} check{'' if passed == 1 else 's'} passed, level {level_words(report)}")
        return 0

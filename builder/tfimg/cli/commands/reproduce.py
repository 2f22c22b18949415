"""`tfimg reproduce`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, FreshBase, WheelOptions, option, report_option
from tfimg.cli.request_options import RequestOptions
from tfimg.cli.values import positive_number
from tfimg.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command, RequestOptions, FreshBase, WheelOptions):
    """Build an image twice without a cache, and name the files that differ.

    Examples:
      tfimg reproduce --tf 2.15
      tfimg reproduce --recorded 2
    """

    recorded: int | None = option(
        "instead build N images with evidence again, other ones each day, and compare them with it",
        "N",
        parse=positive_number,
    )
    report: tuple[str, ...] = report_option()

    def run(self, context: Context) -> int:
        """Build the image twice and compare the layers, or some images once and compare them with their evidence."""
        from tfimg.build.reproduce import reproduce

        if self.recorded:
            return self._recheck(context, self.recorded)
        if self.report:
            raise UsageError("--report needs --recorded.", next_step="Leave it out, or use --json.")
        plan = context.project.plan(context.project.resolve(self.request()).spec)
        with context.render_events() as on_event:
            found = reproduce(context.project, context.engine, self.base_settings(), plan, on_event)
        if self.json:
            context.emit(found.to_json())
        found.require_same()
        if not self.json:
            print(f"{found.identifier}: built twice without a cache, all {len(found.pairs)} layers are identical.")
        return 0

    def _recheck(self, context: Context, count: int) -> int:
        """Build the images whose turn it is, and compare each with its evidence. Raises as `build` does."""
        from tfimg.build.batch import build_many
        from tfimg.build.recheck import choose_turn
        from tfimg.build.results import SUMMARY_SUFFIXES, format_summary, raise_for_results
        from tfimg.cli.report_files import check_report_files
        from tfimg.core.files import write_atomically

        if given := self.given_options():
            raise UsageError(
                f"{', '.join(given)} and --recorded cannot be combined: the day chooses the images.",
                next_step="Leave --recorded out, or the request.",
            )
        check_report_files(self.report, SUMMARY_SUFFIXES)
        project = context.project
        proven = [spec for spec in project.specs if project.statuses[spec.identifier].level != "declared"]
        specs = choose_turn(proven, context.services.today, count)
        with context.render_events() as on_event:
            batch = build_many(
                project, [context.engine], replace(self.base_settings(), recheck=True, jobs=1), specs, on_event
            )
        for name in self.report:
            write_atomically(Path(name), format_summary(batch, name))
        context.print_result({"event": "summary", "identifier": None, **batch.to_json()}, batch.summary)
        raise_for_results(batch.results, needs_all=False)
        return 0

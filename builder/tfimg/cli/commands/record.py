"""`tfimg record`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument


@dataclass(frozen=True)
class RecordEvidence(Command):
    """Record what images/bare/run.py has proven of an image's wheels on a machine; it raises no image's level.

    Examples:
      tfimg record evidence.json
    """

    file: str = argument("the evidence.json that run.py has written", "FILE")

    def run(self, context: Context) -> int:
        from tfimg.core.files import read_limited, write_atomically
        from tfimg.validation.host_run import MAX_BYTES, judge_host_run, parse_host_run
        from tfimg.validation.record import format_image_record, make_image_record

        project, workspace = context.project, context.project.workspace
        content = read_limited(self.file, MAX_BYTES, next_step="Name the evidence.json that run.py has written.")
        found = parse_host_run(content, source=self.file)
        spec = project.spec(found.identifier)
        lock = workspace.read_lock(spec.identifier)
        report = judge_host_run(found, spec, lock, suite=workspace.validation, source=self.file)
        record = make_image_record(report, content=None, recipe=None)
        file = workspace.bare_evidence(spec.identifier) / record.file_name
        write_atomically(file, format_image_record(record))
        driver = f", driver {record.driver}" if record.driver else ""
        document = {
            "identifier": spec.identifier, "machine": record.machine, "driver": record.driver,
            "checks": len(record.passed), "file": str(file),
        }  # fmt: skip
        context.print_result(
            {"event": "recorded", **document},
            f"{spec.identifier}: {len(record.passed)} checks passed on {record.machine}{driver}. Wrote {file}.",
        )
        return 0

"""`tfimg record`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument


@dataclass(frozen=True)
class RecordEvidence(Command):
    """Record the evidence of such a folder in the checkout; it raises no image's level.

    Examples:
      tfimg record evidence.json
    """

    file: str = argument("the evidence.json that run.py has written", "FILE")

    def run(self, context: Context) -> int:
        """Judge each release of the file, and write the records of those that are proven."""
        from tfimg.core.files import read_limited, write_atomically
        from tfimg.validation.bare_evidence import MAX_BYTES, BareRecord, format_record, parse_evidence
        from tfimg.validation.bare_verdict import raise_for_rejected, verify_file

        project, workspace = context.project, context.project.workspace
        content = read_limited(self.file, MAX_BYTES, next_step="Name the evidence.json that run.py has written.")
        found = parse_evidence(content, source=self.file)
        specs = {spec.identifier: spec for spec in project.specs}
        rejected: dict[str, Sequence[str]] = {}
        for identifier, record in verify_file(found, specs, suite=workspace.validation, read_lock=workspace.read_lock):
            if not isinstance(record, BareRecord):
                rejected[identifier] = record
                continue
            file = workspace.bare_evidence(identifier) / record.file_name
            write_atomically(file, format_record(record))
            checks = sum(result.outcome == "passed" for result in record.results)
            driver = f", driver {record.driver}" if record.driver else ""
            document = {"machine": record.machine, "driver": record.driver, "checks": checks, "file": str(file)}
            context.print_result(
                {"event": "recorded", "identifier": identifier, **document},
                f"{identifier}: {checks} checks passed on {record.machine}{driver}. Wrote {file}.",
            )
        raise_for_rejected(rejected, source=self.file, total=len(found.runs))
        return 0

"""Commands that maintain the matrix and the files that follow from it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

from tfimg.advisories.audit import find_expired, raise_for_expired
from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument, flag, pattern_arguments, select_buildable
from tfimg.cli.output.progress import render_count
from tfimg.cli.output.tables import print_rows
from tfimg.core.errors import StaleFiles
from tfimg.core.files import read_limited, write_atomically
from tfimg.matrix.propose import propose_rows
from tfimg.matrix.schema import matrix_schema_text
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.survey import RowFindings, check_matrix, is_missing, survey_index
from tfimg.recipe.generated_files import GeneratedFiles
from tfimg.recipe.plan import render_dockerfile, select_defaults
from tfimg.recipe.support import insert_table
from tfimg.validation.host_run import MAX_BYTES, judge_host_run, parse_host_run
from tfimg.validation.record import format_image_record, make_image_record, schema_text


@dataclass(frozen=True)
class Sync(Command):
    """Add releases that the package index has and the matrix lacks.

    Examples:
      tfimg matrix sync --check
    """

    check: bool = flag("write nothing; fail if a release is missing")

    def run(self, context: Context) -> int:
        project = context.project()
        path, lacks = project.workspace.matrix, partial(is_missing, project.matrix)
        with render_count(context, "wheels read") as on_progress:
            survey = survey_index(project.matrix, context.services.index(), is_selected=lacks, on_progress=on_progress)
        missing = sorted(filter(lacks, survey.releases))
        text = project.workspace.read_matrix()
        proposed = propose_rows(text, survey, missing, today=context.services.today) if missing else text
        names = [str(version) for version in missing]
        lines = (text.splitlines(keepends=True), proposed.splitlines(keepends=True))
        difference = "".join(difflib.unified_diff(*lines, path.name, path.name))
        none_missing = "The matrix has every release of the package index."
        context.print_result({"missing": names, "difference": difference}, difference.rstrip("\n") or none_missing)
        if missing and self.check:
            raise StaleFiles(
                f"The matrix lacks {', '.join(names)}.", next_step="Run `tfimg matrix sync`, and confirm what it marks."
            )
        if missing:
            write_atomically(path, proposed)
            context.say(
                f"{path.name} has {', '.join(names)} now: confirm what is marked, then run `tfimg matrix lock`."
            )
            _ = context.project().matrix  # read again, to report now what is still wrong with it
        return 0


@dataclass(frozen=True)
class CheckMatrix(Command):
    """Compare the matrix with what the wheels on the package index say.

    Examples:
      tfimg matrix check 2.15 2.16
    """

    releases: tuple[str, ...] = argument("2.15, 2.15.1 (default: all)", "RELEASE", default=())

    def run(self, context: Context) -> int:
        """Print how many facts agree. Raises `MatrixMismatch` for those that do not."""
        project = context.project()
        matrix, file = project.matrix, project.workspace.matrix
        with render_count(context, "wheels read") as on_progress:
            found = check_matrix(matrix, context.services.index(), self.releases, on_progress)
        unconfirmed = project.workspace.read_matrix().count("# confirm:")
        if context.json:
            missing = [str(version) for version in found.missing]
            rows = [asdict(row) for row in found.rows]
            context.emit({"wheels": found.wheels, "missing": missing, "unconfirmed": unconfirmed, "rows": rows})
        else:
            _print_rows(found.rows)
            print(f"{found.wheels} wheels read, {sum(len(row.findings) for row in found.rows)} facts compared.")
            if unconfirmed:
                print(f"{unconfirmed} lines of {file.name} are still marked “confirm”: wheels do not contain those.")
        found.raise_for_mismatch()
        raise_for_expired(find_expired(matrix.accepted_risks, context.services.today))
        return 0


def _print_rows(rows: Sequence[RowFindings]) -> None:
    """Print a line for each row of the matrix, and a column for each field: how many facts agree."""
    findings = [finding for row in rows for finding in row.findings]
    fields = list(dict.fromkeys(finding.field for finding in findings))
    colours = {"wrong": "red", "not stated": "yellow", "agree": "green"}
    cells = [(f"rows[{row.row}]", ", ".join(row.tensorflow), *(_cell(row, field) for field in fields)) for row in rows]
    columns = ("ROW", "IS", *map(str.upper, fields))
    print_rows(columns, cells, colours=dict.fromkeys(columns, colours))
    for finding in findings:
        if finding.verdict == "not stated":
            print(f"{finding.path}: {finding.message}")


def _cell(row: RowFindings, field: str) -> str:
    verdicts = [finding.verdict for finding in row.findings if finding.field == field]
    if mismatches := verdicts.count("disagrees"):
        return f"{mismatches} of {len(verdicts)} wrong"
    if not_stated := verdicts.count("not stated"):
        return f"{not_stated} not stated"
    return f"{len(verdicts)} agree" if verdicts else "-"


@dataclass(frozen=True)
class Render(Command):
    """Write default Dockerfiles, the matrix's schema and the README's short table.

    Examples:
      tfimg matrix render --check
      tfimg matrix render 2.15.1-cpu-py3.11
    """

    patterns: tuple[str, ...] = pattern_arguments("print the Dockerfiles of these images instead: 2.15, '*-cpu-py3.11'")
    check: bool = flag("write nothing; fail if a file is out of date")

    def run(self, context: Context) -> int:
        project = context.project()
        workspace = project.workspace

        def dockerfile(spec: ImageSpec) -> str:
            return render_dockerfile(spec, project.lock(spec), project.templates)

        if self.patterns:
            specs = select_buildable(context, project, self.patterns)
            project.locks.require_committed(specs)
            for spec in specs:
                document = {"identifier": spec.identifier, "dockerfile": dockerfile(spec)}
                context.print_result(document, document["dockerfile"].removesuffix("\n"))
            return 0
        files = GeneratedFiles(workspace.root, check=self.check)
        files.add({workspace.schema: matrix_schema_text(), workspace.report_schema: schema_text()})
        defaults = tuple(select_defaults(project.specs))
        workspace.require_locks(spec.identifier for spec in defaults)
        for spec in defaults:
            files.add({workspace.rendered(spec.identifier): dockerfile(spec)})
        files.remove_others(workspace.images / "rendered")
        # An installed package has no README, and a workspace may have its own.
        if workspace.readme.is_file() and (text := insert_table(workspace.readme.read_text(), project.support)):
            files.add({workspace.readme: text})
        files.require_fresh("tfimg matrix render")
        context.print_result(files.to_json(), str(files))
        return 0


@dataclass(frozen=True)
class RecordHostRun(Command):
    """Record what images/on_host/run.py has proven of an image's wheels on a machine; it raises no image's level.

    Examples:
      tfimg matrix record host-run.json
    """

    file: str = argument("the host-run.json that run.py has written", "FILE")

    def run(self, context: Context) -> int:
        project = context.project()
        workspace = project.workspace
        content = read_limited(self.file, MAX_BYTES, next_step="Name the host-run.json that run.py has written.")
        found = parse_host_run(content, source=self.file)
        spec = project.spec(found.identifier)
        lock = workspace.read_lock(spec.identifier)
        report = judge_host_run(found, spec, lock, suite=workspace.validation, source=self.file)
        record = make_image_record(report, content=None, recipe=None)
        file = workspace.host_records(spec.identifier) / record.file_name
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

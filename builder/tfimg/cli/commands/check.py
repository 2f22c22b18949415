"""`tfimg check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument

if TYPE_CHECKING:
    from rich.text import Text

    from tfimg.matrix.survey import RowFindings


@dataclass(frozen=True)
class Check(Command):
    """Compare the matrix with what the wheels on the package index say.

    Examples:
      tfimg check 2.15 2.16
    """

    releases: tuple[str, ...] = argument("2.15, 2.15.1 (default: all)", "RELEASE", default=())

    def run(self, context: Context) -> int:
        """Print how many facts agree. Raises `MatrixMismatch` for those that do not."""
        from tfimg.advisories.audit import find_expired, raise_for_expired
        from tfimg.cli.output.transfers import render_count
        from tfimg.matrix.survey import check_matrix

        matrix, file = context.project.matrix, context.project.workspace.matrix
        with render_count(context, "wheels read") as on_progress:
            found = check_matrix(matrix, context.services.index(), self.releases, on_progress)
        unconfirmed = file.read_text(encoding="utf-8").count("# confirm:")
        if self.json:
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
    from tfimg.cli.output.tables import print_rows

    findings = [finding for row in rows for finding in row.findings]
    fields = list(dict.fromkeys(finding.field for finding in findings))
    cells = [(f"rows[{row.row}]", ", ".join(row.tensorflow), *(_cell(row, field) for field in fields)) for row in rows]
    print_rows(("ROW", "IS", *map(str.upper, fields)), cells)
    for finding in findings:
        if finding.verdict == "not stated":
            print(f"{finding.path}: {finding.message}")


def _cell(row: RowFindings, field: str) -> str | Text:
    from rich.text import Text

    verdicts = [finding.verdict for finding in row.findings if finding.field == field]
    if mismatches := verdicts.count("disagrees"):
        return Text(f"{mismatches} of {len(verdicts)} wrong", style="red")
    if not_stated := verdicts.count("not stated"):
        return Text(f"{not_stated} not stated", style="yellow")
    return Text(f"{len(verdicts)} agree", style="green") if verdicts else "-"

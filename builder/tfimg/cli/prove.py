"""`tfimg check` and `tfimg sync`: compare the matrix with wheels and images."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from packaging.version import Version
from rich.progress import Progress

from tfimg.cli.console import live, make_console
from tfimg.cli.context import Context
from tfimg.cli.show import plain_table, print_table
from tfimg.core.errors import MatrixMismatch, StaleFiles, UnknownTensorFlow, UsageError
from tfimg.core.files import write_atomically
from tfimg.matrix.resolve.request import make_version_matcher
from tfimg.matrix.sync.check import FactCheck, check_rows, find_missing_releases
from tfimg.matrix.sync.propose import propose_rows
from tfimg.matrix.sync.survey import IndexSurvey, OnProgress, survey_index
from tfimg.validation.inventory import compare as compare_image
from tfimg.validation.inventory import take_inventory

if TYPE_CHECKING:
    from tfimg.cli.commands.check import Check
    from tfimg.cli.commands.sync import Sync

Findings = Sequence[tuple[int, FactCheck]]


def check(command: Check, context: Context) -> int:
    """`tfimg check [RELEASE …]`, `tfimg check --built IMAGE`."""
    if command.built:
        return _check_image(command, context, command.built)
    if command.identifier:
        raise UsageError("--as says what an image claims to be.", next_step="Name the image with --built.")
    asked = _release_filter(command)
    rows = {number: versions for number, versions in _releases_by_row(context).items() if any(map(asked, versions))}
    whole = set().union(*rows.values())  # a row's releases share its facts: none can be compared alone
    found = _survey_index(context, whole.__contains__)
    missing = [version for version in find_missing_releases(context.project.matrix, found) if asked(version)]
    _require_known(command, {*missing, *_known_releases(context)})
    findings = [(number, finding) for number, finding in check_rows(context.project.matrix, found) if number in rows]
    _print_check(context, findings, found, missing)
    _raise_for_mismatch([finding for _, finding in findings if finding.verdict == "disagrees"], missing)
    return 0


def _release_filter(command: Check) -> Callable[[Version], bool]:
    """Whether a release is one of those that the arguments name; all are where they name none."""
    matchers = [make_version_matcher(text, option="RELEASE") for text in command.releases]
    return lambda version: not matchers or any(matches(str(version)) for matches in matchers)


def _require_known(command: Check, versions: Collection[Version]) -> None:
    for text in command.releases:
        matches = make_version_matcher(text, option="RELEASE")
        if not any(matches(str(version)) for version in versions):
            raise UnknownTensorFlow(
                f"Neither the matrix nor the package index has a TensorFlow release {text}.",
                next_step="`tfimg matrix` shows those of the matrix.",
            )


def _raise_for_mismatch(mismatches: Sequence[FactCheck], missing: Sequence[Version]) -> None:
    text, steps = "", []
    if mismatches:
        text += _describe_mismatch(mismatches, "the package index")
        steps.append("Correct matrix.yaml at each path.")
    if missing:
        releases = "".join(f"  rows: TensorFlow {version}\n" for version in missing)
        text += f"The matrix lacks what the package index has:\n{releases}"
        steps.append("`tfimg sync` adds releases.")
    if text:
        raise MatrixMismatch(text, next_step=" ".join(steps))


def sync(command: Sync, context: Context) -> int:
    """`tfimg sync [--check]`."""
    known = _known_releases(context)
    found = _survey_index(context, lambda version: version not in known and version > min(known))
    missing = find_missing_releases(context.project.matrix, found)
    path = context.project.workspace.matrix
    text = path.read_text(encoding="utf-8")
    proposed = propose_rows(text, found, missing, today=context.services.today) if missing else text
    names = [str(version) for version in missing]
    difference = "".join(
        difflib.unified_diff(text.splitlines(keepends=True), proposed.splitlines(keepends=True), path.name, path.name)
    )
    if context.command.json:
        context.emit({"missing": names, "difference": difference})
    else:
        print(difference or "The matrix has every release of the package index.", end="" if difference else "\n")
    if missing and command.check:
        raise StaleFiles(
            f"The matrix lacks {', '.join(names)}.",
            next_step="Run `tfimg sync`, and confirm what it marks.",
        )
    if missing:
        write_atomically(path, proposed)
        context.say(f"{path.name} has {', '.join(names)} now: confirm what is marked, then `tfimg lock`.")
        _ = replace(context.project).matrix  # read anew, so that what is still wrong with it is told now
    return 0


def _known_releases(context: Context) -> set[Version]:
    return set().union(*_releases_by_row(context).values())


def _releases_by_row(context: Context) -> dict[int, set[Version]]:
    rows = enumerate(context.project.matrix.rows)
    return {number: {Version(release.version) for release in row.tensorflow} for number, row in rows}


def _check_image(command: Check, context: Context, image: str) -> int:
    if command.releases:
        raise UsageError("An image is of one release, which it names itself.", next_step="Leave RELEASE out.")
    spec = context.project.spec_of_image(context.engine, image, command.identifier)
    script = (context.project.workspace.images / "inventory.py").read_bytes()
    inventory = take_inventory(image, script, engine=context.engine)
    findings = tuple(compare_image(spec, inventory))
    if context.command.json:
        context.emit({"image": image, "identifier": spec.identifier, "findings": [asdict(one) for one in findings]})
    else:
        _print_findings([(spec.row, finding) for finding in findings], {spec.row: spec.identifier})
    if mismatches := [finding for finding in findings if finding.verdict == "disagrees"]:
        raise MatrixMismatch(
            _describe_mismatch(mismatches, image), next_step=f"Build {spec.identifier} anew, or correct matrix.yaml."
        )
    return 0


def _describe_mismatch(mismatches: Sequence[FactCheck], other: str) -> str:
    text = "".join(f"  {finding.path}: {finding.message}\n" for finding in mismatches)
    count = f"{len(mismatches)} fact{'' if len(mismatches) == 1 else 's'}"
    return f"The matrix and {other} disagree on {count}:\n{text}"


def _survey_index(context: Context, wanted: Callable[[Version], bool]) -> IndexSurvey:
    index = context.services.index()
    with _show_progress(context) as tell:
        return survey_index(context.project.matrix, index, is_selected=wanted, on_progress=tell)


@contextmanager
def _show_progress(context: Context) -> Iterator[OnProgress]:
    """Progress while wheels are read: a bar on a terminal, a line for every tenth elsewhere."""
    console = make_console(stderr=True)
    if context.command.json or not console.is_terminal:
        yield lambda number, of: context.say(f"{number} of {of} wheels read") if _is_tenth(number, of) else None
        return
    with live(Progress(console=console, transient=True)) as progress:
        task = progress.add_task("wheels", total=None)
        yield lambda number, of: progress.update(task, completed=number, total=of)


def _is_tenth(number: int, of: int) -> bool:
    return number == of or number * 10 // of != (number - 1) * 10 // of


def _print_check(context: Context, findings: Findings, found: IndexSurvey, missing: Sequence[Version]) -> None:
    rows = {number: _describe_releases(context, number) for number, _ in findings}
    if context.command.json:
        context.emit(
            {
                "wheels": len(found.wheels),
                "missing": [str(version) for version in missing],
                "unconfirmed": _count_unconfirmed(context),
                "rows": [_row_document(number, name, findings) for number, name in rows.items()],
            }
        )
        return
    _print_findings(findings, rows)
    print(f"{len(found.wheels)} wheels read, {len(findings)} facts compared.")
    if count := _count_unconfirmed(context):
        print(
            f"{count} lines of {context.project.workspace.matrix.name} still say “confirm”: no wheel speaks of those."
        )


def _count_unconfirmed(context: Context) -> int:
    """Count the lines that `sync` marked and that are not confirmed yet."""
    lines = context.project.workspace.matrix.read_text(encoding="utf-8").splitlines()
    return sum("# confirm:" in line for line in lines)


def _describe_releases(context: Context, number: int) -> str:
    return ", ".join(release.version for release in context.project.matrix.rows[number].tensorflow)


def _row_document(number: int, name: str, findings: Findings) -> dict[str, Any]:
    own = [asdict(finding) for of, finding in findings if of == number]
    return {"row": number, "tensorflow": name.split(", "), "findings": own}


def _print_findings(findings: Findings, rows: dict[int, str]) -> None:
    """A line for each row, a column for each field: how many facts agree."""
    fields = list(dict.fromkeys(finding.field for _, finding in findings))
    table = plain_table("ROW", "IS", *(field.upper() for field in fields))
    for number, name in rows.items():
        own = [finding for of, finding in findings if of == number]
        table.add_row(f"rows[{number}]", name, *(_format_cell(own, field) for field in fields))
    print_table(table)
    for _, finding in findings:
        if finding.verdict == "not stated":
            print(f"{finding.path}: {finding.message}")


def _format_cell(findings: Sequence[FactCheck], field: str) -> str:
    verdicts = [finding.verdict for finding in findings if finding.field == field]
    mismatches, not_stated = verdicts.count("disagrees"), verdicts.count("not stated")
    if mismatches:
        return f"[red]{mismatches} of {len(verdicts)} wrong[/]"
    if not_stated:
        return f"[yellow]{not_stated} not stated[/]"
    return f"[green]{len(verdicts)} agree[/]" if verdicts else "-"

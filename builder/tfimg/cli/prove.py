"""`tfimg check` and `sync`: the matrix beside what wheels and images say."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

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

Findings = Sequence[tuple[int, FactCheck]]


def check(context: Context) -> int:
    """`tfimg check [RELEASE …]`, `tfimg check --built IMAGE`."""
    if context.arguments.built:
        return _check_image(context, context.arguments.built)
    if context.arguments.identifier:
        raise UsageError("--as says what an image claims to be.", next_step="Name the image with --built.")
    asked = _asked(context)
    rows = {number: versions for number, versions in _rows(context).items() if any(map(asked, versions))}
    whole = set().union(*rows.values())  # a row's releases share its facts: none can be compared alone
    found = _survey(context, whole.__contains__)
    missing = [version for version in find_missing_releases(context.project.matrix, found) if asked(version)]
    _require_known(context, {*missing, *_known(context)})
    findings = [(number, finding) for number, finding in check_rows(context.project.matrix, found) if number in rows]
    _tell(context, findings, found, missing)
    _demand_agreement([finding for _, finding in findings if finding.verdict == "disagrees"], missing)
    return 0


def _asked(context: Context) -> Callable[[Version], bool]:
    """Whether a release is one of those that the arguments name; all are where they name none."""
    matchers = [make_version_matcher(text, option="RELEASE") for text in context.arguments.releases]
    return lambda version: not matchers or any(matches(str(version)) for matches in matchers)


def _require_known(context: Context, versions: Collection[Version]) -> None:
    for text in context.arguments.releases:
        matches = make_version_matcher(text, option="RELEASE")
        if not any(matches(str(version)) for version in versions):
            raise UnknownTensorFlow(
                f"Neither the matrix nor the package index has a TensorFlow release {text}.",
                next_step="`tfimg matrix` shows those of the matrix.",
            )


def _demand_agreement(wrong: Sequence[FactCheck], missing: Sequence[Version]) -> None:
    told, steps = "", []
    if wrong:
        told += _sentence(wrong, "the package index")
        steps.append("Correct matrix.yaml at each path.")
    if missing:
        releases = "".join(f"  rows: TensorFlow {version}\n" for version in missing)
        told += f"The matrix lacks what the package index has:\n{releases}"
        steps.append("`tfimg sync` adds releases.")
    if told:
        raise MatrixMismatch(told, next_step=" ".join(steps))


def sync(context: Context) -> int:
    """`tfimg sync [--check]`."""
    known = _known(context)
    found = _survey(context, lambda version: version not in known and version > min(known))
    missing = find_missing_releases(context.project.matrix, found)
    path = context.project.workspace.matrix
    text = path.read_text(encoding="utf-8")
    proposed = propose_rows(text, found, missing, today=context.services.today) if missing else text
    names = [str(version) for version in missing]
    difference = "".join(
        difflib.unified_diff(text.splitlines(keepends=True), proposed.splitlines(keepends=True), path.name, path.name)
    )
    if context.arguments.json:
        context.emit({"missing": names, "difference": difference})
    else:
        print(difference or "The matrix has every release of the package index.", end="" if difference else "\n")
    if missing and context.arguments.check:
        raise StaleFiles(
            f"The matrix lacks {', '.join(names)}.",
            next_step="Run `tfimg sync`, and confirm what it marks.",
        )
    if missing:
        write_atomically(path, proposed)
        context.say(f"{path.name} has {', '.join(names)} now: confirm what is marked, then `tfimg lock`.")
        _ = replace(context.project).matrix  # read anew, so that what is still wrong with it is told now
    return 0


def _known(context: Context) -> set[Version]:
    return set().union(*_rows(context).values())


def _rows(context: Context) -> dict[int, set[Version]]:
    rows = enumerate(context.project.matrix.rows)
    return {number: {Version(release.version) for release in row.tensorflow} for number, row in rows}


def _check_image(context: Context, image: str) -> int:
    if context.arguments.releases:
        raise UsageError("An image is of one release, which it names itself.", next_step="Leave RELEASE out.")
    spec = context.project.spec_of_image(context.engine, image, context.arguments.identifier)
    script = (context.project.workspace.images / "inventory.py").read_bytes()
    inventory = take_inventory(image, script, engine=context.engine)
    findings = tuple(compare_image(spec, inventory))
    if context.arguments.json:
        context.emit({"image": image, "identifier": spec.identifier, "findings": [asdict(one) for one in findings]})
    else:
        _print_findings([(spec.row, finding) for finding in findings], {spec.row: spec.identifier})
    if wrong := [finding for finding in findings if finding.verdict == "disagrees"]:
        raise MatrixMismatch(
            _sentence(wrong, image), next_step=f"Build {spec.identifier} anew, or correct matrix.yaml."
        )
    return 0


def _sentence(wrong: Sequence[FactCheck], other: str) -> str:
    told = "".join(f"  {finding.path}: {finding.message}\n" for finding in wrong)
    count = f"{len(wrong)} fact{'' if len(wrong) == 1 else 's'}"
    return f"The matrix and {other} disagree on {count}:\n{told}"


def _survey(context: Context, wanted: Callable[[Version], bool]) -> IndexSurvey:
    index = context.services.index()
    with _reading(context) as tell:
        return survey_index(context.project.matrix, index, is_selected=wanted, on_progress=tell)


@contextmanager
def _reading(context: Context) -> Iterator[OnProgress]:
    """Progress while wheels are read: a bar on a terminal, a line for every tenth elsewhere."""
    console = make_console(stderr=True)
    if context.arguments.json or not console.is_terminal:
        yield lambda number, of: context.say(f"{number} of {of} wheels read") if _tenth(number, of) else None
        return
    with live(Progress(console=console, transient=True)) as progress:
        task = progress.add_task("wheels", total=None)
        yield lambda number, of: progress.update(task, completed=number, total=of)


def _tenth(number: int, of: int) -> bool:
    return number == of or number * 10 // of != (number - 1) * 10 // of


def _tell(context: Context, findings: Findings, found: IndexSurvey, missing: Sequence[Version]) -> None:
    rows = {number: _releases(context, number) for number, _ in findings}
    if context.arguments.json:
        context.emit(
            {
                "wheels": len(found.wheels),
                "missing": [str(version) for version in missing],
                "unconfirmed": _unconfirmed(context),
                "rows": [_row_document(number, name, findings) for number, name in rows.items()],
            }
        )
        return
    _print_findings(findings, rows)
    print(f"{len(found.wheels)} wheels read, {len(findings)} facts compared.")
    if count := _unconfirmed(context):
        print(
            f"{count} lines of {context.project.workspace.matrix.name} still say “confirm”: no wheel speaks of those."
        )


def _unconfirmed(context: Context) -> int:
    """Lines that `sync` marked and nobody has confirmed yet."""
    lines = context.project.workspace.matrix.read_text(encoding="utf-8").splitlines()
    return sum("# confirm:" in line for line in lines)


def _releases(context: Context, number: int) -> str:
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
        table.add_row(f"rows[{number}]", name, *(_cell(own, field) for field in fields))
    print_table(table)
    for _, finding in findings:
        if finding.verdict == "not stated":
            print(f"{finding.path}: {finding.message}")


def _cell(findings: Sequence[FactCheck], field: str) -> str:
    verdicts = [finding.verdict for finding in findings if finding.field == field]
    wrong, unsaid = verdicts.count("disagrees"), verdicts.count("not stated")
    if wrong:
        return f"[red]{wrong} of {len(verdicts)} wrong[/]"
    if unsaid:
        return f"[yellow]{unsaid} not stated[/]"
    return f"[green]{len(verdicts)} agree[/]" if verdicts else "-"

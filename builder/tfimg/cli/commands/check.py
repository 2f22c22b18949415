"""`tfimg check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument, identifier_option, option
from tfimg.cli.values import require_text
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from tfimg.matrix.sync.check import FactCheck


@dataclass(frozen=True)
class Check(Command):
    """Compare the matrix with what wheels say, on the package index or in an image.

    Examples:
      tfimg check 2.15 2.16
      tfimg check --built tfimg/tensorflow:2.15
    """

    releases: tuple[str, ...] = argument("2.15, 2.15.1 (default: all)", "RELEASE", default=())
    _: KW_ONLY
    built: str | None = option("compare with what an image in the engine holds", "IMAGE", check=require_text)
    identifier: str | None = identifier_option()

    def run(self, context: Context) -> int:
        """Print how many facts agree. Raises `MatrixMismatch` for those that do not."""
        if self.built is None:
            if self.identifier:
                raise UsageError("--as needs --built.", next_step="Name the image with --built IMAGE.")
            return self._check_index(context)
        if self.releases:
            raise UsageError(
                "RELEASE and --built cannot be combined: an image has one release.", next_step="Leave RELEASE out."
            )
        return self._check_image(context, self.built)

    def _check_index(self, context: Context) -> int:
        from tfimg.cli.output.transfers import render_count
        from tfimg.matrix.sync.releases import check_releases, count_unconfirmed

        project = context.project
        with render_count(context, "wheels read") as on_progress:
            found = check_releases(project.matrix, context.services.index(), self.releases, on_progress)
        unconfirmed = count_unconfirmed(project.workspace.matrix.read_text(encoding="utf-8"))
        names = {row: [release.version for release in project.matrix.rows[row].tensorflow] for row in found.facts}
        if self.json:
            rows = [
                {"row": row, "tensorflow": names[row], "findings": [asdict(fact) for fact in facts]}
                for row, facts in found.facts.items()
            ]
            missing = [str(version) for version in found.missing]
            wheels = len(found.survey.wheels)
            context.emit({"wheels": wheels, "missing": missing, "unconfirmed": unconfirmed, "rows": rows})
        else:
            _print_facts({(row, ", ".join(names[row])): facts for row, facts in found.facts.items()})
            compared = sum(map(len, found.facts.values()))
            print(f"{len(found.survey.wheels)} wheels read, {compared} facts compared.")
            if unconfirmed:
                print(
                    f"{unconfirmed} lines of {project.workspace.matrix.name} are still marked “confirm”: wheels do not "
                    "contain those."
                )
        found.raise_for_mismatch()
        return 0

    def _check_image(self, context: Context, image: str) -> int:
        from tfimg.matrix.sync.releases import raise_for_mismatch
        from tfimg.validation.inventory import compare, take_inventory

        project, engine = context.project, context.engine
        spec = project.spec_of_image(engine, image, self.identifier)
        script = (project.workspace.images / "inventory.py").read_bytes()
        facts = tuple(compare(spec, take_inventory(image, script, engine=engine)))
        if self.json:
            findings = [asdict(fact) for fact in facts]
            context.emit({"image": image, "identifier": spec.identifier, "findings": findings})
        else:
            _print_facts({(spec.row, spec.identifier): facts})
        next_step = f"Build {spec.identifier} again, or correct matrix.yaml."
        raise_for_mismatch(facts, other=image, next_step=next_step)
        return 0


def _print_facts(rows: Mapping[tuple[int, str], Sequence[FactCheck]]) -> None:
    """Print a line for each row of the matrix and what it is, and a column for each field: how many facts agree."""
    from tfimg.cli.show import print_rows

    facts = [fact for facts in rows.values() for fact in facts]
    fields = list(dict.fromkeys(fact.field for fact in facts))
    cells: list[tuple[str | Text, ...]] = [
        (f"rows[{number}]", name, *(_cell([fact.verdict for fact in facts if fact.field == field]) for field in fields))
        for (number, name), facts in rows.items()
    ]
    print_rows(("ROW", "IS", *map(str.upper, fields)), cells)
    for fact in facts:
        if fact.verdict == "not stated":
            print(f"{fact.path}: {fact.message}")


def _cell(verdicts: Sequence[str]) -> Text:
    from rich.text import Text

    if mismatches := verdicts.count("disagrees"):
        return Text(f"{mismatches} of {len(verdicts)} wrong", style="red")
    if not_stated := verdicts.count("not stated"):
        return Text(f"{not_stated} not stated", style="yellow")
    return Text(f"{len(verdicts)} agree", style="green") if verdicts else Text("-")

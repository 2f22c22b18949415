"""Commands that look at a machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from tfimg.cli.context import Context
from tfimg.cli.options import Command, IdentifierOptions, RepositoryOptions, argument, flag
from tfimg.cli.output.streams import fold, print_styled
from tfimg.cli.output.tables import print_rows
from tfimg.cli.values import complete_identifiers
from tfimg.core.errors import EngineUnavailable, UsageError
from tfimg.core.text import format_size
from tfimg.engine.interface import Engine
from tfimg.host.doctor import HostFinding
from tfimg.project import storage
from tfimg.project.diagnosis import diagnose_host


@dataclass(frozen=True)
class Doctor(Command, IdentifierOptions):
    """Say whether this machine can build and run images, and what to do if not.

    Examples:
      tfimg doctor 2.15.1-cuda12.2-py3.11
    """

    image: str | None = argument(
        "identifier, or name of an image in the engine (default: none; the newest GPU image measures a GPU)",
        "IMAGE",
        default=None,
        completer=complete_identifiers,
    )

    def run(self, context: Context) -> int:
        """Print what was found on the machine and in the engine. Raises `UnsuitableHost` for problems."""
        found = diagnose_host(context.project(), self.image, self.identifier)
        if not context.json:
            print_findings(found.findings)
        found.raise_for_problems()  # under --json, the error has the findings
        if context.json:
            context.emit(found.to_json())
        return 0


STATE_COLOURS = {"ok": "32", "warning": "33", "problem": "31", "absent": "2", "not checked": "2"}
"""State → SGR code."""


def print_findings(findings: Sequence[HostFinding]) -> None:
    """Print a line for each finding, and two more for those that something is to be done about."""
    margin = 13 + max(len(finding.name) for finding in findings) + 2
    for finding in findings:
        print_styled(f"{finding.state:11}", STATE_COLOURS[finding.state])
        print(f"  {finding.name:{margin - 13}}{_fold_text(finding.found, margin)}")
        if finding.next_step:
            print(f"{'':{margin}}why:  {_fold_text(finding.why, margin + 6)}")
            print(f"{'':{margin}}next: {_fold_text(finding.next_step, margin + 6)}")


def _fold_text(text: str, indent: int) -> str:
    return fold(text, indent=indent) if sys.stdout.isatty() else text


@dataclass(frozen=True)
class Clean(Command, RepositoryOptions):
    """Show and remove what tfimg keeps on this machine: parts of the state folder, images and build cache.

    Examples:
      tfimg clean --dry-run
      tfimg clean layers wheels --yes
    """

    parts: tuple[str, ...] = argument(
        "parts of the state folder, as --dry-run names them, or images (default: all)", "PART", default=()
    )
    dry_run: bool = flag("show it with sizes, and remove nothing")
    yes: bool = flag("remove it")

    alternatives: ClassVar[tuple[tuple[str, str], ...]] = (("--dry-run", "dry_run"), ("--yes", "yes"))
    needs_alternative: ClassVar[bool] = True

    def run(self, context: Context) -> int:
        """Print what is kept, or what was removed and what stayed. An engine that does not answer keeps its images."""
        state = context.services.state
        known = (*storage.PARTS, "engine", "images")
        if unknown := [part for part in self.parts if part not in known]:
            raise UsageError(f"tfimg keeps no part {unknown[0]!r}.", next_step=f"Name some of {', '.join(known)}.")
        kept: list[storage.Kept] = []
        engine: Engine | None = None
        if not self.parts or "images" in self.parts:
            try:
                engine = context.services.runner()
                repository = context.project(repository=self.repository).repository
                kept += storage.list_in_engine(engine, state, repository)
            except EngineUnavailable as error:
                context.note(f"Images of an engine are not listed: {error.what}")
        kept += [one for one in storage.list_parts(state) if not self.parts or one.name in self.parts]
        if self.yes:
            kept = list(storage.remove(kept, engine, state))
        context.print_result([asdict(one) for one in kept], lambda: print_kept(kept))
        return 0


def print_kept(kept: Sequence[storage.Kept]) -> None:
    """Print a table of what is kept, or after a removal of what was removed and what stayed."""
    if not kept:
        print("tfimg keeps nothing.")
        return
    rows = []
    for one in kept:
        what = f"removed: {one.content}" if one.removed else one.content
        rows.append((one.name, format_size(one.bytes), f"stays: {one.why}" if one.why else what, one.place))
    print_rows(("NAME", "SIZE", "WHAT", "PLACE"), rows, right=("SIZE",), folding=("WHAT",))

"""Commands that look at a machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from tfimg.cli.context import Context
from tfimg.cli.options import Command, IdentifierOptions, RepositoryOptions, VersionOptions, argument, flag, option
from tfimg.cli.output.fields import print_fields
from tfimg.cli.output.streams import fold, print_styled, read_text
from tfimg.cli.output.tables import print_rows
from tfimg.cli.values import complete_identifiers
from tfimg.core.errors import EngineUnavailable, NoAccelerator, UsageError
from tfimg.core.text import format_size, quote_argument
from tfimg.engine.interface import Engine
from tfimg.host.doctor import HostFinding
from tfimg.host.nvidia_smi import INPUT_HELP, NvidiaSmi, parse_nvidia_smi
from tfimg.host.which import format_gpus, recommend_image
from tfimg.matrix.support_ends import describe_ended
from tfimg.project import storage
from tfimg.project.diagnosis import diagnose_host
from tfimg.recipe.labels import describe_matrix_image

MAX_BYTES = 1 << 20
"""Bytes that are read of a file: a table of eight GPUs has 4,300, and /dev/zero has no end."""


@dataclass(frozen=True)
class Which(Command, VersionOptions, RepositoryOptions):
    """Say which image fits this machine's GPU and driver, and which do not.

    Examples:
      tfimg which --tf 2.15
      ssh NAME nvidia-smi | tfimg which --nvidia-smi -
    """

    nvidia_smi: str | None = option(
        "output of nvidia-smi on the machine in question: its table, -q, -L, XML or CSV; -: standard input", "FILE"
    )

    def run(self, context: Context) -> int:
        project, smi = context.project(repository=self.repository), self._find_gpus(context)
        found = recommend_image(project.matrix, project.specs, self.request(), smi)
        image = describe_matrix_image(found.spec, repository=project.repository, status=project.status(found.spec))
        run = f"tfimg run {image['tags'][0]}"
        found = replace(found, notes=(*found.notes, *describe_ended(found.spec.support_ends, context.services.today)))
        reasons = asdict(found)
        document = {
            "host": {"driver": found.driver, "cuda": smi.cuda, "gpus": reasons["kinds"]},
            **image,
            **{name: list(reasons[name]) for name in ("explanation", "notes", "minors")},
            "run": run,
        }
        fields = {
            "gpu": [format_gpus(kind) for kind in found.kinds],
            "driver": found.driver,
            "image": image["identifier"],
            "tags": image["tags"],
            "proven": " ".join(str(image[key]) for key in ("level", "date", "gpu", "driver") if image[key]),
            "why": list(found.explanation),
            "notes": list(found.notes) or None,
            "build": image["build"],
            "run": run,
        }
        context.print_result(document, fields)
        if not context.json:
            print()
            minors = {minor.minor: f"{minor.verdict:3}  {minor.why}" for minor in found.minors}
            print_fields({"TensorFlow": "fits this host?", **minors})
        return 0

    def _find_gpus(self, context: Context) -> NvidiaSmi:
        if self.nvidia_smi is not None:
            text = read_text(self.nvidia_smi, MAX_BYTES, next_step=INPUT_HELP)
            return parse_nvidia_smi(text, driver=self.driver, gpu=self.gpu)
        if self.driver and self.gpu:  # nothing is left to ask
            return NvidiaSmi(driver=self.driver, cuda=None, gpus=())
        smi = context.services.survey("").smi
        if isinstance(smi, NvidiaSmi):
            return smi
        if named := self.gpu or self.driver:  # one without the other
            given, other, noun = ("gpu", "driver", "driver") if self.gpu else ("driver", "gpu", "GPU")
            raise UsageError(
                f"--{given} needs --{other}: {smi.what}",
                next_step=f"For any {noun}: `tfimg resolve {quote_argument(f'--{given}')} {quote_argument(named)}`.",
            )
        raise NoAccelerator(
            f"Cannot read the GPUs of this machine: {smi.what}",
            next_step=f"{smi.next_step} For another machine, record `nvidia-smi` there and give it as --nvidia-smi "
            "FILE, or name its --driver and --gpu; for an image without a GPU, `tfimg resolve`.",
        )


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

"""`tfimg bare` and `tfimg record`: prove releases on a machine without an image, and record the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.show import size
from tfimg.core.errors import FileError, InsufficientEvidence, UnavailableDevice
from tfimg.core.files import write_atomically
from tfimg.core.text import to_plain_text
from tfimg.matrix.resolve.selection import select_specs
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.bare_evidence import (
    MAX_BYTES,
    BareFile,
    BareRecord,
    BareRun,
    ExpectedRelease,
    format_record,
    parse_evidence,
    verify_run,
)
from tfimg.validation.bare_folder import Program, Release, Wheel, write_folder
from tfimg.validation.run import suite_digest, suite_files

if TYPE_CHECKING:
    from tfimg.cli.commands.bare import Bare, RecordEvidence

MAX_LISTED = 5
"""How many reasons a refusal lists for each release."""


def bare(command: Bare, context: Context) -> int:
    """`tfimg bare FOLDER [PATTERN …]`: which releases, then suite, script and wheels."""
    releases = [
        Release(spec=spec, lock=context.project.workspace.read_lock(spec.identifier))
        for spec in _select_specs(command, context)
    ]
    folder = Path(command.folder)
    context.use_network()

    def report_wheel(number: int, count: int, wheel: Wheel, is_kept: bool) -> None:
        pieces = f", {len(wheel.pieces)} pieces" if wheel.pieces else ""
        done = "is there" if is_kept else "fetched"
        context.say(f"[{number}/{count}] {done}: {wheel.file} ({size(wheel.size)}{pieces})")

    wheels = write_folder(
        folder,
        releases,
        Program(
            suite=suite_files(context.project.workspace.validation),
            script=context.project.workspace.bare_script.read_bytes(),
            version=__version__,
        ),
        fetch=lambda package, into: context.services.fetch_wheel(package, into),
        piece_bytes=command.pieces << 20 if command.pieces else None,
        on_wheel=report_wheel,
    )
    count = sum(len(wheel.pieces) or 1 for wheel in wheels)
    document = {
        "folder": str(folder),
        "releases": [one.spec.identifier for one in releases],
        "wheels": len(wheels),
        "files": count,
        "bytes": sum(wheel.size for wheel in wheels),
    }
    if context.command.json:
        context.emit({"event": "bare", **document})
        return 0
    print_fields({**document, "bytes": size(sum(wheel.size for wheel in wheels))})
    context.say(f"On the machine with the GPU: python3 {folder}/run.py, then `tfimg record evidence.json` here.")
    return 0


def _select_specs(command: Bare, context: Context) -> Sequence[ImageSpec]:
    patterns = command.patterns
    specs = select_specs(context.project.specs, patterns) if patterns else [context.resolve(command).spec]
    if tpu := [spec.identifier for spec in specs if spec.device == "tpu"]:
        raise UnavailableDevice(
            f"{tpu[0]} is for TPUs, whose machines `tfimg bare` does not support.",
            next_step="Name CPU and GPU images; `tfimg validate` proves a TPU image on a TPU VM.",
        )
    return specs


def record(command: RecordEvidence, context: Context) -> int:
    """`tfimg record FILE`: judge each release of the file, and keep those that are proven."""
    name = command.file
    found = parse_evidence(_read_evidence(name), source=name)
    suite = context.project.workspace.validation
    digest = suite_digest(suite_files(suite))
    rejected: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for run in found.runs:
        checked = _check_run(context, run, found, digest) if run.identifier not in seen else ("it is there twice",)
        seen.add(run.identifier)
        if isinstance(checked, BareRecord):
            _write_record(context, checked)
        else:
            rejected[to_plain_text(run.identifier)] = checked
    if rejected:
        raise _refuse(name, rejected, of=len(found.runs))
    return 0


def _read_evidence(name: str) -> bytes:
    """Read a file up to one byte more than the limit."""
    if not Path(name).is_file():
        raise FileError(f"{name} is not a file.", next_step="Name the evidence.json that run.py has written.")
    with Path(name).open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _check_run(context: Context, run: BareRun, file: BareFile, digest: str) -> BareRecord | tuple[str, ...]:
    spec = next((spec for spec in context.project.specs if spec.identifier == run.identifier), None)
    if spec is None:
        return ("the matrix has no such image",)
    lock = context.project.workspace.read_lock(spec.identifier)
    expected = ExpectedRelease(spec=spec, lock=lock, suite=context.project.workspace.validation, suite_digest=digest)
    return verify_run(run, file, expected)


def _write_record(context: Context, record: BareRecord) -> None:
    file = context.project.workspace.bare_evidence(record.identifier) / record.file_name
    write_atomically(file, format_record(record))
    document = {
        "identifier": record.identifier,
        "machine": record.machine,
        "driver": record.driver,
        "checks": sum(result.outcome == "passed" for result in record.results),
        "file": str(file),
    }
    if context.command.json:
        context.emit({"event": "recorded", **document})
    else:
        where = f"{record.machine}{f', driver {record.driver}' if record.driver else ''}"
        print(f"{record.identifier}: {document['checks']} checks passed on {where}. Wrote {file}.")


def _refuse(name: str, rejected: dict[str, tuple[str, ...]], *, of: int) -> InsufficientEvidence:
    lines = []
    for identifier, reasons in rejected.items():
        more = f"; and {len(reasons) - MAX_LISTED} more" if len(reasons) > MAX_LISTED else ""
        lines.append(f"\n  {identifier}: {'; '.join(reasons[:MAX_LISTED])}{more}")
    return InsufficientEvidence(
        f"{name} does not prove {len(rejected)} of its {of} release{'' if of == 1 else 's'}:{''.join(lines)}\n",
        next_step="Run run.py again, in a folder that `tfimg bare` of this checkout has made, where every check can "
        "pass.",
    )

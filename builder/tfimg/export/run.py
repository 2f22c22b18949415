"""Run an export in a container, and keep the file only if its answers are those of the original."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tfimg.core import documents
from tfimg.core.errors import EngineError, FileError, UsageError, ValidationCrashed
from tfimg.core.files import hash_file, hash_files, write_atomically
from tfimg.core.process import CommandFailed, clean_up, last_line, run
from tfimg.core.text import make_html_environment
from tfimg.engine.interface import DeviceSupport
from tfimg.export.page import EXAMPLES, write_page
from tfimg.export.ways import ENDINGS, FOLDERS, ExportOptions
from tfimg.host.run import CONFINED, IMAGE_USER, choose_owner, client_command, missing_client

SECONDS = 3600.0  # of all steps together
MEMORY = "8g"  # of the container: an estimate
STAGING = ".tfimg-export-"
PROGRAM, MODEL, SAMPLES, WORK = "/opt/tfimg-export", "/model", "/samples.npz", "/export"
JAVASCRIPT = "/tfjs"


class Tensor(documents.Document):
    """An input or output: its shape (None for an unknown dimension; None for an unknown rank) and type."""

    shape: list[int | None] | None
    dtype: str


class Difference(documents.Document):
    """How far an output is from the original at most: absolute, and divided by the largest answer.

    `mean` is the root mean square, divided by the largest answer. `problem` says what is too far.
    """

    absolute: float
    relative: float
    mean: float | None = None
    problem: str | None = None


class ExportReport(documents.Document):
    """What an export came to; the JSON beside the model. `sha256` are of `hash_model`."""

    outcome: Literal["exported", "refused", "wrong", "failed"]
    target: str = ""
    quantize: str | None = None
    model: str = ""
    model_sha256: str = ""
    image: str = ""
    image_digest: str = ""
    file: str | None = None
    file_sha256: str | None = None
    file_bytes: int | None = None
    step: str | None = None
    reason: str | None = None
    next_step: str | None = None
    operations: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    log: list[str] = Field(default_factory=list)
    kind: str | None = None
    keras: str | None = None
    tensorflow: str | None = None
    converter: str | None = None
    runtime: str | None = None
    opset: int | None = None
    signature: str | None = None
    half_precision: bool | None = None
    batch_statistics: list[str] = Field(default_factory=list)
    cases: int | None = None
    calibration_samples: int | None = None
    inputs: dict[str, Tensor] = Field(default_factory=dict)
    outputs: dict[str, Tensor] = Field(default_factory=dict)
    bound: float | None = None
    differences: dict[str, Difference] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportRun:
    """An export: the model and samples of this machine, the image, and the folder that takes the file.

    `javascript` is the folder of `fetch_javascript`, for TensorFlow.js.
    """

    model: Path
    options: ExportOptions
    image: str
    digest: str
    output: Path
    samples: Path | None = None
    program: Path = field(default_factory=Path)
    javascript: Path | None = None

    @property
    def file(self) -> Path:
        """The final name of the file or folder."""
        model = self.model.absolute()  # the name of a link, and not that of its target
        name = model.name if model.is_dir() else model.stem
        return self.output / f"{name or 'model'}{ENDINGS[self.options.target]}"

    def check(self) -> None:
        """Raise `FileError` for a model or samples that are not there, `UsageError` if the final name is taken."""
        for option, path in (("The model", self.model), ("--samples", self.samples)):
            if path is not None and not path.exists():
                raise FileError(f"{option}: this machine has no {path}.", next_step="Correct the path.")
        if os.path.lexists(self.file):
            raise UsageError(
                f"{self.file} is there already, and is not replaced.",
                next_step="Remove it, or name another folder with --output.",
            )


def run_export(export: ExportRun, toolkit: DeviceSupport, *, env: Mapping[str, str], container: str) -> ExportReport:
    """Export a model, write the reports beside it, and return the report; the file is there only if it is proven.

    Raises as `ExportRun.check`, `EngineError` if no container starts, `ValidationCrashed` if it says nothing.
    """
    export.check()
    try:
        with open_staging(export.output) as staging:
            return _run_steps(export, staging, toolkit, env, container)
    except OSError as error:
        raise FileError(
            f"{error.filename or export.output} cannot be read or written: {error.strerror or error}.",
            next_step="Give the right to it, or make room, or name another folder with --output.",
        ) from None


@contextmanager
def open_staging(output: Path) -> Iterator[Path]:
    """Make a folder for the container; remove it at the end, and those of runs that were killed."""
    output.mkdir(parents=True, exist_ok=True)
    held = os.open(output, os.O_RDONLY)
    try:
        # Each run holds the folder with a shared lock, which the kernel releases when the run is killed.
        with suppress(OSError):  # another run holds it, or a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in output.glob(f"{STAGING}*"):
                shutil.rmtree(left, ignore_errors=True)
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_SH)
        staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=output))
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    finally:
        os.close(held)


def _run_steps(
    export: ExportRun, staging: Path, toolkit: DeviceSupport, env: Mapping[str, str], container: str
) -> ExportReport:
    request = {
        "model": f"{MODEL}/{export.model.name}" if export.model.is_file() else MODEL,
        "target": export.options.target,
        "quantize": export.options.quantize,
        "signature": export.options.signature,
        "opset": export.options.opset,
        "samples": SAMPLES if export.samples else None,
    }
    (staging / "request.json").write_text(json.dumps(request))
    if os.geteuid() == 0 and not toolkit.rootless:
        os.chown(staging, IMAGE_USER, IMAGE_USER)
    argv = plan_container(export, staging, toolkit, container)
    found = _read(_start(argv, env, container))
    report = _make_report(export, found, staging)
    write_export_reports(report, export.file)
    if report.outcome == "exported" and report.file:
        with tempfile.TemporaryDirectory(prefix=STAGING, dir=export.output) as private:
            copy_written(export, found, staging, Path(private, "model")).replace(export.file)
    return report


def plan_container(export: ExportRun, staging: Path, toolkit: DeviceSupport, container: str) -> Sequence[str]:
    """Return the command of a container that sees the model, and may write to the staging folder alone."""
    mounts = [
        (export.program, PROGRAM, True),
        (export.model, f"{MODEL}/{export.model.name}" if export.model.is_file() else MODEL, True),
        (staging, WORK, False),
        *([(export.samples, SAMPLES, True)] if export.samples else []),
        *([(export.javascript, JAVASCRIPT, True)] if export.javascript else []),
    ]
    volumes: list[str] = []
    for source, target, read_only in mounts:
        value = f'type=bind,"source={source.absolute()}",target={target}{",readonly" if read_only else ""}'
        volumes += ["--mount", value]
    return (
        *(*client_command(toolkit), "run", "--rm", "--interactive", "--name", container, "--network", "none"),
        *(*CONFINED, "--memory", MEMORY, "--env", "HOME=/tmp", "--env", "TMPDIR=/export"),
        *(choose_owner(staging.stat(), toolkit) or ()),
        *volumes,
        *(export.digest, "python", "-I", f"{PROGRAM}/export_model.py", f"{WORK}/request.json", WORK),
    )


def _start(argv: Sequence[str], env: Mapping[str, str], container: str) -> str:
    def remove() -> None:
        with suppress(CommandFailed, FileNotFoundError):
            run([*argv[: argv.index("run")], "rm", "--force", container], env=env)

    # The container ends when its standard input does: at the end of this process, also of one that was killed.
    read, write = os.pipe()
    try:
        return run(argv, env=env, timeout=SECONDS, stdin=read)
    except TimeoutError:
        clean_up(remove)
        raise ValidationCrashed(
            f"The export did not end within {SECONDS:.0f} s.", next_step="Export a smaller model, or its parts."
        ) from None
    except FileNotFoundError:
        raise missing_client(argv) from None
    except CommandFailed as failed:
        reason = last_line(failed.stderr) or f"status {failed.returncode}"
        raise EngineError(
            f"The container of the export did not run: {reason}.",
            next_step="See that the engine sees this machine's folders, and has memory for it; then run it again.",
        ) from None
    except KeyboardInterrupt:
        clean_up(remove)
        raise
    finally:
        os.close(read)
        os.close(write)


def _read(output: str) -> dict[str, Any]:
    try:
        return documents.parse_object(last_line(output).encode())
    except ValueError:
        raise ValidationCrashed(
            "The export in the container wrote no result.", next_step="Run it again; `tfimg validate` checks the image."
        ) from None


def find_written(found: Mapping[str, Any], staging: Path, *, is_folder: bool = False) -> Path:
    """Return the file that the container wrote, which may be of a hostile model, or the folder of plain files.

    Raises `ValidationCrashed` if it is another thing, or not in the folder itself: a link would give away a file of
    this machine.
    """
    name = str(found.get("file"))
    written = staging / name
    files = [written]
    if is_folder:
        files = list(written.iterdir()) if written.is_dir() and not written.is_symlink() else []
    if name != written.name or not files or any(file.is_symlink() or not file.is_file() for file in files):
        raise ValidationCrashed(
            "The export in the container wrote no plain file.", next_step="Look where the model comes from."
        )
    return written


def copy_written(export: ExportRun, found: Mapping[str, Any], staging: Path, to: Path) -> Path:
    """Copy what the container wrote, and write its page. Raises `ValidationCrashed` as `find_written`."""
    written = find_written(found, staging, is_folder=export.options.target in FOLDERS)
    if export.options.target not in FOLDERS:
        return shutil.copyfile(written, to)
    to.mkdir(mode=0o755)
    for file in written.iterdir():
        shutil.copyfile(file, to / file.name)
    if export.options.page and export.javascript:
        examples = find_written({"file": EXAMPLES}, staging)
        write_page(to, program=export.program, javascript=export.javascript, examples=examples)
    return to


def _make_report(export: ExportRun, found: Mapping[str, Any], staging: Path) -> ExportReport:
    facts = {name: value for name, value in found.items() if name not in ("file", "cases") or value is not None}
    facts.pop("file", None)
    if found.get("outcome") == "exported":
        written = find_written(found, staging, is_folder=export.options.target in FOLDERS)
        size = sum(file.stat().st_size for file in (written.iterdir() if written.is_dir() else [written]))
        facts |= {"file": export.file.name, "file_sha256": hash_model(written), "file_bytes": size}
    return documents.validate_model(
        ExportReport,
        {
            **facts,
            "target": export.options.target,
            "quantize": export.options.quantize,
            "model": export.model.name,
            "model_sha256": hash_model(export.model),
            "image": export.image,
            "image_digest": export.digest,
        },
    )


def hash_model(model: Path) -> str:
    """Return the SHA-256 of a file, or of all files of a folder with their paths, in hexadecimal."""
    if model.is_file():
        return hash_file(model)
    return hash_files({str(file.relative_to(model)): file for file in sorted(model.rglob("*")) if file.is_file()})


PAGE = """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ title }}</title>
<style>body{font:16px/1.5 system-ui;margin:2rem auto;max-width:60rem;padding:0 1rem}
table{border-collapse:collapse}
td,th{border-bottom:1px solid #ccc;padding:.3rem .8rem;text-align:left}</style>
<h1>{{ title }}</h1>
{% if report.reason %}<p>{{ report.reason }} {{ report.next_step or "" }}</p>{% endif %}
{% if report.differences %}
<table><tr><th>output</th><th>largest difference</th><th>of the largest answer</th><th>bound</th><th></th></tr>
{% for name, one in report.differences.items() %}
<tr><td>{{ name }}</td><td>{{ "%.3g" % one.absolute }}</td><td>{{ "%.3g" % one.relative }}</td>
<td>{{ report.bound }}</td><td>{{ one.problem or "within the bound" }}</td></tr>
{% endfor %}
</table>
{% endif %}
<table>
{% for name, value in facts.items() %}
<tr><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}
</table>
</html>
"""


def write_export_reports(
    report: ExportReport, file: Path, write: Callable[[Path, str], None] = write_atomically
) -> None:
    """Write the report as JSON and as a page beside the file."""
    document = report.model_dump()
    write(file.with_name(f"{file.name}.report.json"), json.dumps(document, indent=2) + "\n")
    shown = ("inputs", "outputs", "differences", "reason", "next_step", "outcome")
    facts = {name.replace("_", " "): value for name, value in document.items() if value and name not in shown}
    title = f"{report.model} to {report.target}: {report.outcome}"
    page = make_html_environment().from_string(PAGE).render(title=title, report=report, facts=facts)
    write(file.with_name(f"{file.name}.report.html"), page)

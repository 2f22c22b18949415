"""`tfimg doctor`, `tfimg run`."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from tfimg.cli.context import Context
from tfimg.cli.streams import print_styled
from tfimg.core.errors import EngineTooOld, EngineUnavailable, TfimgError, UnsuitableHost, UsageError
from tfimg.engine.connect import private_engine
from tfimg.engine.protocol import Engine
from tfimg.host.doctor import DoctorRequest, HostFinding, diagnose
from tfimg.host.run import RunOptions, RunPlan, plan_run
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.explain import find_cause

if TYPE_CHECKING:
    from tfimg.cli.commands.doctor import Doctor
    from tfimg.cli.commands.run import Run

DEFAULT_HOST = "unix:///var/run/docker.sock"

COLOURS = {"ok": "32", "warning": "33", "problem": "31", "absent": "2"}

T = TypeVar("T")


def doctor(command: Doctor, context: Context) -> int:
    """`tfimg doctor [IMAGE]`: look at the machine and the engine, say what was found."""
    runner = _value_or_error(lambda: context.services.runner())
    spec, present = _find_image(command, context, runner)
    case = _make_request(context, runner, spec, present=present)
    findings = diagnose(case)
    problems = [finding.name for finding in findings if finding.state == "problem"]
    if not context.command.json:
        print_findings(findings)
    elif not problems:
        context.emit(_make_document(spec, findings))
    if problems:
        raise _unsuitable(spec, findings, problems)
    return 0


def _find_image(command: Doctor, context: Context, runner: Engine | TfimgError) -> tuple[ImageSpec | None, bool]:
    """Return the image of the command line, and whether the engine has it."""
    image, claimed = command.image, command.identifier
    is_identifier = any(spec.identifier == image for spec in context.project.specs)
    if claimed is not None and (image is None or is_identifier):
        instead = f"{image} is an identifier" if image else "no image is named"
        raise UsageError(
            f"--as {claimed} says what an image in the engine is, and {instead}.",
            next_step="Write `tfimg doctor IDENTIFIER`, or `tfimg doctor IMAGE --as IDENTIFIER`.",
        )
    if image is None:
        return None, False
    if is_identifier:
        return context.project.spec(image), False
    if isinstance(runner, TfimgError):  # what the image is cannot be seen: the engine is the first thing to mend
        return (context.project.spec(claimed) if claimed else None), False
    if runner.find_labels(image) is None:
        raise UsageError(
            f"{image} is neither an identifier of the matrix nor an image in the engine.",
            next_step="`tfimg list` shows all identifiers.",
        )
    return context.project.spec_of_image(runner, image, claimed), True


def _make_request(
    context: Context, runner: Engine | TfimgError, spec: ImageSpec | None, *, present: bool
) -> DoctorRequest:
    toolkit = runner if isinstance(runner, TfimgError) else runner.get_device_support()
    asked = context.services.environ.get("DOCKER_HOST") or DEFAULT_HOST
    host = asked if isinstance(toolkit, TfimgError) else toolkit.host
    return DoctorRequest(
        matrix=context.project.matrix,
        specs=tuple(context.project.specs),
        spec=spec,
        present=present,
        private=host == private_engine(context.services.state).host,
        host=context.services.survey(host),
        toolkit=toolkit,
        builder=_value_or_error(lambda: context.engine.get_capabilities()),
        network=context.services.network,
        remedy=lambda message: (
            known.remedy if (known := find_cause(message, suite=context.project.workspace.validation)) else None
        ),
    )


def _value_or_error(ask: Callable[[], T]) -> T | TfimgError:
    try:
        return ask()
    except (EngineUnavailable, EngineTooOld) as error:
        return error


def print_findings(findings: Sequence[HostFinding]) -> None:
    """Print a line for each finding, and two more for those that something is to be done about."""
    margin = 9 + max(len(finding.name) for finding in findings) + 2
    for finding in findings:
        print_styled(f"{finding.state:7}", COLOURS[finding.state])
        print(f"  {finding.name:{margin - 9}}{_wrap(finding.found, margin)}")
        if finding.next_step:
            print(f"{'':{margin}}why:  {_wrap(finding.why, margin + 6)}")
            print(f"{'':{margin}}next: {_wrap(finding.next_step, margin + 6)}")


def _wrap(text: str, margin: int) -> str:
    """Wrap a text that begins at a column to the terminal; a narrow terminal gets one line."""
    if not sys.stdout.isatty():
        return text
    room = shutil.get_terminal_size().columns - margin
    if room < 30:  # the terminal breaks long lines better than this would
        return text
    return f"\n{'':{margin}}".join(textwrap.wrap(text, room, break_on_hyphens=False))


def _make_document(spec: ImageSpec | None, findings: Sequence[HostFinding]) -> dict[str, object]:
    return {"image": spec.identifier if spec else None, "findings": [asdict(one) for one in findings]}


def _unsuitable(spec: ImageSpec | None, findings: Sequence[HostFinding], problems: Sequence[str]) -> UnsuitableHost:
    what = f"run {spec.identifier}" if spec else "build and run images"
    error = UnsuitableHost(
        f"This machine cannot {what} yet; in the way: {', '.join(problems)}.",
        next_step="Each finding has its next step; begin with the first.",
    )
    error.details = _make_document(spec, findings)
    return error


PASSED_ON = ("volume", "publish", "env", "user", "workdir", "name")
"""Options that `docker run` gets as they are, as often as they are given."""


def run(command: Run, context: Context) -> int:
    """`tfimg run IMAGE`: what is it, what does it need, is that here, then docker."""
    engine = context.services.runner()
    image = command.image
    spec = context.project.spec_of_image(engine, image, command.identifier)
    at = context.project.target_host(engine)
    planned = plan_run(image, spec, _run_options(command), at)
    if command.dry_run:
        return _print_plan(context, spec, planned)
    for note in planned.notes:
        context.say(f"Note: {note}")
    if planned.missing:
        raise planned.missing[0]
    # A context would win over DOCKER_HOST.
    environ = {name: value for name, value in context.services.environ.items() if name != "DOCKER_CONTEXT"}
    return _start_container(context, planned.argv, {**environ, "DOCKER_HOST": at.toolkit.host})


def _start_container(context: Context, argv: Sequence[str], environ: dict[str, str]) -> int:
    try:
        return context.services.hand_over(argv, environ)
    except FileNotFoundError:
        raise EngineUnavailable(
            "The engine answers, and the `docker` command that would use it is not installed.",
            next_step="Install your distribution's docker-cli or docker.io package.",
        ) from None


def _run_options(command: Run) -> RunOptions:
    options = [word for name in PASSED_ON for value in getattr(command, name) for word in (f"--{name}", value)]
    return RunOptions(
        gpus=command.gpus,
        no_gpu=command.no_gpu,
        shm_size=command.shm_size,
        options=tuple(options),
        interactive=sys.stdin is not None and not sys.stdin.closed,
        terminal=_is_terminal(),
        program=command.program,
    )


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def _print_plan(context: Context, spec: ImageSpec, planned: RunPlan) -> int:
    lacks = [str(lack) for lack in planned.missing]
    if context.command.json:
        context.emit(
            {
                "argv": list(planned.argv),
                "image": spec.identifier,
                "device": planned.device,
                "notes": list(planned.notes),
                "missing": lacks,
            }
        )
        return 0
    print(shlex.join(planned.argv))
    for sentence in (*(f"Note: {note}" for note in planned.notes), *(f"Missing: {lack}" for lack in lacks)):
        context.say(sentence)
    return 0

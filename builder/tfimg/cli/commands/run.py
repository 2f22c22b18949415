"""Commands that run an image or check a machine."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from cyclopts import Parameter

from tfimg.cli.app import locate_page
from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    IdentifierOptions,
    LocalImage,
    ValidationOptions,
    argument,
    flag,
    option,
    report_option,
    values,
)
from tfimg.cli.values import complete_identifiers, positive_number
from tfimg.core.errors import UnknownFailure, UsageError

if TYPE_CHECKING:
    from tfimg.validation.report import Explanation, Report

PASSED_ON = ("volume", "publish", "env", "user", "workdir", "name")
"""Fields that become options of `docker run` of the same name."""


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """The accelerators of a container."""

    gpus: str | None = option("all (default of a GPU image), numbers: 0,1, or MIG devices: 0:0", "WHICH")
    no_gpu: bool = flag("run a GPU image on the processor")
    shm_size: str | None = option("shared memory (default: 1g for GPUs, 16g for TPUs)", "SIZE")

    alternatives: ClassVar[tuple[tuple[str, str], ...]] = (("--gpus", "gpus"), ("--no-gpu", "no_gpu"))


@dataclass(frozen=True, kw_only=True)
class ContainerOptions(GpuOptions, IdentifierOptions):
    """Options of a container in the foreground."""

    volume: tuple[str, ...] = values(
        "show a folder of the machine in the container", "HOST:PATH[:ro]", name=("--volume", "-v")
    )
    publish: tuple[str, ...] = values("publish a port of the container", "PORT:PORT", name=("--publish", "-p"))
    env: tuple[str, ...] = values("set a variable", "NAME[=VALUE]", name=("--env", "-e"))
    user: str | None = option(
        "run as another user (default: the image's, who is not root)", "UID[:GID]", name=("--user", "-u")
    )
    workdir: str | None = option("start in another folder", "PATH", name=("--workdir", "-w"))
    name: str | None = option("name the container", "NAME")
    dry_run: bool = flag("print the docker or podman command and what is missing; start nothing")

    def start(self, context: Context, image: str, program: Sequence[str]) -> int:
        """Find out what an image is, what it needs and whether that is here; become `docker run` or `podman run`."""
        from tfimg.host.run import RunOptions, missing_client, plan_run

        engine = context.services.runner()
        spec = context.project.spec_of_image(engine, image, self.identifier)
        host = context.project.target_host(engine)
        options = RunOptions(
            gpus=self.gpus,
            no_gpu=self.no_gpu,
            shm_size=self.shm_size,
            options=tuple(self._list_passed_on()),
            interactive=sys.stdin is not None and not sys.stdin.closed,
            terminal=all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)),
            program=tuple(program),
        )
        planned = plan_run(image, spec, options, host)
        if self.dry_run:
            facts = {"argv": planned.argv, "image": spec.identifier, "device": planned.device, "notes": planned.notes}
            missing = [str(lack) for lack in planned.missing]
            context.print_result({**facts, "missing": missing}, shlex.join(planned.argv))
        for note in planned.notes:
            context.say(f"Note: {note}")
        if self.dry_run:
            for lack in missing:
                context.say(f"Missing: {lack}")
            return 0
        if planned.missing:
            raise planned.missing[0]
        try:
            return context.services.hand_over(planned.argv, docker_environ(context, host.toolkit.host))
        except FileNotFoundError:
            raise missing_client(planned.argv) from None

    def _list_passed_on(self) -> Iterator[str]:
        for name in PASSED_ON:
            given: str | tuple[str, ...] | None = getattr(self, name)
            for value in (given,) if isinstance(given, str) else given or ():
                yield from (f"--{name}", value)


@dataclass(frozen=True, kw_only=True)
class Run(Command, LocalImage, ContainerOptions):
    """Start a container with the flags that the image's device needs.

    Examples:
      tfimg run tfimg/tensorflow:2.15 -v $PWD:/work -w /work -- python train.py
    """

    program: tuple[str, ...] = field(default=(), metadata={"parameter": Parameter(parse=False)})

    def run(self, context: Context) -> int:
        return self.start(context, self.image, self.program)


def docker_environ(context: Context, host: str) -> dict[str, str]:
    """Return the environment of a `docker` command for an engine. A context would win over DOCKER_HOST."""
    environ = {name: value for name, value in context.services.environ.items() if name != "DOCKER_CONTEXT"}
    return {**environ, "DOCKER_HOST": host}


@dataclass(frozen=True)
class Shell(Command, ContainerOptions):
    """Start bash in an image, with the flags that its device needs.

    Examples:
      tfimg shell
      tfimg shell tfimg/tensorflow:2.15 -v $PWD:/work -w /work
    """

    image: str | None = argument("an image in the engine (default: its newest of variant dev)", "IMAGE", default=None)
    _: KW_ONLY

    def run(self, context: Context) -> int:
        from tfimg.host.jupyter import find_newest

        image = self.image or find_newest(context.services.runner().list_images(), ("dev",))
        return self.start(context, image, ("bash",))


@dataclass(frozen=True)
class Jupyter(Command, GpuOptions, IdentifierOptions):
    """Start JupyterLab of an image on a port of this machine's loopback, and stop it with Ctrl-C.

    Examples:
      tfimg jupyter -v $PWD --open
      tfimg jupyter tfimg/tensorflow:2.15-jupyter
    """

    image: str | None = argument(
        "an image in the engine (default: its newest of variant jupyter or dev)", "IMAGE", default=None
    )
    _: KW_ONLY
    volume: str | None = option("folder of the machine for notebooks and data", "DIR", name=("--volume", "-v"))
    port: int | None = option(
        "port on 127.0.0.1 (default: a free one)", "PORT", parse=partial(positive_number, limit=65535)
    )
    open: bool = flag("open the address in a browser")

    def run(self, context: Context) -> int:
        from tfimg.host.jupyter import (
            NOTEBOOKS,
            Notebook,
            choose_port,
            find_newest,
            plan_notebook,
            require_notebooks,
            serve,
        )
        from tfimg.host.run import RunOptions

        engine = context.services.runner()
        image = self.image or find_newest(engine.list_images(), NOTEBOOKS)
        spec = context.project.spec_of_image(engine, image, self.identifier)
        require_notebooks(image, spec)
        host = context.project.target_host(engine)
        notebook = Notebook(
            image=image,
            container=f"tfimg-jupyter-{secrets.token_hex(4)}",
            port=choose_port(self.port),
            token=secrets.token_hex(24),
            folder=Path(self.volume).absolute() if self.volume else None,
        )
        options = RunOptions(gpus=self.gpus, no_gpu=self.no_gpu, shm_size=self.shm_size)
        planned = plan_notebook(notebook, spec, options, host)
        for note in planned.notes:
            context.say(f"Note: {note}")
        if planned.missing:
            raise planned.missing[0]
        is_ready = False

        def announce() -> None:
            nonlocal is_ready
            is_ready = True
            facts = {"image": image, "container": notebook.container, "port": notebook.port, "token": notebook.token}
            context.print_result({"url": notebook.url, **facts}, notebook.url)
            context.say("Ctrl-C stops it and removes the container, with all files that are not in a folder of -v.")
            if self.open and not context.services.open_browser(notebook.url):
                context.say("No browser was found: open the address in one.")

        environ = docker_environ(context, host.toolkit.host)
        context.say(f"Starting JupyterLab of {image}")
        try:
            serve(notebook, planned.argv, environ, on_ready=announce, clock=time.monotonic)
        except KeyboardInterrupt:
            if not is_ready:
                raise
            context.say("Stopped; the container is removed.")
        return 0


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
        from tfimg.cli.output.fields import print_findings
        from tfimg.project.diagnosis import diagnose_host

        found = diagnose_host(context.project, self.image, self.identifier)
        if not self.json:
            print_findings(found.findings)
        found.raise_for_problems()  # under --json, the error has the findings
        if self.json:
            context.emit(found.to_json())
        return 0


@dataclass(frozen=True, kw_only=True)
class Validate(Command, LocalImage, IdentifierOptions, ValidationOptions):
    """Run the suite in an image that is in the engine.

    Examples:
      tfimg validate tfimg/tensorflow:2.15 --as 2.15.1-cpu-py3.11
    """

    profile: Literal["smoke", "standard", "full"] = option(
        "how much of the suite to run (default: standard)", default="standard"
    )
    only: tuple[str, ...] = values("run these checks alone: 'gpu.*'", "PATTERN")
    skip: tuple[str, ...] = values("leave these checks out: 'gpu.*'", "PATTERN")

    def run(self, context: Context) -> int:
        from tfimg.cli.values import check_report_files, write_reports
        from tfimg.project.project import write_record
        from tfimg.project.validator import Validator
        from tfimg.validation.report import level_words
        from tfimg.validation.run import CheckSelection, raise_for_verdict

        check_report_files(self.report)
        checks = CheckSelection(profile=self.profile, only=self.only, skip=self.skip)
        validator = Validator(
            project=context.project, engine=context.services.runner(), level=self.required_level(), checks=checks
        )
        with context.render_events() as on_event:
            report = validator.validate_image(self.image, self.identifier, needs_lock=self.record, on_event=on_event)
        write_reports(self.report, report)
        if self.record:
            # What the image says of its recipe is no proof: nothing was built here.
            write_record(context.project.workspace, report, content=None, recipe=None)
        if self.json:
            context.emit({"event": "report", **report.to_json()})
        raise_for_verdict(report, subject=f"{self.image} was validated", consequence="Its tags are as they were.")
        if not self.json:
            passed = sum(result.outcome == "passed" for result in report.results)
            print(f"{self.image}: {passed} check{'' if passed == 1 else 's'} passed, level {level_words(report)}")
        return 0


MAX_BYTES = 8 << 20
"""Bytes that are read of a log. Longer ones repeat themselves; this much takes two seconds."""


@dataclass(frozen=True)
class Explain(Command):
    """Explain the failures in a log or a report, and write a report in another form.

    Examples:
      tfimg explain build.log
      docker logs NAME 2>&1 | tfimg explain
      tfimg explain report.json --report report.html --report junit.xml
    """

    file: str = argument(
        "log, report as JSON, or record in images/records; -: standard input (default)", "FILE", default="-"
    )
    _: KW_ONLY
    report: tuple[str, ...] = report_option()

    def run(self, context: Context) -> int:
        """Show a report: a success, whatever its verdict says; or the known failures in a log.

        Raises `UnknownFailure` if a log has none.
        """
        from tfimg.cli.output.streams import read_text
        from tfimg.cli.values import check_report_files
        from tfimg.validation.record import find_report

        check_report_files(self.report)
        if self.file == "-" and sys.stdin and sys.stdin.isatty():
            step = "Name a file, or pipe a log in: `docker logs NAME 2>&1 | tfimg explain`."
            raise UsageError("No log is given: standard input is a terminal.", next_step=step)
        step = "Give the end of the log, where the failure is: `tail -c 4M FILE | tfimg explain`."
        text = read_text(self.file, MAX_BYTES, next_step=step)
        if report := find_report(text, source=self.file):
            self._show_report(context, report)
        elif self.report:
            step = "Name the JSON that `tfimg build` or `tfimg validate` wrote with --report."
            raise UsageError(f"{self.file} is a log, and --report writes reports.", next_step=step)
        else:
            _explain_log(context, text)
        return 0

    def _show_report(self, context: Context, report: Report) -> None:
        from tfimg.cli.output.tables import print_report
        from tfimg.cli.values import write_reports

        write_reports(self.report, report)
        if self.json:
            context.emit(report.to_json())
        else:
            print_report(report)
            known = {one.issue: one for result in report.unsuccessful for one in result.explained}
            for one in known.values():
                print()
                _print_explanation(one)
        for name in self.report:
            context.say(f"wrote {name}")


def _explain_log(context: Context, text: str) -> None:
    from tfimg.validation.run import HARMLESS, explain

    found = explain(text, suite=context.project.workspace.validation)
    if context.command.json:
        context.emit({"explanations": [{**asdict(one), "more": link_to(one.issue)} for one in found]})
    else:
        for number, one in enumerate(found):
            print("\n" if number else "", end="")
            _print_explanation(one)
    if not text.strip():
        step = "Errors go to standard error: put 2>&1 before the pipe."
        raise UnknownFailure("The log is empty.", next_step=step)
    if all(one.fault == HARMLESS for one in found):
        raise UnknownFailure(
            "No known failure matches this log" + (", only harmless messages." if found else "."),
            next_step="Give the complete log, from the program's start to its end. Otherwise `tfimg validate "
            "IMAGE` looks for the fault in the image, and `tfimg doctor` on this machine.",
        )


def _print_explanation(known: Explanation) -> None:
    from tfimg.cli.output.fields import print_fields
    from tfimg.validation.run import FAULT_NAMES

    fields = {"found": known.issue, "fault": FAULT_NAMES[known.fault], "cause": known.cause, "proof": known.proof}
    print_fields({**fields, "fix": known.fix, "more": link_to(known.issue)})


def link_to(issue: str) -> str:
    """Return where the documentation describes a known issue."""
    return locate_page("how-to/troubleshoot", issue)

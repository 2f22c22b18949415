"""A build and a validation while they run: what is reported, in how few words, and how it looks on a terminal."""

import json
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from typing import get_args

import pytest
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from support.reports import CONTROLS, ENDS, RED, result
from tfimg.build.results import ImageRequeued, ImageResult, ImagesQueued, ImageStarted
from tfimg.cli.commands.validate import result_table
from tfimg.cli.context import Context
from tfimg.cli.output.console import live
from tfimg.cli.output.display import Display, ended_row
from tfimg.cli.output.progress import Activity, render_events
from tfimg.cli.output.tables import Table
from tfimg.core.errors import BuildError
from tfimg.core.events import (
    ChecksPlanned,
    CheckStarted,
    Event,
    ImageEvent,
    InfoEvent,
    LogEvent,
    ProgressEvent,
    StepEvent,
    StepState,
)
from tfimg.core.levels import Level
from tfimg.core.text import format_duration
from tfimg.engine.buildx import is_housekeeping, short_step
from tfimg.project.services import Services
from tfimg.validation.report import CheckResult

DEFINITION = "[internal] load build definition from Dockerfile"
METADATA = "[internal] load metadata for docker.io/library/python:3.11"
PULL = "[base 1/1] FROM docker.io/library/python:3.11-slim-bookworm@sha256:0123"
INSTALL = (
    "[tensorflow 1/1] RUN --mount=type=bind,from=installer,source=/installer,target=/installer     "
    "--mount=type=bind,source=build,target=/build     sh /build/install /lock.txt"
)
COPY = "[image 1/3] COPY --link --from=tensorflow /opt/tensorflow /opt/tensorflow"
FAILING = "[packages 1/1] RUN sh /build/install /lock.txt"
SETTINGS = "[image 3/3] WORKDIR /home/tensorflow"

SHORT = {
    DEFINITION: "load build definition from Dockerfile",
    METADATA: "load metadata",
    "[internal] load .dockerignore": "load .dockerignore",
    "[internal] load build context": "load build context",
    PULL: "base: pull",
    "[environment 1/1] RUN python3 -m venv --without-pip --system-site-packages /opt/tensorflow": "environment",
    INSTALL: "tensorflow",
    COPY: "tensorflow: copy into the image",
    "[image 2/3] COPY --link --from=packages /opt/tensorflow /opt/tensorflow": "packages: copy into the image",
    "[image 2/3] COPY motd /etc/motd": "image: copy",
    SETTINGS: "image: settings",
    "[stage-0 1/1] ADD base.tar /": "stage-0: unpack",
    "exporting to image": "exporting to image",
    "reading the image back": "reading the image back",
    "": "",
}


def test_a_step_is_reported_in_a_few_words() -> None:
    assert {step: short_step(step) for step in SHORT} == SHORT


DULL = [(DEFINITION, "done", 0.004), (PULL, "cached", 0.0), (PULL, "done", 0.01), (SETTINGS, "done", 0.05)]
DULL += [(SETTINGS, "cached", 0.0)]
REPORTED = [
    (DEFINITION, "done", 0.1),
    (DEFINITION, "failed", 0.004),
    (METADATA, "done", 1.3),
    (METADATA, "failed", None),
]
REPORTED += [(PULL, "done", 12.5), (INSTALL, "done", 0.05), (INSTALL, "cached", 0.0), (INSTALL, "failed", 0.05)]
REPORTED += [(COPY, "cached", 0.0), ("exporting to image", "done", 0.05)]


def test_only_housekeeping_that_took_no_time_is_is_housekeeping() -> None:
    found = [
        (step, state, seconds)
        for step, state, seconds in (*DULL, *REPORTED)
        if is_housekeeping(
            StepEvent(step=step, state=state, seconds=seconds, error="no" if state == "failed" else None)
        )
    ]
    assert found == DULL


def rendered_text(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def terminal(width: int, *, colours: bool = False) -> Console:
    system = "standard" if colours else None
    return Console(file=StringIO(), width=width, force_terminal=colours, color_system=system)


def red_result(check: str) -> CheckResult:
    return next(result for result in RED.results if result.check == check)


@pytest.mark.parametrize("state", [state for state in get_args(StepState) if state != "started"])
def test_the_state_of_a_step_is_shown_whole_on_a_terminal_and_elsewhere(
    state: StepState, capsys: pytest.CaptureFixture[str]
) -> None:
    event = StepEvent(step="layer cudnn", state=state, seconds=0.0)
    assert not is_housekeeping(event)
    with render_events(Context(Services()), verbose=True) as on_event:
        on_event(event)
    console = terminal(80)
    console.print(ended_row(event.state, event.seconds, Text(event.step)))
    for text in (capsys.readouterr().err, rendered_text(console)):
        assert state in text.split()
        assert "layer cudnn" in text


@pytest.mark.parametrize("verbose", [False, True])
def test_a_log_has_a_line_for_each_part_and_group_or_for_each_step_and_check(
    verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with render_events(Context(Services()), verbose=verbose) as on_event:
        on_event(StepEvent(step="[selftest 2/3] COPY a b", state="done", seconds=1.0))
        on_event(StepEvent(step="[selftest 2/3] COPY a b", state="failed", seconds=1.0))
        on_event(ChecksPlanned(checks=("a.b", "input.x", "a.c", "training.cnn", "a.d")))
        on_event(result("a.b", seconds=0.25))
        on_event(result("a.c", seconds=2.0))
        on_event(result("input.x", seconds=3.0))
        on_event(result("late.x", seconds=3.0))
        on_event(replace(red_result("training.cnn"), reason="no"))
    found = [" ".join(line.split()[3:]) for line in capsys.readouterr().err.splitlines()]
    failed = ["failed selftest: copy"]
    if verbose:
        each = ["passed a.b", "passed a.c", "passed input.x", "passed late.x", "timed-out training.cnn no"]
        assert found == ["done selftest: copy", *failed, *each]
    else:  # `a` has a check that has not ended
        assert found == [
            *failed,
            "passed input: 1 passed",
            "passed late.x",
            "timed-out training.cnn no",
            "timed-out training: 1 timed-out",
        ]


CONTEXT = "[context system] load from client"
OUTPUT = [f"line {number}" for number in range(20)]
BUILD = [
    InfoEvent(text="Base: B, because A is not available", cause="no such host"),
    StepEvent(step="[internal] load build context", state="done", seconds=0.2),
    StepEvent(step=CONTEXT, state="done", seconds=0.2),
    StepEvent(step=INSTALL, state="done", seconds=3.0),
    StepEvent(step=COPY, state="done", seconds=1.0),
    StepEvent(step=INSTALL, state="done", seconds=3.0),
    StepEvent(step=INSTALL, state="cached", seconds=0.0),
    StepEvent(step=CONTEXT, state="done", seconds=6.0),
    StepEvent(step="exporting to image", state="done", seconds=1.0),
    StepEvent(step="[system 1/1] RUN sh", state="interrupted", seconds=9.0),
    *(LogEvent(step=FAILING, line=line) for line in OUTPUT[:-1]),
    LogEvent(step=INSTALL, line="of another step"),
    StepEvent(step=FAILING, state="failed", seconds=1.0, error="exit code: 1"),
    LogEvent(step=FAILING, line=OUTPUT[-1]),
]
"""A build as BuildKit reports it, whose last step fails."""


def test_a_log_has_what_failed_whole_and_of_the_rest_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    with render_events(Context(Services())) as on_event:
        for event in BUILD:
            on_event(event)
    assert capsys.readouterr().err.splitlines() == [
        "Base: B, because A is not available",
        "build     3.0 s  done       tensorflow",
        f"build     6.0 s  done       {CONTEXT}",
        *(f"build  | {line}" for line in OUTPUT[:-1]),
        "build     1.0 s  failed     packages",
        f"build  | {OUTPUT[-1]}",
    ]


def test_a_verbose_log_has_every_step_and_cause(capsys: pytest.CaptureFixture[str]) -> None:
    with render_events(Context(Services()), verbose=True) as on_event:
        for event in BUILD:
            on_event(event)
    lines = capsys.readouterr().err.splitlines()
    steps = [event for event in BUILD if isinstance(event, StepEvent)]
    assert (lines[0], len(lines)) == ("Base: B, because A is not available: no such host", 1 + len(steps) + len(OUTPUT))


def test_a_terminal_keeps_what_a_log_has(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    for event in BUILD:
        screen.show(event)
    assert capsys.readouterr().err == "Base: B, because A is not available\n"
    rows = ["done 3.0 s tensorflow", f"done 6.0 s {CONTEXT}", *OUTPUT[:-1], "failed 1.0 s packages", OUTPUT[-1]]
    assert [" ".join(row.split()) for row in screen.kept] == rows


def read_screen(text: str) -> list[str]:
    """Return the lines that a terminal shows of a text with the movements that rich writes."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9?]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part.endswith("A"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith(("\x1b", "\r")):
            lines[row] += part
    return [" ".join(line.split()) for line in lines if line]


class SlowConsole(Console):
    """A console whose layout of one text takes longer than rich's thread waits before it draws again."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text) and renderable.plain == "slow":
            time.sleep(0.3)
        return super().render(renderable, options)


@pytest.mark.parametrize("is_row", [True, False])
def test_rows_of_what_runs_vanish_and_others_stay(is_row: bool) -> None:
    console = SlowConsole(file=StringIO(), width=60, force_terminal=True, color_system=None)
    show = Display(console)
    with live(show.progress):
        print("first")
        for step in ("slow", "b"):
            show(StepEvent(step=step, state="started"))
        # What is drawn during the slow layout has another height than before.
        if is_row:
            show(StepEvent(step="slow", state="done", seconds=0.0))
        else:
            threading.Timer(0.05, show, [StepEvent(step="c", state="started")]).start()
            print("slow")
    assert isinstance(console.file, StringIO)
    assert read_screen(console.file.getvalue()) == ["first", "done 0.0 s slow" if is_row else "slow"]


class Terminal(StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "is_shown"), [(0.6, True), (0.0, False)])
def test_a_terminal_shows_what_takes_long_and_forgets_it(
    seconds: float, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfimg.cli.output.progress.QUIET_SECONDS", 0.1)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with Activity(Context(Services()), "Resolving", is_logged=True) as activity:
        time.sleep(seconds)
        activity.say("Trying 2.18")
        time.sleep(seconds)
    drawn = terminal.getvalue()
    assert ("Resolving" in drawn, "Trying 2.18" in drawn, read_screen(drawn)) == (is_shown, is_shown, [])


@pytest.mark.parametrize("form", [{"json": True}, {"quiet": True}, {}])
def test_a_log_has_one_line_of_what_takes_long(form: dict[str, bool], capsys: pytest.CaptureFixture[str]) -> None:
    with Activity(Context(Services(), **form), "Resolving", is_logged=True) as activity:
        activity.say("Trying 2.18")
    assert capsys.readouterr() == ("", "" if form else "Resolving\n")


def test_elsewhere_than_on_a_terminal_it_is_a_line_when_something_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with render_events(Context(Services()), verbose=True) as on_event:
        on_event(StepEvent(step=INSTALL, state="started"))
        on_event(StepEvent(step=INSTALL, state="done", seconds=12.34))
        on_event(ChecksPlanned(checks=("a.b", "training.cnn")))
        on_event(CheckStarted(check="a.b"))
        on_event(result("a.b", seconds=0.25))
        on_event(replace(red_result("training.cnn"), reason="two\nlines \x1b[31mred"))
    assert capsys.readouterr() == (
        "",
        "build    12.3 s  done       tensorflow\n"
        "check     0.2 s  passed     a.b\n"
        "check     0.1 s  timed-out  training.cnn  two lines red\n",
    )


def test_for_programs_each_event_is_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    with render_events(Context(Services(), json=True)) as on_event:
        on_event(ChecksPlanned(checks=("environment.packages",)))
        on_event(CheckStarted(check="environment.packages"))
        on_event(red_result("environment.packages"))
    out, err = capsys.readouterr()
    started, ended = (json.loads(line, parse_constant=pytest.fail) for line in out.splitlines())
    assert (started, err) == ({"event": "check-started", "check": "environment.packages"}, "")
    assert (ended["event"], ended["outcome"], ended["measured"]["error"]) == ("check", "failed", "nan")
    assert ended["explained"][0]["issue"] == "numpy-abi"


@pytest.mark.parametrize("width", [36, 60, 100])
def test_rows_are_columns_that_fold_what_is_long(width: int) -> None:
    console = terminal(width)
    console.print(result_table(RED.results))
    lines = rendered_text(console).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if not line.startswith(" ")]
    assert [line.split()[0] for line in heads] == [one.outcome for one in RED.results]
    # The names stand below each other, and so do the reasons below them.
    assert {line[:21].rstrip()[-1] for line in heads} == {"s"}
    assert {line[:21].strip() for line in lines if line not in heads} == {""}
    assert "9" * 400 in "".join(line.strip() for line in lines)


def test_an_outcome_has_a_name_and_a_colour() -> None:
    console = terminal(100, colours=True)
    console.print(result_table([red_result(check) for check in ENDS]))
    text = rendered_text(console)
    for colour, word in ((31, "failed"), (31, "crashed"), (31, "timed-out"), (33, "skipped")):
        assert f"\x1b[{colour}m{word}" in text
    # What the container wrote moves no cursor and changes no colour.
    assert r"red \x00" in text


@pytest.mark.parametrize(("width", "rows"), [(60, 4), (200, 1)])
def test_a_table_loses_nothing_on_a_narrow_terminal(width: int, rows: int) -> None:
    table = Table(["IMAGE", "", "TAG", "WHY"], [["2.15.1-cpu", "stay", "x" * 40, "it leads there already"]])
    _, *lines = table.render(width).splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert lines[0].startswith("2.15.1-cpu  stay  x")
    assert ("".join(lines).count("x"), len(lines)) == (40, rows)


class Screen:
    """A terminal, and what runs on it."""

    def __init__(self, width: int = 90) -> None:
        self.now = 100.0
        self.console = terminal(width)
        self.show = Display(self.console, clock=lambda: self.now)

    @property
    def kept(self) -> list[str]:
        """The lines that stay."""
        return rendered_text(self.console).splitlines()

    def drawn(self) -> list[str]:
        """The lines of what runs now, without the spinner."""
        with self.console.capture() as captured:
            self.console.print(self.show.progress)
        return [" ".join(line[1:].split()) for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [50, 80])
def test_on_a_narrow_terminal_neither_clock_nor_amount_is_cut(width: int) -> None:
    screen = Screen(width)
    screen.show(StepEvent(step="2.15.1-cpu: push", state="started"))
    for part in ("a" * 64, "b" * 64):  # of which the second becomes known later
        screen.show(ProgressEvent(step="2.15.1-cpu: push", what=part, current=5_000_000, total=20_000_000))
    screen.show(LogEvent(step="2.15.1-cpu: push", line="long " * 30))
    screen.now += 14.25
    (line,) = screen.drawn()
    assert line.startswith("14.2 s ━")
    assert " 2.15.1-cpu: push 10 of " in line
    assert ("40 MB long" in line or width == 50, line.endswith("…")) == (True, True)


def test_steps_and_checks_run_below_those_that_have_ended() -> None:
    screen = Screen()
    screen.show(StepEvent(step=INSTALL, state="started"))
    screen.show(LogEvent(step=INSTALL, line=f"Downloading\n{CONTROLS} numpy"))
    screen.now += 2.5
    (line,) = screen.drawn()
    assert line.startswith("2.5 s tensorflow Downloading ")
    screen.show(StepEvent(step=INSTALL, state="done", seconds=2.5))
    screen.show(ChecksPlanned(checks=("a.b", "training.cnn", "c")))
    for ended in (result("a.b"), red_result("training.cnn")):
        screen.show(CheckStarted(check=ended.check))
        screen.show(ended)
    screen.show(CheckStarted(check="c"))
    screen.now += 1.25
    rows = [" ".join(row.split()[3:]) for row in screen.kept]
    assert (rows[:3], rows[-1]) == (["tensorflow", "a: 1 passed", "training.cnn"], "training: 1 timed-out")
    whole, running = screen.drawn()
    assert (whole[:9], whole[-32:]) == ("1.2 s ━━━", "2 of 3 checks 1 passed, 1 timed-out"[-32:])
    assert running.split() == ["1.2", "s", "c"]
    assert "\x1b" not in "".join(screen.kept)


def test_checks_need_no_plan() -> None:
    screen = Screen()
    screen.show(CheckStarted(check="a.b"))
    screen.show(result("a.b"))
    assert screen.drawn() == ["0.0 s 1 checks 1 passed"]


def test_each_of_many_images_has_a_line() -> None:
    screen = Screen(width=110)
    names = tuple(f"2.15.{number}-cpu-py3.11" for number in range(30))
    screen.show(ImagesQueued(identifiers=names))
    screen.show(ImageStarted(identifier=names[3], engine="unix:///e"))
    screen.show(ImageStarted(identifier=names[5], engine="unix:///e"))

    def progress(event: Event) -> None:
        screen.show(ImageEvent(identifier=names[3], event=event))

    progress(StepEvent(step=INSTALL, state="started"))
    screen.now += 2.5
    assert screen.drawn()[1] == f"2.5 s {names[3]} tensorflow"
    progress(ProgressEvent(step=INSTALL, what="numpy", current=5_000_000, total=20_000_000))
    assert screen.drawn()[1] == f"2.5 s {names[3]} tensorflow: numpy 5 of 20 MB"
    progress(ChecksPlanned(checks=("a.b", "c.d")))
    progress(CheckStarted(check="a.b"))
    progress(result("a.b"))
    progress(CheckStarted(check="c.d"))
    assert screen.drawn()[1] == f"2.5 s ━━━━━ {names[3]} c.d"
    failure = BuildError(f"No {CONTROLS}", next_step="Try.")
    for ended in (
        ImageResult(identifier=names[3], status="built", seconds=12.3, level=Level.VALIDATED, checks=2),
        ImageResult(identifier=names[1], status="unchanged", seconds=0.0, level=Level.LINKED, reused=True),
        ImageResult(identifier=names[2], status="failed", seconds=1.0, failure=failure),
    ):
        screen.show(ended)
    rows = [" ".join(row.split()) for row in screen.kept]
    assert rows[:2] == [f"built 12.3 s {names[3]} validated, 2 checks passed", f"unchanged 0.0 s {names[1]} linked"]
    assert "Try." in rows[-1]
    assert "\x1b" not in "".join(rows)
    whole, *running = screen.drawn()
    assert whole.endswith("3 of 30 images 1 built, 1 unchanged, 1 failed")
    assert running == [f"2.5 s {names[5]}"]


def test_one_that_goes_to_another_engine_runs_no_longer() -> None:
    screen = Screen()
    screen.show(ImageStarted(identifier="a", engine="e"))
    screen.show(ImageRequeued(identifier="a", reason="It is gone."))
    assert screen.drawn() == []
    assert screen.kept[0].split() == ["requeued", "a", "It", "is", "gone."]


def test_a_duration_is_formatted_for_people() -> None:
    reported = {0.04: "0.0 s", 59.94: "59.9 s", 60: "1 min 00 s", 3599: "59 min 59 s", 3720: "1 h 02 min"}
    assert {seconds: format_duration(seconds) for seconds in reported} == reported

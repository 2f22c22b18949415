"""A run over many images on a terminal: what runs, what waits, how far it is; never higher than the screen."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.spinner import SPINNERS

from support.reports import CONTROLS, result
from tfimg.build.results import ImageRequeued, ImageResult, ImagesQueued, ImageStarted
from tfimg.cli.output.batch_table import LiveBatch
from tfimg.core.errors import BuildError
from tfimg.core.events import ChecksPlanned, CheckStarted, Event, ImageEvent, LogEvent, ProgressEvent, StepEvent
from tfimg.core.text import format_duration

IMAGES = [f"2.15.{number}-cpu-py3.11" for number in range(30)]
FRAMES = str(SPINNERS["dots"]["frames"])
"""What a spinner shows in turn: which of it is a matter of time."""
STEP = "[tensorflow 1/1] RUN sh /build/install /lock.txt"


class Screen:
    """A terminal, and the table on it."""

    def __init__(self, width: int = 100, height: int = 12) -> None:
        self.now = 100.0
        self.console = Console(file=StringIO(), width=width, color_system=None)
        self.table = LiveBatch(self.console.print, height=lambda: height, clock=lambda: self.now)
        self.table(ImagesQueued(identifiers=tuple(IMAGES)))

    def kept(self) -> list[str]:
        """What has scrolled away so far."""
        assert isinstance(self.console.file, StringIO)
        return [line.rstrip() for line in self.console.file.getvalue().splitlines()]

    def drawn(self) -> list[str]:
        """The table as it is now."""
        with self.console.capture() as captured:
            self.console.print(self.table)
        return [line.rstrip() for line in captured.get().splitlines()]


def test_waiting_images_are_listed_as_far_as_they_fit() -> None:
    lines = Screen().drawn()
    assert [line.split() for line in lines[:8]] == [["waiting", name] for name in IMAGES[:8]]
    assert lines[8].split() == ["waiting", "and", "22", "more"]
    assert lines[9] == "0 of 30 images  0.0 s"


def test_an_image_is_shown_with_its_step_its_seconds_and_its_checks() -> None:
    screen = Screen()
    screen.table(ImageStarted(identifier=IMAGES[3], engine="unix:///e"))

    def progress(event: Event) -> None:
        screen.table(ImageEvent(identifier=IMAGES[3], event=event))

    progress(StepEvent(step=STEP, state="started"))
    screen.now += 2.5
    frame, *words = screen.drawn()[0].split()
    assert frame in FRAMES
    assert words == ["building", "2.5", "s", IMAGES[3], "tensorflow"]
    progress(LogEvent(step=STEP, line=f"Downloading\nnumpy {CONTROLS}"))
    assert "tensorflow: Downloading numpy" in screen.drawn()[0]
    progress(ProgressEvent(step=STEP, what="numpy", current=5_000_000, total=20_000_000))
    assert "numpy 5 of 20 MB" in screen.drawn()[0]
    progress(ChecksPlanned(checks=("a.b", "c.d", "e.f")))
    progress(CheckStarted(check="a.b"))
    progress(result("a.b"))
    progress(CheckStarted(check="c.d"))
    lines = screen.drawn()
    assert lines[0].split()[4:] == [IMAGES[3], *["1", "of", "3", "checks,", "1", "passed", "c.d"]]
    assert (lines[0][0] in FRAMES, lines[0][1:].startswith(" checking")) == (True, True)
    assert lines[-1] == "0 of 30 images  2.5 s"


def test_what_has_ended_scrolls_away_and_is_counted() -> None:
    screen = Screen()
    screen.table(ImageStarted(identifier=IMAGES[0], engine="e"))
    built, unchanged, failed = (
        ImageResult(identifier=IMAGES[0], status="built", seconds=12.3, level="validated", checks=2),
        ImageResult(identifier=IMAGES[1], status="unchanged", seconds=0.0, level="linked", reused=True),
        ImageResult(
            identifier=IMAGES[2],
            status="failed",
            seconds=1.0,
            failure=BuildError(f"No {CONTROLS}", next_step="Try."),
        ),
    )
    for ended in (built, unchanged, failed):
        screen.table(ended)
    rows = screen.kept()
    assert rows[0].split() == ["built", "12.3", "s", IMAGES[0], "validated,", "2", "checks", "passed"]
    assert rows[1].split() == ["unchanged", "0.0", "s", IMAGES[1], "linked"]
    assert "Try." in " ".join(rows[2:])
    assert "\x1b" not in "".join(rows)
    assert screen.drawn()[-1] == "3 of 30 images  1 built  1 unchanged  1 failed  0.0 s"
    assert not any(name in line for line in screen.drawn() for name in (f"{IMAGES[0]} ", f"{IMAGES[1]} "))


def test_one_that_goes_to_another_engine_waits_again() -> None:
    screen = Screen()
    screen.table(ImageStarted(identifier=IMAGES[5], engine="e"))
    screen.table(ImageRequeued(identifier=IMAGES[5], reason="It is gone."))
    assert screen.drawn()[0].split() == ["waiting", IMAGES[5]]
    assert screen.kept() == [f"{IMAGES[5]} goes to another engine: It is gone."]


@pytest.mark.parametrize("running", [0, 1, 5, 9, 10, 20, 30])
@pytest.mark.parametrize("height", [1, 5, 12, 60])
def test_it_is_never_higher_than_the_screen(running: int, height: int) -> None:
    screen = Screen(height=height)
    for name in IMAGES[:running]:
        screen.table(ImageStarted(identifier=name, engine="e"))
        screen.table(ImageEvent(identifier=name, event=LogEvent(step=STEP, line="a long line " * 30)))
    lines = screen.drawn()
    assert len(lines) <= max(height, 4)
    assert lines[-1].startswith("0 of 30 images")


def test_a_duration_is_formatted_for_people() -> None:
    told = {0.04: "0.0 s", 59.94: "59.9 s", 60: "1 min 00 s", 3599: "59 min 59 s", 3720: "1 h 02 min"}
    assert {seconds: format_duration(seconds) for seconds in told} == told

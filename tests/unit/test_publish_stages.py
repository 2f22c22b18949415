"""Stages of a publication as events: how each ends, and how often progress is reported."""

from __future__ import annotations

import pytest

from tfimg.core.errors import Interrupted, NetworkError
from tfimg.core.events import Event, InfoEvent, ProgressEvent, StepEvent
from tfimg.publish.send import stage

PROGRESS = ProgressEvent(step="", what="layer", current=1, total=2)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (Interrupted("It was interrupted.", next_step=""), "interrupted"),
        (NetworkError("The registry is gone.", next_step="Try again."), "failed"),
        (SystemExit(), "failed"),
    ],
)
def test_a_stage_reports_how_it_ended(error: BaseException, state: str) -> None:
    events: list[Event] = []
    with pytest.raises(type(error)), stage(events.append, "push"):
        raise error
    assert [(event.step, event.state) for event in events if isinstance(event, StepEvent)] == [
        ("push", "started"), ("push", state),
    ]  # fmt: skip


def test_a_stage_reports_progress_at_most_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    for interval, count in ((30.0, 1), (0.0, 2)):
        monkeypatch.setattr("tfimg.publish.send.MIN_INTERVAL", interval)
        events: list[Event] = []
        with stage(events.append, "push") as on_event:
            for event in (PROGRESS, InfoEvent(text="one"), PROGRESS, InfoEvent(text="two")):
                on_event(event)
        assert [event.step for event in events if isinstance(event, ProgressEvent)] == ["push"] * count
        assert [event.text for event in events if isinstance(event, InfoEvent)] == ["one", "two"]
        assert [event.state for event in events if isinstance(event, StepEvent)] == ["started", "done"]

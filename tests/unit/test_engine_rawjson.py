"""What buildx writes under --progress=rawjson → events, wherever the pieces are cut."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from support.cases import cases
from tfimg.core.events import BuildEvent, LogEvent, ProgressEvent, StepEvent
from tfimg.engine.buildx import RawJsonDecoder

FOLDER = Path(__file__).parents[1] / "data" / "rawjson"
STEP = "[2/2] RUN echo hello; echo bad >&2; exit 3"
DEFINITION = "[internal] load build definition from bad.Dockerfile"
BASE = "[1/2] FROM docker.io/library/base:1"
FAILED = (FOLDER / "failed-buildx-0.13.txt").read_text()
"""As buildx 0.13 writes it: objects over many lines, then its own words."""

EVENTS: list[BuildEvent] = [
    StepEvent(step=DEFINITION, state="done", seconds=3e-05),
    StepEvent(step=DEFINITION, state="started"),
    ProgressEvent(step=DEFINITION, what="transferring dockerfile:", current=0, total=0),
    ProgressEvent(step=DEFINITION, what="transferring dockerfile:", current=98, total=0),
    StepEvent(step=DEFINITION, state="done", seconds=0.004427),
    StepEvent(step=BASE, state="started"),
    StepEvent(step=BASE, state="done", seconds=0.009628),
    StepEvent(step=BASE, state="cached", seconds=0.0),
    StepEvent(step=STEP, state="started"),
    LogEvent(step=STEP, line="bad"),
    LogEvent(step=STEP, line="hello"),
    StepEvent(
        step=STEP,
        state="failed",
        seconds=0.133979,
        error='process "/bin/sh -c echo hello; echo bad >&2; exit 3" did not complete successfully: exit code: 3',
    ),
]


def decoded(*pieces: str) -> tuple[list[BuildEvent], str]:
    decoder = RawJsonDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    decoder.close()
    return events, decoder.rest


def one_per_line(text: str) -> str:
    """The same text as later releases write it."""
    decoder, out = json.JSONDecoder(), ""
    while (text := text.lstrip()).startswith("{"):
        value, end = decoder.raw_decode(text)
        out, text = out + json.dumps(value) + "\n", text[end:]
    return out + text


def events_of(*documents: dict[str, Any]) -> list[BuildEvent]:
    return decoded("".join(json.dumps(document) + "\n" for document in documents))[0]


def vertex(**fields: Any) -> dict[str, Any]:
    return {"vertexes": [{"digest": "sha256:a", "name": "step", **fields}]}


def lines(text: str) -> list[str]:
    """Lines without the blanks before them, which carry nothing."""
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("text", [FAILED, one_per_line(FAILED)], ids=["pretty", "one-per-line"])
def test_a_failed_build_becomes_events_and_messages_of_buildx_for_any_chunks(text: str) -> None:
    whole = decoded(text)
    assert whole[0] == EVENTS
    assert lines(whole[1]) == lines((FOLDER / "failed-buildx-0.13-rest.txt").read_text())
    for position in range(len(text)):
        assert decoded(text[:position], text[position:]) == whole, position
    assert decoded(*text) == whole, "single characters"


def test_bytes_that_are_moved_are_reported_with_their_total_where_it_is_known() -> None:
    status = {"id": "sha256:b", "vertex": "sha256:a", "current": 1048576, "total": 29126484}
    assert events_of(vertex(), {"statuses": [status, {"id": "extracting", "vertex": "sha256:a"}]}) == [
        ProgressEvent(step="step", what="sha256:b", current=1048576, total=29126484),
        ProgressEvent(step="step", what="extracting", current=0, total=0),
    ]


def test_an_event_is_reported_as_soon_as_it_is_complete() -> None:
    decoder, text = RawJsonDecoder(), json.dumps(vertex(started="2026-01-02T03:04:05Z"))
    assert list(decoder.feed("{}\n" + text[:-1])) == [], "an empty object holds nothing up"
    assert list(decoder.feed(text[-1])) == [StepEvent(step="step", state="started")]


def test_text_around_json_objects_is_kept_in_order() -> None:
    events, rest = decoded(f"WARN: no cache\n{json.dumps(vertex(cached=True))}\nERROR: one\nERROR: two")
    assert events == [StepEvent(step="step", state="cached", seconds=0.0)]
    assert rest == "WARN: no cache\nERROR: one\nERROR: two"


def test_a_text_that_only_looks_like_json_is_kept() -> None:
    assert decoded('{"vertexes": [') == ([], '{"vertexes": [')


@cases("engine_rawjson", "instants_have_any_number_of_digits")
def test_instants_have_any_number_of_digits(started: str, completed: str, seconds: float) -> None:
    (event,) = events_of(vertex(started=started, completed=completed))
    assert event == StepEvent(step="step", state="done", seconds=pytest.approx(seconds))


START = vertex(started="2026-01-02T03:04:05Z")
END = vertex(started="2026-01-02T03:04:05Z", completed="2026-01-02T03:04:06Z")
AGAIN = vertex(started="2026-01-02T03:04:06Z")
END_AGAIN = vertex(started="2026-01-02T03:04:06Z", completed="2026-01-02T03:04:08Z")


def test_what_buildkit_repeats_is_reported_once_and_a_step_that_is_reopened_again() -> None:
    assert events_of(START, START, END, END, END, AGAIN, AGAIN, END_AGAIN) == [
        StepEvent(step="step", state="started"),
        StepEvent(step="step", state="done", seconds=1.0),
        StepEvent(step="step", state="started"),
        StepEvent(step="step", state="done", seconds=2.0),
    ]


def test_steps_of_one_name_do_not_hide_each_other() -> None:
    other = {"vertexes": [{**END["vertexes"][0], "digest": "sha256:b"}]}
    assert events_of(END, other) == [StepEvent(step="step", state="done", seconds=1.0)] * 2


def test_a_cached_step_took_no_time_and_one_that_failed_need_not_have_begun() -> None:
    times = {"started": "2026-01-02T03:04:05Z", "completed": "2026-01-02T03:04:09Z"}
    assert events_of(vertex(cached=True, **times)) == [StepEvent(step="step", state="cached", seconds=0.0)]
    failed = StepEvent(step="step", state="failed", seconds=None, error="exit code: 3")
    assert events_of(vertex(error="exit code: 3")) == [failed]


@pytest.mark.parametrize("error", ["context canceled", "rpc error: code = Canceled desc = context canceled"])
def test_a_step_that_was_cancelled_did_not_fail(error: str) -> None:
    assert events_of(vertex(error=error)) == [StepEvent(step="step", state="interrupted", error=error)]


@cases("engine_rawjson", "log_lines_are_decoded")
def test_log_lines_are_decoded(data: bytes, expected: list[str]) -> None:
    log = {"vertex": "sha256:a", "stream": 1, "data": base64.b64encode(data).decode()}
    events = events_of(vertex(), {"logs": [log]})
    assert events == [LogEvent(step="step", line=line) for line in expected]


def test_a_log_without_data_or_without_a_known_step_is_no_accident() -> None:
    assert events_of({"logs": [{"vertex": "sha256:b", "data": None}]}) == []
    assert events_of({"logs": [{"vertex": "sha256:b", "data": "eA=="}]}) == [LogEvent(step="", line="x")]


@pytest.mark.parametrize(
    "text",
    ["{}", " \n\t\n", "", '{"vertexes": null, "statuses": null, "logs": null}', json.dumps(vertex())],
    ids=["object", "blank", "empty", "null", "step that has not begun"],
)
def test_nothing_is_nothing(text: str) -> None:
    events, rest = decoded(text)
    assert (events, rest.strip()) == ([], "")

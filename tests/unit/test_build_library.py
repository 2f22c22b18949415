"""A program builds and validates images without the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.environment import TestEnvironment
from support.memory_engine import FakeEngine
from support.suite_events import done_event, end, make_output, start, suite
from tfimg.build.batch import build_many
from tfimg.build.builder import Builder, BuildSettings
from tfimg.build.results import ImageResult
from tfimg.core.events import Event, InfoEvent, StepEvent
from tfimg.matrix.conditions import Request
from tfimg.project.project import Project
from tfimg.project.validator import Validator
from tfimg.validation.report import CheckResult

OFFICIAL = {"docker.io/library/python:3.11-slim-bookworm": "sha256:b"}
STORY = make_output(suite("a"), start("a"), end("a"), done_event())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    engine = FakeEngine(story=STORY, remote=OFFICIAL)
    return Project(services=TestEnvironment(environ={"TFIMG_STATE": str(tmp_path)}, docker=engine))


def test_a_program_builds_an_image(project: Project) -> None:
    engine, events = project.services.engine(), list[Event]()
    spec = project.resolve(Request(tensorflow="2.15", python="3.11")).spec
    result = Builder(project, engine, BuildSettings(compression="fast")).build(spec, on_event=events.append)
    report = result.report
    assert (result.spec, report.level, report.passed, result.reused) == (spec, "validated", True, False)
    assert engine.find_digest(f"tfimg/tensorflow:{spec.identifier}") == result.image.stored.digest
    assert {InfoEvent, StepEvent, CheckResult} <= {type(event) for event in events}
    assert events[-1] is result
    validator = Validator(project=project, engine=engine, reuse_reports=True)
    stored = result.image.stored
    report, reused = validator.validate(
        result.plan, "tfimg/tensorflow:2.15", digest=stored.digest, content=stored.content
    )
    assert (report, reused) == (result.report, True)


def test_a_program_builds_many_images(project: Project) -> None:
    engine, events = project.services.engine(), list[Event]()
    specs = [spec for spec in project.specs if spec.identifier in ("2.15.1-cpu-py3.11", "2.16.2-cpu-py3.11")]
    for status in ("built", "unchanged"):
        events.clear()
        batch = build_many(project, [engine], BuildSettings(reuse_reports=True), specs, events.append)
        assert batch.is_green
        assert [(one.identifier, one.status) for one in batch.results] == [(one.identifier, status) for one in specs]
        assert {event for event in events if isinstance(event, ImageResult)} == set(batch.results)

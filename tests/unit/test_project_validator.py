"""Reports of earlier runs: reused while they are green and the newest on their subject."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from support.environment import TestEnvironment
from support.memory_engine import FakeEngine
from support.reports import BROKEN, GREEN, PARTIAL, RED
from support.suite_events import done_event, end, make_output, start, suite
from tfimg.core.levels import Level
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.validator import KeptReport, Validator
from tfimg.recipe.plan import Plan
from tfimg.validation.report import Report

DIGESTS = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
PASSED = make_output(suite("a"), start("a"), end("a"), done_event())
FAILED = make_output(suite("a"), start("a"), end("a", "failed", "it is wrong"), done_event(1), status=1)

Validate = Callable[..., tuple[Report, bool]]


@pytest.fixture
def validate(tmp_path: Path, named: Callable[[str], ImageSpec]) -> Validate:
    """Validates one image, in a container that prints `output`; returns the report and whether it is reused."""

    def run(
        output: Sequence[object],
        *,
        reuse: bool = True,
        digest: str = DIGESTS[0],
        content: str | None = "sha256:content",
        of: Sequence[str] = (),
    ) -> tuple[Report, bool]:
        validator = Validator(
            project=Project(services=TestEnvironment(environ={"TFIMG_STATE": str(tmp_path)})),
            engine=FakeEngine(run_output=output),  # type: ignore[arg-type]
            reuse_reports=reuse,
        )
        lock = {"tensorflow": "", "packages": ""}
        plan = Plan(spec=named("2.15.1-cpu-py3.11"), lock=lock, dockerfile="", steps="", tags=())
        return validator.validate(plan, "tf:x", digest=digest, content=content, same_as=of)

    return run


def test_a_green_report_on_the_same_content_is_reused(validate: Validate) -> None:
    first, reused = validate(PASSED)
    assert (first.passed, reused) == (True, False)
    second, reused = validate(FAILED, digest=DIGESTS[1])
    assert (second.passed, second.digest, second.date, reused) == (True, DIGESTS[1], first.date, True)


def test_a_green_report_is_not_reused_when_a_newer_run_is_red(validate: Validate) -> None:
    assert validate(PASSED)[0].passed
    red, reused = validate(FAILED, reuse=False)
    assert (red.passed, reused) == (False, False)
    third, reused = validate(FAILED)
    assert (third.passed, reused) == (False, False)
    assert validate(PASSED)[0].passed
    assert validate(FAILED)[1] is True


@pytest.mark.parametrize(
    "other", [{"reuse": False}, {"content": None}, {"content": "sha256:other"}, {"of": DIGESTS[1:]}], ids=str
)
def test_a_report_is_not_reused_for(other: dict[str, object], validate: Validate) -> None:
    validate(PASSED)
    report, reused = validate(FAILED, **other)
    assert (report.passed, reused) == (False, False)


def test_a_report_is_reused_for_one_of_the_digests_it_may_be_about(validate: Validate) -> None:
    validate(PASSED)
    assert validate(FAILED, of=DIGESTS)[1] is True


def test_a_report_without_content_is_not_kept(validate: Validate, tmp_path: Path) -> None:
    validate(PASSED, content=None)
    assert not (tmp_path / "reports").exists()


@pytest.fixture
def kept(tmp_path: Path) -> KeptReport:
    return KeptReport(
        folder=tmp_path / "reports", identifier=GREEN.identifier, content="sha256:c", suite=GREEN.suite,
        level=Level.VALIDATED, profile="standard", accelerator="none",
    )  # fmt: skip


def test_a_green_report_is_kept_as_it_is(kept: KeptReport) -> None:
    assert (kept.file.exists(), kept.read()) == (False, None)
    kept.replace(GREEN)
    assert (kept.file.exists(), kept.read(), kept.read_date()) == (True, GREEN, GREEN.date)
    kept.replace(RED)
    kept.replace(RED)
    assert not kept.file.exists()


@pytest.mark.parametrize("report", [RED, BROKEN, PARTIAL], ids=["red", "broken", "partial"])
def test_no_other_is(report: object, kept: KeptReport) -> None:
    kept.replace(report)  # type: ignore[arg-type]
    assert not kept.file.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"identifier": "2.15.1-cpu-py3.9"}, {"content": "sha256:d"}, {"suite": "sha256:e"}, {"level": "linked"},
        {"profile": "full"}, {"accelerator": "NVIDIA H100; driver 550"},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_another_subject_has_another_report(other: dict[str, str], kept: KeptReport) -> None:
    kept.replace(GREEN)
    assert not replace(kept, **other).file.exists()  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "{", '{"results": []}', "\udcff"])
def test_a_damaged_cached_report_is_ignored(text: str, kept: KeptReport) -> None:
    kept.replace(GREEN)
    kept.file.write_text(text, errors="surrogateescape")
    assert (kept.read(), kept.read_date()) == (None, None)

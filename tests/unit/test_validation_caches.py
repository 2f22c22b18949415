"""ReportCache reports: only green ones, only for the very same subject."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.reports import BROKEN, GREEN, PARTIAL, RED
from tfimg.core.levels import Level
from tfimg.validation.run import ReportCache, ReportSubject

SUBJECT = ReportSubject(
    identifier=GREEN.identifier, content="sha256:c", suite=GREEN.suite, level=Level.VALIDATED, profile="standard",
    accelerator="none",
)  # fmt: skip


@pytest.fixture
def report_cache(tmp_path: Path) -> ReportCache:
    return ReportCache(folder=tmp_path / "reports")


def test_a_green_report_is_kept_as_it_is(report_cache: ReportCache) -> None:
    assert (report_cache.has(SUBJECT), report_cache.read(SUBJECT)) == (False, None)
    report_cache.replace(SUBJECT, GREEN)
    assert (report_cache.has(SUBJECT), report_cache.read(SUBJECT)) == (True, GREEN)
    report_cache.replace(SUBJECT, RED)
    report_cache.replace(SUBJECT, RED)
    assert not report_cache.has(SUBJECT)


@pytest.mark.parametrize("report", [RED, BROKEN, PARTIAL], ids=["red", "broken", "partial"])
def test_no_other_is(report: object, report_cache: ReportCache) -> None:
    report_cache.replace(SUBJECT, report)  # type: ignore[arg-type]
    assert not report_cache.has(SUBJECT)


@pytest.mark.parametrize(
    "other",
    [
        {"identifier": "2.15.1-cpu-py3.9"}, {"content": "sha256:d"}, {"suite": "sha256:e"}, {"level": "linked"},
        {"profile": "full"}, {"accelerator": "NVIDIA H100; driver 550"},
    ],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_another_subject_has_another_report(other: dict[str, str], report_cache: ReportCache) -> None:
    report_cache.replace(SUBJECT, GREEN)
    assert not report_cache.has(replace(SUBJECT, **other))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "{", '{"results": []}', "\udcff"])
def test_a_damaged_cached_report_is_ignored(text: str, report_cache: ReportCache) -> None:
    report_cache.replace(SUBJECT, GREEN)
    (report_cache.folder / SUBJECT.file_name).write_text(text, errors="surrogateescape")
    assert report_cache.read(SUBJECT) is None

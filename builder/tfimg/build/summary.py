"""The summary of a run over many images as JSON or JUnit XML, as the name of its file says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from tfimg.build.results import Result, counts, told_counts
from tfimg.core.text import clamp_duration, to_plain_text, to_strict_json

SCHEMA = 1
"""Version of the summary's JSON."""

SUFFIXES = (".json", ".xml")
"""Suffixes of the files that a summary can be written to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """All results of a run. `date` is when it ended, ISO 8601 in UTC; `seconds` what the whole of it took."""

    results: tuple[Result, ...]
    date: str
    seconds: float

    @property
    def green(self) -> bool:
        """Every image is there."""
        return all(result.green for result in self.results)

    @property
    def sentence(self) -> str:
        """The whole on a line."""
        return f"{told_counts(self.results)} in {self.seconds:.1f} s"

    def to_json(self) -> dict[str, Any]:
        """The summary as a JSON object."""
        return {
            "schema": SCHEMA,
            "green": self.green,
            "date": self.date,
            "seconds": round(self.seconds, 2),
            "counts": dict(counts(self.results)),
            "images": [result.to_json() for result in self.results],
        }


def written(summary: Summary, name: str) -> str:
    """Return the summary in the form that the suffix of its file chooses."""
    return junit(summary) if Path(name).suffix.lower() == ".xml" else json_text(summary)


def json_text(summary: Summary) -> str:
    """The summary as JSON that every parser takes."""
    return json.dumps(to_strict_json(summary.to_json()), indent=2, allow_nan=False) + "\n"


def junit(summary: Summary) -> str:
    """The summary's JUnit XML: one suite, a case for each image. It is red exactly where the image is not there."""
    from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

    suite = TestSuite("tfimg")
    suite.timestamp = summary.date[:19]  # the form has no place for the zone, which is UTC
    for result in summary.results:
        case = TestCase(result.identifier, "tfimg.build", clamp_duration(result.seconds))
        if not result.green:
            told = to_plain_text(result.reason or result.status)
            kind = Failure if result.status == "failed" else Error
            ending = kind(told.splitlines()[0], type(result.failure).__name__)
            ending.text = told
            case.result = [ending]
        else:
            case.system_out = f"{result.status}, level {result.level}, {result.digest}"
        suite.add_testcase(case)
    suite.time = clamp_duration(summary.seconds)
    whole = JUnitXml("tfimg")
    whole.add_testsuite(suite)
    buffer = BytesIO()
    whole.write(buffer)
    return f"{buffer.getvalue().decode()}\n"

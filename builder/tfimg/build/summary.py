"""Write the results of a run over many images as JSON or JUnit XML."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

from tfimg.build.results import BatchResult
from tfimg.core.text import clamp_duration, to_plain_text, to_strict_json

SUFFIXES = (".json", ".xml")
"""Suffixes of the files that a summary can be written to."""


def format_summary(batch: BatchResult, name: str) -> str:
    """Return the summary in the form that the suffix of its file chooses."""
    return junit(batch) if Path(name).suffix.lower() == ".xml" else json_text(batch)


def json_text(batch: BatchResult) -> str:
    """Return the summary as JSON that every parser accepts."""
    return json.dumps(to_strict_json(batch.to_json()), indent=2, allow_nan=False) + "\n"


def junit(batch: BatchResult) -> str:
    """Return the summary as JUnit XML: one suite with a case for each image, red exactly if the image failed."""
    from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

    suite = TestSuite("tfimg")
    suite.timestamp = batch.date[:19]  # the form has no place for the zone, which is UTC
    for result in batch.results:
        case = TestCase(result.identifier, "tfimg.build", clamp_duration(result.seconds))
        if result.is_green:
            case.system_out = f"{result.status}, level {result.level}, {result.digest}"
        else:
            reason = to_plain_text(result.reason or result.status)
            kind = Failure if result.status == "failed" else Error
            ending = kind(reason.splitlines()[0], type(result.failure).__name__)
            ending.text = reason
            case.result = [ending]
        suite.add_testcase(case)
    suite.time = clamp_duration(batch.seconds)
    document = JUnitXml("tfimg")
    document.add_testsuite(suite)
    buffer = BytesIO()
    document.write(buffer)
    return f"{buffer.getvalue().decode()}\n"

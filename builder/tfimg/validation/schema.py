"""The shape of a report's JSON: published as a JSON Schema, and understood once where a kept report is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tfimg.core.documents import InvalidDocument, parse_json
from tfimg.core.errors import FileError
from tfimg.validation.formats import format_json
from tfimg.validation.report import SCHEMA, Report

TOLD = ("passed", "verdict", "level", "fault", "missing")
"""What a report tells besides its fields: its properties, so that no reader has to work them out."""

OPTIONAL = {
    "gpu": "The accelerator that it ran on, where there was one.",
    "driver": "That accelerator's driver.",
}

MEANINGS = {
    "schema": "Version of this form.",
    "passed": "No check failed, and none that is required was skipped.",
    "verdict": "How it ended on the whole; broken: the suite did not reach its end.",
    "level": "What the image is shown to be.",
    "fault": "Who is to mend it; null when all is green.",
    "missing": "Required checks that did not pass, because they were left out or for another reason.",
    "identifier": "What the image claims to be, as `tfimg list` names it.",
    "device": "What the image is for.",
    "digest": "The image, by content.",
    "lock": "Digest of the lock that the image was built from.",
    "suite": "Digest of the suite that ran.",
    "date": "When it ended, ISO 8601 in UTC.",
    "seconds": "How long the whole of it took.",
    "results": "Every check's end, in the order in which they ended.",
    "problem": "Why the suite did not reach its end; null when it did.",
    "aim": "The level that was to be shown.",
    "profile": "How much of the suite was asked for.",
    "required": "Checks that must pass for the level.",
    "waived": "Checks that the image does without, and why.",
    "unproven": "Checks of a higher level, which this machine could not run.",
    "environment": "The machine as the suite saw it.",
}


def schema_text() -> str:
    """The report's JSON Schema, as the committed file has it."""
    schema = TypeAdapter(Report).json_schema()
    for shape in (*schema["$defs"].values(), schema):
        _close(shape)
    told = {name: _shape_of(name) for name in TOLD}
    fields = {"schema": {"const": SCHEMA}, **told, **schema["properties"]}
    optional = {name: {"type": "string", "description": text} for name, text in OPTIONAL.items()}
    named = {name: {**shape, "description": MEANINGS[name]} for name, shape in fields.items() if name in MEANINGS}
    schema |= {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tfimg validation report, schema {SCHEMA}",
        "properties": {**fields, **named, **optional},
        "required": list(fields),
    }
    return json.dumps(schema, indent=2) + "\n"


def _close(shape: dict[str, Any]) -> None:
    """A report is always written whole: every field is there, and no other."""
    if shape.get("type") == "object":
        shape |= {"required": list(shape["properties"]), "additionalProperties": False}
        for field in shape["properties"].values():
            field.pop("default", None)


def _shape_of(name: str) -> dict[str, Any]:
    return TypeAdapter(get_type_hints(getattr(Report, name).fget)["return"]).json_schema()


MAX_PROBLEMS, MAX_PROBLEM = 10, 200
"""Problems that an error lists, and characters of each."""

LONGEST = 86_400.0
"""Seconds of a day: more than the longest run may take."""


def read_report(text: str, *, source: str) -> Report:
    """A kept report's text → the report.

    It is believed only as a whole: what it tells of itself must follow from its results. Raises `FileError`, which
    names `source` and every problem by its path.
    """
    document = _document(text, source)
    try:
        report = TypeAdapter(Report).validate_json(text, strict=True)
    except ValidationError as error:
        raise _refused(source, _shape_problems(error)) from None
    anew = json.loads(format_json(report))
    if problems := [*_impossible(report), *_differences(document, anew)]:
        raise _refused(source, problems)
    return report


def _impossible(report: Report) -> Iterator[str]:
    """What no run can have told."""
    if not report.required:
        yield "required: a run of the suite requires something"
    seen: set[str] = set()
    for number, result in enumerate(report.results):
        if result.check in seen:
            yield f"results[{number}].check: {result.check} has ended before"
        if not 0 <= result.seconds < LONGEST:
            yield f"results[{number}].seconds: no check takes {result.seconds} s"
        seen.add(result.check)


def _document(text: str, source: str) -> Mapping[str, Any]:
    try:
        document = parse_json(text.encode("utf-8", "surrogatepass"))
    except InvalidDocument as error:
        raise _refused(source, [str(error)]) from None
    if not isinstance(document, dict) or "results" not in document:
        raise _refused(source, ["it has no results"])
    if document.get("schema") != SCHEMA:
        raise FileError(
            f"{source} is a report of schema {str(document.get('schema'))[:40]}, and this version of tfimg reads "
            f"{SCHEMA}.",
            next_step="Validate the image anew with --report FILE, or read it with the version that wrote it.",
        )
    return document


def _shape_problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
        yield f"{path.lstrip('.') or 'the report'}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _differences(kept: Any, anew: Any, path: str = "") -> Iterator[str]:
    """Where a document is not what its own results amount to."""
    if isinstance(kept, dict) and isinstance(anew, dict):
        for name in [*anew, *(name for name in kept if name not in anew)]:
            here = f"{path}.{name}" if path else name
            if name not in kept:
                yield f"{here}: it is missing"
            elif name not in anew:
                yield f"{here}: a report has no such field"
            else:
                yield from _differences(kept[name], anew[name], here)
    elif isinstance(kept, list) and isinstance(anew, list) and len(kept) == len(anew):
        for number, (one, other) in enumerate(zip(kept, anew, strict=True)):
            yield from _differences(one, other, f"{path}[{number}]")
    elif kept != anew:
        yield f"{path}: it says {json.dumps(kept)}, and the rest amounts to {json.dumps(anew)}"


def _refused(source: str, problems: Iterable[str]) -> FileError:
    found = list(problems)
    listed = "".join(f"\n  {problem[:MAX_PROBLEM]}" for problem in found[:MAX_PROBLEMS])
    more = f"\n  and {len(found) - MAX_PROBLEMS} more" if len(found) > MAX_PROBLEMS else ""
    return FileError(
        f"{source} is no validation report:{listed}{more}\n",
        next_step="Write it anew with `tfimg validate --report`.",
    )

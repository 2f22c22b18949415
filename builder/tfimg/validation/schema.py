"""The JSON Schema of reports, and the reader of stored reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import getdoc
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tfimg.core.documents import InvalidDocument, parse_json
from tfimg.core.errors import FileError
from tfimg.validation.formats import format_json
from tfimg.validation.image_record import KIND, read_image_record
from tfimg.validation.report import DERIVED_FIELDS, SCHEMA, Report

REPORT: TypeAdapter[Report] = TypeAdapter(Report)

OPTIONAL = {"gpu": "The GPU that the suite ran on, if any.", "driver": "That GPU's driver."}

MAX_PROBLEMS, MAX_PROBLEM = 10, 200
"""Problems that an error lists, and characters of each."""


def schema_text() -> str:
    """Return the JSON Schema, as images/report.schema.json has it."""
    schema = REPORT.json_schema()
    for shape in (*schema["$defs"].values(), schema):
        _close(shape)
    fields = {"schema": {"const": SCHEMA, "description": "Version of this form."}}
    for name in DERIVED_FIELDS:
        getter = getattr(Report, name).fget
        fields[name] = TypeAdapter(get_type_hints(getter)["return"]).json_schema() | {"description": getdoc(getter)}
    fields |= schema["properties"]
    schema |= {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tfimg validation report, schema {SCHEMA}",
        "properties": fields | {name: {"type": "string", "description": text} for name, text in OPTIONAL.items()},
        "required": list(fields),
    }
    return json.dumps(schema, indent=2) + "\n"


def _close(shape: dict[str, Any]) -> None:
    """Require every field, and forbid others."""
    if shape.get("type") == "object":
        shape |= {"required": list(shape["properties"]), "additionalProperties": False}
        for field in shape["properties"].values():
            field.pop("default", None)


def read_report(text: str, *, source: str) -> Report:
    """Parse a stored report, whose derived fields must follow from its results.

    Raises `FileError`, which names `source` and every problem by its path.
    """
    document = _parse(text, source)
    try:
        report = REPORT.validate_json(text, strict=True)
    except ValidationError as error:
        raise _make_error(source, *_describe_errors(error)) from None
    if problems := [*_find_contradictions(report), *_find_differences(document, json.loads(format_json(report)))]:
        raise _make_error(source, *problems)
    return report


def find_report(text: str, *, source: str) -> Report | None:
    """Return the report, or that of committed evidence, in a text; None if it is another text, such as a log.

    Raises `FileError` for an invalid report, and where `source` ends in .json for any other text.
    """
    document: Any = None
    with suppress(InvalidDocument):
        document = parse_json(text.encode("utf-8", "surrogatepass"))
    fields = document if isinstance(document, dict) else {}
    if fields.get("kind") == KIND:
        return read_image_record(text.encode(), source=source).to_report()
    return read_report(text, source=source) if "results" in fields or source.endswith(".json") else None


def _parse(text: str, source: str) -> Mapping[str, Any]:
    try:
        document = parse_json(text.encode("utf-8", "surrogatepass"))
    except InvalidDocument as error:
        raise _make_error(source, str(error)) from None
    if not isinstance(document, dict) or "results" not in document:
        raise _make_error(source, "it has no results")
    if document.get("schema") != SCHEMA:
        raise FileError(
            f"{source} is a report of schema {str(document.get('schema'))[:40]}, and this version of tfimg reads "
            f"{SCHEMA}.",
            next_step="Validate the image again with --report FILE, or read it with the version that wrote it.",
        )
    return document


def _describe_errors(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
        yield f"{path.lstrip('.') or 'the report'}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _find_contradictions(report: Report) -> Iterator[str]:
    if not report.required:
        yield "required: a run of the suite requires at least one check"
    ended: set[str] = set()
    for number, result in enumerate(report.results):
        if result.check in ended:
            yield f"results[{number}].check: {result.check} has ended before"
        ended.add(result.check)


def _find_differences(stored: Any, computed: Any, path: str = "") -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(computed, dict):
        for name in [*computed, *(name for name in stored if name not in computed)]:
            here = f"{path}.{name}" if path else name
            if name not in stored:
                yield f"{here}: it is missing"
            elif name not in computed:
                yield f"{here}: unknown field"
            else:
                yield from _find_differences(stored[name], computed[name], here)
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for number, pair in enumerate(zip(stored, computed, strict=True)):
            yield from _find_differences(*pair, f"{path}[{number}]")
    elif stored != computed:
        yield f"{path}: it is {json.dumps(stored)}, and follows as {json.dumps(computed)} from the results"


def _make_error(source: str, *problems: str) -> FileError:
    lines = "".join(f"\n  {problem[:MAX_PROBLEM]}" for problem in problems[:MAX_PROBLEMS])
    more = f"\n  and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    return FileError(
        f"{source} is not a valid validation report:{lines}{more}\n",
        next_step="Write it again with `tfimg validate --report`.",
    )

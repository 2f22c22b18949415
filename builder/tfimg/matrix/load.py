"""Parse matrix.yaml, and report every problem with its path."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from tfimg.core import documents, errors
from tfimg.core.text import SET_CLOCK
from tfimg.matrix import rules, schema

MAX_CHARACTERS = 1 << 17
"""Length of a text. Our matrix has 33,000 characters; a pure Python reader takes a second for as many."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's; PyYAML of some distributions is without


@lru_cache(maxsize=4)
def parse_matrix(text: str, *, source: str, today: date) -> schema.Matrix:
    """Parse the text of a matrix; `source` is its name in messages, `today` the last possible day of a release.

    Raises `MatrixError` with all problems: those of the schema, else those of the rules; `WrongClock` if every
    release is in the future.
    """
    try:
        matrix = validate_facts(schema.Matrix, read_yaml(text))
    except documents.InvalidDocument as error:
        raise errors.MatrixError([str(error)], source=source) from None
    except ValidationError as error:
        raise errors.MatrixError([*describe_schema_errors(error)], source=source) from None
    first = min((release.released for row in matrix.rows for release in row.tensorflow), default=date.min)
    if today < first:
        raise errors.WrongClock(
            f"The clock of this machine shows {today}, and the first release in {source} is of {first}.",
            next_step=SET_CLOCK,
        )
    problems = [problem for rule in rules.RULES for problem in rule(matrix, today)]
    if problems:
        raise errors.MatrixError(problems, source=source, today=str(today))
    return matrix


AnyFacts = TypeVar("AnyFacts", bound=schema.Facts)


def validate_facts(kind: type[AnyFacts], value: object) -> AnyFacts:
    """Return plain values as a part of the matrix. Raises pydantic's `ValidationError`."""
    facts: AnyFacts = _adapter(kind).validate_python(value)  # type: ignore[arg-type]  # a type is hashable
    return facts


def dump_facts(facts: schema.Facts, **options: Any) -> dict[str, Any]:
    """Return a part of the matrix as plain values; `options` are those of pydantic."""
    plain: dict[str, Any] = _adapter(type(facts)).dump_python(facts, **options)  # type: ignore[arg-type]
    return plain


@cache
def _adapter(kind: type[schema.Facts]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_yaml(text: str, *, max_characters: int = MAX_CHARACTERS) -> Any:
    """Parse one document of YAML 1.2 without anchors, tags, duplicate keys and deep nesting. Raises `InvalidDocument`.

    Dates are text, so that the schema reports an impossible one by its path.
    """
    if len(text) > max_characters:
        raise documents.InvalidDocument(
            f"the text: it has {len(text)} characters, and at most {max_characters} are read"
        )
    if wrong := re.search("[\x85\u2028\u2029]", text):
        raise documents.InvalidDocument(f"the text: U+{ord(wrong[0]):04X} breaks lines in YAML 1.1 alone")
    try:
        return _Reader(_LOADER(text).get_event).read_document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
        raise documents.InvalidDocument(f"{where}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise documents.InvalidDocument(f"the text: {str(error).splitlines()[0]}") from None


MAX_DEPTH, MAX_VALUES = 20, 10_000  # nesting, and keys and values, of a text. Our matrix has 7 and 2,200

_WORDS = {"": None, "~": None} | {
    form: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for form in (word, word.title(), word.upper())
}
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
"""Null, booleans and decimal numbers of the core schema (YAML 1.2, 10.3.2); all else is text."""


@dataclass
class _Reader:
    """Builds values from the events of a parser."""

    next_event: Callable[[], Any]
    values: int = 0

    def read_document(self) -> Any:
        self.next_event()  # the beginning of the stream
        start = self.next_event()
        if not isinstance(start, yaml.DocumentStartEvent):
            return None
        value = self.read_value(self.next_event(), depth=1)
        self.next_event()  # the end of the document
        if not isinstance(event := self.next_event(), yaml.StreamEndEvent):
            raise _error("another document begins", event)
        return value

    def read_value(self, event: Any, *, depth: int) -> Any:
        self._check(event, depth)
        if isinstance(event, yaml.ScalarEvent):
            text: str = event.value
            if not event.style and text in _WORDS:
                return _WORDS[text]
            if event.style or not _NUMBER.fullmatch(text):
                return text
            return int(text) if text.lstrip("+-").isdigit() and len(text) < 20 else float(text)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := self.next_event(), yaml.SequenceEndEvent):
                items.append(self.read_value(event, depth=depth + 1))
            return items
        found: dict[Any, Any] = {}
        while not isinstance(event := self.next_event(), yaml.MappingEndEvent):
            key = self.read_value(event, depth=depth + 1)
            if isinstance(key, dict | list):
                raise _error("a key is a list or mapping", event)
            if key in found:
                raise _error(f"{key!r} is there twice", event)
            found[key] = self.read_value(self.next_event(), depth=depth + 1)
        return found

    def _check(self, event: Any, depth: int) -> None:
        self.values += 1
        if event.anchor:
            raise _error(f"{event.anchor!r} is an anchor or alias: write the value out", event)
        if event.tag:
            raise _error(f"{event.tag!r} is a tag: write the plain value", event)
        if depth > MAX_DEPTH:
            raise _error(f"nested more than {MAX_DEPTH} deep", event)
        if self.values > MAX_VALUES:
            raise _error(f"more than {MAX_VALUES} values", event)


def _error(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


REWORDED = {
    "dataclass_type": "input should be a valid dictionary",
    "unexpected_keyword_argument": "extra inputs are not permitted",
}
"""Kind of an error of pydantic that is about Python → what it means in a file."""


def describe_schema_errors(error: ValidationError) -> Iterator[str]:
    """Yield the problems that pydantic found, each with its path."""
    items = error.errors()
    for item in items:
        if item["type"] == "too_short" and any(
            other["loc"][: len(item["loc"])] == item["loc"] for other in items if other is not item
        ):
            continue  # pydantic counts only items without problems; the others are reported already
        message = REWORDED.get(item["type"], item["msg"]).removeprefix("Value error, ").partition(" or instance of ")[0]
        yield f"{format_path(item['loc']) or 'the document'}: {message[0].lower()}{message[1:]}"


def format_path(steps: Sequence[int | str]) -> str:
    """Join the steps of a path: `rows[2].gpu.cuda`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:  # a key is quoted if it contains unusual characters
            text += f".{step}" if re.fullmatch(r"[\w<>=./-]+|\[key\]", step) else f".{step!r}"
    return text.removeprefix(".")

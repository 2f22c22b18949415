"""Parse matrix.yaml, and report every problem with its path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from tfimg.core.documents import InvalidYaml
from tfimg.core.errors import MatrixError
from tfimg.matrix.rules import RULES
from tfimg.matrix.schema import Facts, Matrix

MAX_CHARACTERS = 1 << 17
"""Length of a text. Our matrix has 33,000 characters; ruamel, in Python, reads 35,000 a second."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's; PyYAML of some distributions is without."""


@lru_cache(maxsize=4)
def parse_matrix(text: str, *, source: str, today: date) -> Matrix:
    """Parse the text of a matrix; `source` is its name in messages, `today` the last possible day of a release.

    Raises `MatrixError` with all problems: those of the schema, else those of the rules.
    """
    try:
        matrix = validate_facts(Matrix, read_yaml(text))
    except InvalidYaml as error:
        raise MatrixError([str(error)], source=source) from None
    except ValidationError as error:
        raise MatrixError([*describe_schema_errors(error)], source=source) from None
    problems = [problem for rule in RULES for problem in rule(matrix, today)]
    if problems:
        raise MatrixError(problems, source=source)
    return matrix


AnyFacts = TypeVar("AnyFacts", bound=Facts)


def validate_facts(kind: type[AnyFacts], value: object) -> AnyFacts:
    """Return plain values as a part of the matrix. Raises pydantic's `ValidationError`."""
    facts: AnyFacts = _adapter(kind).validate_python(value)  # type: ignore[arg-type]  # a type is hashable
    return facts


def dump_facts(facts: Facts, **options: Any) -> dict[str, Any]:
    """Return a part of the matrix as plain values; `options` are those of pydantic."""
    plain: dict[str, Any] = _adapter(type(facts)).dump_python(facts, **options)  # type: ignore[arg-type]
    return plain


@cache
def _adapter(kind: type[Facts]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_yaml(text: str, *, max_characters: int = MAX_CHARACTERS) -> Any:
    """Parse YAML without anchors, tags, merge keys, duplicate keys and deep nesting. Raises `InvalidYaml`.

    libyaml, in C, reads the part of YAML that our matrix is written in; all else, and every problem, is ruamel's, which
    takes 20 times as long.
    """
    if len(text) > max_characters:
        raise InvalidYaml(f"the text: it has {len(text)} characters, and at most {max_characters} are read")
    with suppress(Unusual, yaml.YAMLError):
        return read_usual_yaml(text)
    from tfimg.matrix.strict_yaml import read_strict_yaml

    return read_strict_yaml(text)


class Unusual(Exception):
    """A text has YAML that `read_usual_yaml` does not read."""


MAX_DEPTH, MAX_VALUES = 12, 5000
"""Nesting, and keys and values, of a usual text. Our matrix has 7 and 2,200."""

_UNUSUAL = re.compile(r"[^\n -\[\]-~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]|[|>][-+0-9]*#")
"""Line breaks of YAML 1.1 alone, tabs, backslashes, what no YAML has, and comments that libyaml alone takes."""

_TEXT = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[a-z].*|[0-9].* .*|[0-9]{4}-[0-9]{2}(-[0-9]{2})?",
    re.DOTALL | re.IGNORECASE,
)
"""What is text without quotes in every version of YAML; a date is text to the schema."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


def read_usual_yaml(text: str) -> Any:
    """Parse a document of texts and decimal numbers, which YAML 1.1 and 1.2 read alike.

    Raises `Unusual` for anything else, and `yaml.YAMLError` for what libyaml cannot parse.
    """
    if _UNUSUAL.search(text):
        raise Unusual
    return _UsualReader(_LOADER(text).get_event).read_document()


@dataclass
class _UsualReader:
    next_event: Callable[[], Any]
    values: int = 0

    def read_document(self) -> Any:
        kinds = (yaml.StreamStartEvent, yaml.DocumentStartEvent, None, yaml.DocumentEndEvent, yaml.StreamEndEvent)
        value = None
        for kind in kinds:
            event = self.next_event()
            if kind is None:
                value = self.read_value(event, in_flow=False, depth=1)
            elif not isinstance(event, kind) or getattr(event, "explicit", False):
                raise Unusual  # a directive may say how the text is to be read
        return value

    def read_value(self, event: Any, *, in_flow: bool, depth: int) -> Any:
        self.values += 1
        if event.anchor or event.tag or depth > MAX_DEPTH or self.values > MAX_VALUES:
            raise Unusual
        if isinstance(event, yaml.ScalarEvent):
            return _read_scalar(event, in_flow)
        in_flow, depth = in_flow or bool(event.flow_style), depth + 1
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := self.next_event(), yaml.SequenceEndEvent):
                items.append(self.read_value(event, in_flow=in_flow, depth=depth))
            return items
        found: dict[Any, Any] = {}
        while not isinstance(event := self.next_event(), yaml.MappingEndEvent):
            key = self.read_value(event, in_flow=in_flow, depth=depth)
            if isinstance(key, dict | list) or key in found:
                raise Unusual
            found[key] = self.read_value(self.next_event(), in_flow=in_flow, depth=depth)
        return found


def _read_scalar(event: yaml.ScalarEvent, in_flow: bool) -> str | int:
    text: str = event.value
    if event.style in ("|", ">"):
        if text and "\n" not in text:  # the two parsers differ about blank lines and comments around
            return text
    elif event.style or (_TEXT.fullmatch(text) and not (in_flow and ":" in text)):
        return text
    elif _NUMBER.fullmatch(text):
        return int(text)
    raise Unusual


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

"""Parse matrix.yaml, and report every problem with its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tfimg.core.errors import MatrixError
from tfimg.matrix.rules import RULES
from tfimg.matrix.schema import Matrix

MAX_CHARACTERS = 1 << 17
"""Length of a text. Our matrix has 20,000 characters; the parser, in Python, reads 35,000 a second."""

MAX_DEPTH = 20
"""Nesting of a text. Our matrix needs 7; a bomb of brackets would exhaust the interpreter."""

MAX_NODES = 10_000
"""Keys and values of a text. Our matrix has 1,600; 50,000 of one character took the parser 9 s."""


@lru_cache(maxsize=4)
def parse_matrix(text: str, *, source: str, today: date) -> Matrix:
    """Parse the text of a matrix; `source` is its name in messages, `today` the last possible day of a release.

    Raises `MatrixError` with all problems: those of the schema, else those of the rules.
    """
    try:
        matrix = Matrix.model_validate(read_yaml(text))
    except InvalidYaml as error:
        raise MatrixError([str(error)], source=source) from None
    except ValidationError as error:
        raise MatrixError([*describe_schema_errors(error)], source=source) from None
    problems = [problem for rule in RULES for problem in rule(matrix, today)]
    if problems:
        raise MatrixError(problems, source=source)
    return matrix


class _Composer(Composer):
    """Rejects anchors and tags, which can expand a few bytes into any amount."""

    _depth = 0
    _nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        self._depth += 1
        self._nodes += 1
        problem = None
        if event.anchor:
            problem = f"{event.anchor!r} is an anchor or alias: write the value out"
        elif getattr(event, "tag", None):
            problem = f"{event.tag!r} is a tag: write the plain value"
        elif self._depth > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} deep"
        elif self._nodes > MAX_NODES:
            problem = f"more than {MAX_NODES} values"
        if problem:
            raise MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Constructor(SafeConstructor):
    """Leaves dates as text, so that the schema reports an impossible one by its path."""

    def flatten_mapping(self, node: Any) -> Any:
        """Reject merge keys, which YAML 1.2 does not have."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise MarkedYAMLError(problem="'<<' is a merge key: write the values out", problem_mark=key.start_mark)


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


class InvalidYaml(Exception):
    """A text is not plain YAML; the message says where and why."""


def read_yaml(text: str, *, max_characters: int = MAX_CHARACTERS) -> Any:
    """Parse YAML without anchors, tags, merge keys, duplicate keys and deep nesting. Raises `InvalidYaml`."""
    if len(text) > max_characters:
        raise InvalidYaml(f"the text: it has {len(text)} characters, and at most {max_characters} are read")
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Constructor, yaml.Composer = _Constructor, _Composer
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "the text"
        raise InvalidYaml(f"{where}: {(error.problem or 'not YAML').splitlines()[0]}") from None
    except (YAMLError, ValueError, OverflowError, TypeError) as error:
        # ruamel raises the last two for an escaped character beyond Unicode, and for a mapping as a key.
        raise InvalidYaml(f"the text: {str(error).splitlines()[0]}") from None


def describe_schema_errors(error: ValidationError) -> Iterator[str]:
    """Yield the problems that pydantic found, each with its path."""
    items = error.errors()
    for item in items:
        if item["type"] == "too_short" and any(
            other["loc"][: len(item["loc"])] == item["loc"] for other in items if other is not item
        ):
            continue  # pydantic counts only items without problems; the others are reported already
        message = item["msg"].removeprefix("Value error, ").partition(" or instance of ")[0]
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

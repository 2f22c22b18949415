"""Parse any YAML 1.2 as data alone, and name the line of what is refused: slow, for what `tfimg.matrix.load` leaves."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tfimg.core.documents import InvalidYaml

MAX_DEPTH = 20
"""Nesting of a text. Our matrix needs 7; a bomb of brackets would exhaust the interpreter."""

MAX_NODES = 10_000
"""Keys and values of a text. Our matrix has 2,200; 50,000 of one character took the parser 9 s."""


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


def read_strict_yaml(text: str) -> Any:
    """Parse YAML without anchors, tags, merge keys, duplicate keys and deep nesting. Raises `InvalidYaml`."""
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

"""Tables of inputs and what is expected of them, in files: `tests/data/cases/MODULE.yaml`, a table for each test.

`given` names the arguments of a row. Rows are a list, or a mapping by the names under which pytest shows them.
`!bytes "…"` stands for the bytes of a text in Latin-1, `!error NAME` for the class of that name.
"""

from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML, SafeConstructor

from support.paths import DATA
from tfimg.core import errors


class _Constructor(SafeConstructor):
    """Its tags are no other reader's."""


_Constructor.add_constructor("!bytes", lambda _, node: node.value.encode("latin-1"))
_Constructor.add_constructor("!error", lambda _, node: getattr(errors, node.value))


def cases(module: str, table: str) -> pytest.MarkDecorator:
    """Run a test once for each row of a table."""
    found = _tables(module)[table]
    rows = found["rows"]
    if isinstance(rows, dict):
        return pytest.mark.parametrize(found["given"], rows.values(), ids=rows)
    return pytest.mark.parametrize(found["given"], rows)


@cache
def _tables(module: str) -> Any:
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    return reader.load(DATA / "cases" / f"{module}.yaml")

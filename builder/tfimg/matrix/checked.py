"""The matrix as an earlier run has checked it: without pydantic and a parser, whose imports take most of a start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from tfimg.core.cache import make_cache_key, read_cache, write_cache
from tfimg.matrix import schema

MODULES = (schema.__file__, str(Path(schema.__file__).with_name("rules.py")))
"""Modules that judge a matrix."""


def load_matrix(text: str, *, source: str, today: date, cache: Path) -> schema.Matrix:
    """Return the matrix of a text; `cache` is the folder of earlier results. Raises as `parse_matrix`."""
    file = cache / "matrix.json"
    key = make_cache_key(source, text, today.isoformat(), modules=MODULES)
    if (kept := read_cache(file, key)) is not None:
        matrix: schema.Matrix = _maker(schema.Matrix)(kept)
        return matrix
    from tfimg.matrix.load import dump_facts, parse_matrix

    matrix = parse_matrix(text, source=source, today=today)
    write_cache(file, key, dump_facts(matrix, mode="json"))
    return matrix


@cache
def _maker(kind: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of a type from the plain values of one that was checked."""
    arguments = [part for part in get_args(kind) if part is not NoneType]
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        makers = {one.name: _maker(hints[one.name]) for one in fields(kind)}
        return lambda value: kind(**{name: makers[name](part) for name, part in value.items()})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        make_item = _maker(arguments[0])
        return lambda value: tuple(map(make_item, value))
    if get_origin(kind) is dict:
        make_item = _maker(arguments[1])
        return lambda value: {key: make_item(part) for key, part in value.items()}
    if NoneType in get_args(kind):
        make = _maker(arguments[0])
        return lambda value: None if value is None else make(value)
    return date.fromisoformat if kind is date else lambda value: value

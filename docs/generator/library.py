"""Reference of the Python API: signatures and docstrings of what a program outside uses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import tfimg
from generator.markdown import block, code, escape, table


def api(names: str) -> str:
    """Return the reference of names that `tfimg` exports, with blanks between."""
    return "\n".join(_entry(name, getattr(tfimg, name)) for name in names.split())


def _entry(name: str, value: Any) -> str:
    text = "\n\n".join(map(escape, (inspect.getdoc(value) or "").split("\n\n")))
    use = block([f"from tfimg import {name}", "", *_signature(name, value)], "python")
    members = list(_members(value)) if isinstance(value, type) else []
    return (
        f"### {name}\n\n{use}\n{text}\n\n{table(('member', 'meaning'), members, '.stack .members') if members else ''}"
    )


def _signature(name: str, value: Any) -> list[str]:
    if isinstance(value, type) and issubclass(value, Enum):
        return [f"{name}.{member.name}  # {member.value}" for member in value]
    if is_dataclass(value):
        parts = [_field(field) for field in fields(value) if field.init]
        keyword_only = [field.kw_only for field in fields(value) if field.init]
        if True in keyword_only:
            parts.insert(keyword_only.index(True), "*")
        returns = ""
    else:
        signature = inspect.signature(value)
        parts = [_parameter(parameter) for parameter in signature.parameters.values()]
        keyword_only = [part.kind is inspect.Parameter.KEYWORD_ONLY for part in signature.parameters.values()]
        if True in keyword_only:
            parts.insert(keyword_only.index(True), "*")
        returned = signature.return_annotation
        returns = "" if returned is inspect.Signature.empty else f" -> {_annotation(returned)}"
    return [f"{name}(", *(f"    {part}," for part in parts), f"){returns}"]


def _field(field: Field[Any]) -> str:
    if field.default is not MISSING and not inspect.isfunction(field.default):
        return f"{field.name}: {_annotation(field.type)} = {field.default!r}"
    return f"{field.name}: {_annotation(field.type)}" + ("" if field.default is field.default_factory else " = ...")


def _annotation(value: Any) -> str:
    """Return a type as it is written, without the names of modules."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", value if isinstance(value, str) else inspect.formatannotation(value))


def _parameter(parameter: inspect.Parameter) -> str:
    text = f"{parameter.name}: {_annotation(parameter.annotation)}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = parameter.default
    return f"{text} = {default.__name__ if callable(default) else repr(default)}"


def _members(value: type) -> Iterator[tuple[str, str]]:
    """Yield the public methods and properties of a class, with the first line of each."""
    for name, member in vars(value).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property | cached_property):
            shown = name
        elif inspect.isroutine(member):
            shown = f"{name}({', '.join(_names(member))})"
        else:
            continue
        yield code(shown), escape((inspect.getdoc(member) or "").partition("\n\n")[0])


def _names(function: Any) -> list[str]:
    names = list(inspect.signature(getattr(function, "__func__", function)).parameters)
    return names[1:] if names[:1] in (["self"], ["cls"]) else names

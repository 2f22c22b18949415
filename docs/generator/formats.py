"""Reference of file formats, from their models: of pydantic, or dataclasses that pydantic validates."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from generator.markdown import code, escape, table
from tfimg.attestations import policy
from tfimg.matrix import schema

Model = type[BaseModel] | type[schema.Facts]

NAMES = {
    schema.RepositoryText: "repository",
    schema.VersionText: "version",
    schema.MinorText: "X.Y in quotes",
    schema.Day: "YYYY-MM-DD",
    schema.LastDay: "YYYY-MM-DD or YYYY-MM",
    schema.SourceText: "address, or `owner/repository#number`",
    schema.RangeText: "version range",
    schema.RequirementText: "requirement (PEP 508)",
    schema.Sentence: "sentence",
    schema.PackageText: "package",
    schema.IssueText: "`owner/repository#number`",
    schema.Capability: "`sm_NN`",
    schema.Architecture: "`sm_NN` or `compute_NN`",
    schema.VariantName: "name of a variant",
    schema.SystemPackage: "Debian package",
    schema.FilePattern: "pattern of paths",
    policy.AgeText: "age",
    policy.GlobText: "pattern of tags",
    policy.KeyText: "public key (PEM)",
    policy.Fingerprint: "`SHA256:…`",
}
"""Types with a meaning of their own → their name."""


def matrix_format() -> str:
    """Return the tables of matrix.yaml: the whole document first, then each part."""
    return _document(schema.Matrix, "matrix.yaml")


def policy_format() -> str:
    """Return the tables of a policy file."""
    return _document(policy.PolicyFile, "The file")


def _document(root: Model, title: str) -> str:
    parts = list(_parts(root, set()))
    return "\n".join(_part(model, title if model is root else _title(model)) for model in parts)


def _parts(model: Model, seen: set[Model]) -> Iterator[Model]:
    """Yield a model and those that it contains, each once, in the order of the document."""
    if model in seen:
        return
    seen.add(model)
    yield model
    for hint in _hints(model).values():
        for inner in _models(hint):
            yield from _parts(inner, seen)


def _models(hint: Any) -> Iterator[Model]:
    if isinstance(hint, type) and issubclass(hint, BaseModel | schema.Facts):
        yield hint
    elif get_origin(hint) is not Literal:
        for inner in get_args(hint):
            yield from _models(inner)


def _part(model: Model, title: str) -> str:
    hints = _hints(model)
    rows = (
        (code(field.alias or name), f"{_type(hints[name])}{_default(field)}", escape(field.description or ""))
        for name, field in _fields(model).items()
    )
    summary = escape((model.__doc__ or "").partition("\n\n")[0])
    return f"## {title}\n\n{summary}\n\n{table(('key', 'value', 'meaning'), rows)}"


def _hints(model: Model) -> dict[str, Any]:
    hints = get_type_hints(model, include_extras=True)
    return {name: hints[name] for name in _fields(model)}


def _fields(model: Model) -> dict[str, FieldInfo]:
    if issubclass(model, BaseModel):
        return model.model_fields
    hints = get_type_hints(model, include_extras=True)
    return {one.name: FieldInfo.from_annotated_attribute(hints[one.name], one) for one in fields(model)}  # type: ignore[arg-type]


def _title(model: Model) -> str:
    return model.__name__


def _type(hint: Any) -> str:
    """Return a type in words, as Markdown; parts are links."""
    if name := next((name for known, name in NAMES.items() if known == hint), None):
        return name
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return ", ".join(code(str(value)) for value in arguments)
    if origin in {Union, types.UnionType}:
        return _type(next(inner for inner in arguments if inner is not type(None)))
    if origin is tuple:
        return f"list of: {_type(arguments[0])}"
    if origin is dict:
        return f"mapping of {_type(arguments[0])} to: {_type(arguments[1])}"
    if isinstance(hint, type) and issubclass(hint, BaseModel | schema.Facts):
        return f"[{_title(hint)}](#{_title(hint).lower()})"
    return {str: "text", int: "number", bool: "`true` or `false`"}.get(hint, escape(str(hint)))


def _default(field: FieldInfo) -> str:
    """Return what follows a type: that a key is required, or its default if that is more than nothing."""
    if field.is_required():
        return ", required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, timedelta):
        value = f"{value.days}d"
    return "" if not value or isinstance(value, BaseModel | schema.Facts) else f", by default {code(str(value))}"

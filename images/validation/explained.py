"""Add known failures to the event of a check's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from explain import explain

if TYPE_CHECKING:
    from typing import Any


def with_explanation(end: dict[str, Any]) -> dict[str, Any]:
    """Return the event with `explained`: the known failures in its reason, output and evidence."""
    if end["outcome"] in ("passed", "skipped"):
        return {**end, "explained": []}
    text = "\n".join([end["reason"] or "", *end["output"], *_texts(end["evidence"])])
    return {**end, "explained": [one.to_json() for one in explain(text) if one.fault != "harmless"]}


def _texts(value: Any) -> list[str]:
    """Return the strings in evidence, at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []

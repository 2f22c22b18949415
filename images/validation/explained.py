"""The end of a check, with what is known about failures that look like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from explain import explain

if TYPE_CHECKING:
    from typing import Any


def with_explanation(end: dict[str, Any]) -> dict[str, Any]:
    """The event, with `explained`: what its reason, its output and its evidence give away."""
    if end["outcome"] in ("passed", "skipped"):
        return {**end, "explained": []}
    text = "\n".join([end["reason"] or "", *end["output"], *_texts(end["evidence"])])
    return {**end, "explained": [one.to_json() for one in explain(text) if one.fault != "harmless"]}


def _texts(value: Any) -> list[str]:
    """The strings in evidence, at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in _texts(item)] if isinstance(value, list) else []

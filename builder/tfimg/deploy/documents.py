"""YAML that every reader understands alike.

Readers differ in what they take for something else than text: PyYAML and ruamel know YAML 1.1 or 1.2, go-yaml, which
kubectl and Compose use, a mixture of both (`1e3` and `0o14` are numbers, `y` may be a boolean). So every text that is
not a plain word is quoted, in ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

PLAIN = re.compile(r"/?[A-Za-z][A-Za-z0-9]*(?:[./_-][A-Za-z0-9]+)*")
"""Words that no reader takes for a number, a date or a mark of YAML."""

SPECIAL = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"}
"""Except these, which are booleans, nothing, or numbers in one version of YAML or another."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    """Writes lists indented, as Kubernetes' documentation does, and nothing as a reference to another place."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    is_plain = PLAIN.fullmatch(text) and text.lower() not in SPECIAL
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Dumper.add_representer(str, _represent_text)


def dump_documents(documents: Iterable[dict[str, Any]]) -> str:
    """Return documents of dictionaries, lists, texts, integers and booleans as one YAML file."""
    return "---\n".join(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=float("inf")) for document in documents
    )

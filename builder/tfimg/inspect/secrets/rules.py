"""Rules for secrets that `tfimg.inspect.secrets.tokens` does not find, and names of files (rules.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

Kind = Literal[
    "certificate", "proxy", "index", "mirror", "credential", "private key", "token", "credential file", "unread"
]
"""Kind of a finding; `unread` is a part of an image that could not be read completely."""

MAX_MATCH_BYTES = 2048
"""Maximum length of a match: no rule repeats without a bound."""

PLACEHOLDER = (
    r"(?:user(?:name)?|pass(?:word|wd)?|pw|pwd|secret|token|auth|key|foo|bar|x+|changeme|test|me"
    r"|[^@]*[{}$%\[\]*][^@]*)"
)
"""Placeholders for passwords in documentation; a percent sign is a format's or, in a URL, an escape."""

EXAMPLE_HOST = r"(?:[\w.-]*\.)?(?:example(?:\.\w+)?|invalid|localhost|host(?:name)?(?:\.com)?|127\.0\.0\.1)(?![\w-])"
"""Reserved hosts (RFC 2606) and loopback."""

PLACEHOLDER_URL = re.compile(f"(?is)[^@]*(?::{PLACEHOLDER}@.*|@{EXAMPLE_HOST}.*)".encode())


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A pattern to search for, in the subset that Python's `re` and Vectorscan share: no lookaround.

    `more` matches the optional rest of the secret. With `whole`, no letter or digit may adjoin the match. A match that
    `harmless` matches completely is not a finding.
    """

    kind: Kind
    what: str
    pattern: bytes
    more: bytes = b""
    whole: bool = False
    caseless: bool = False
    harmless: bytes = b""


def _load_rule(data: Mapping[str, Any]) -> Rule:
    forms = {name: data[name].encode() for name in ("pattern", "more") if name in data}
    return Rule(**{**data, **forms, "harmless": data.get("harmless", "").replace("PLACEHOLDER", PLACEHOLDER).encode()})


_DATA = tomllib.loads(files("tfimg.inspect.secrets").joinpath("rules.toml").read_text("utf-8"))
RULES = tuple(map(_load_rule, _DATA["rules"]))
SETTINGS = tuple(map(_load_rule, _DATA["settings"]))
FILES: Mapping[str, str] = _DATA["files"]
PUBLIC: Mapping[str, Kind] = _DATA["public"]
_FILE_FORMS = tuple((re.compile(form), "/" in form, what) for form, what in FILES.items())


def classify_file_name(path: str) -> str | None:
    """Return the contents of a credential file by its path in a layer; None for other files."""
    name = path.rpartition("/")[2]
    return next((what for form, whole, what in _FILE_FORMS if form.fullmatch(path if whole else name)), None)


def is_public(path: str, kind: Kind) -> bool:
    """Return whether a file of this path is public with a finding of this kind."""
    return any(known == kind and re.fullmatch(form, path) for form, known in PUBLIC.items())

"""Search the JSON documents of an image: manifests, configurations, attestations."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from functools import cache

from tfimg.core.documents import InvalidDocument, parse_json
from tfimg.inspect.limits import UnreadableError
from tfimg.inspect.secrets.findings import Place, SecretFinding
from tfimg.inspect.secrets.rules import RULES, SETTINGS, Rule
from tfimg.inspect.secrets.search import Match, Search, StreamSearch
from tfimg.inspect.secrets.tokens import TokenSearch

PLACES: tuple[tuple[tuple[str, ...], Place], ...] = (
    (("config", "Env"), "environment"),
    (("config", "Labels"), "label"),
    (("history",), "history"),
    (("annotations",), "annotation"),
)
"""Beginnings of paths in an image's configuration and manifest (image specification, config.md)."""


class Searches:
    """Compiled rules: those for every byte of an image, and those for documents alone."""

    def __init__(self, secrets: Sequence[Rule]) -> None:
        self.everywhere = Search([*secrets, *RULES], TokenSearch())
        self.documents = _settings_search()


@cache
def _settings_search() -> Search:
    return Search(SETTINGS)


def search_document(content: bytes, searches: Searches) -> Sequence[SecretFinding]:
    """Search every text of a JSON document, and its bytes. Raises `UnreadableError`.

    The bytes count because parsers return only one value of a name that occurs twice.
    """
    try:
        document = parse_json(content)
    except InvalidDocument as error:
        raise UnreadableError(f"it is not a readable JSON document: {error}") from None
    found: dict[SecretFinding, None] = {}
    for path, text in _texts(document, ()):
        encoded = text.encode("utf-8", "surrogatepass")
        for match in (*_matches(encoded, searches.everywhere), *_matches(encoded, searches.documents)):
            found[_finding(match, _place(path), _displayed_path(path, text))] = None
    known = {(finding.kind, finding.what) for finding in found}
    for match in _matches(content, searches.everywhere):
        if (match.kind, match.what) not in known:
            found[_finding(match, "document", "")] = None
    return tuple(found)


def _matches(text: bytes, search: Search) -> Sequence[Match]:
    stream = StreamSearch(search)
    stream.feed(text)
    return stream.close()


def _finding(match: Match, place: Place, path: str) -> SecretFinding:
    return SecretFinding(place=place, path=path, kind=match.kind, what=match.what, shown=match.shown)


def _texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str):
                yield (*path, name), f"{name}={inner}"
                yield from (((*path, name), text) for text in _embedded(name, inner))
            else:
                yield (*path, name), name
                yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*path, str(number)))
    elif isinstance(value, str):
        yield path, value


def _embedded(name: str, value: str) -> Iterator[str]:
    """Yield the content of a descriptor's `data` (image specification, descriptor.md)."""
    if name == "data":
        try:
            yield base64.b64decode(value).decode("latin-1")
        except (binascii.Error, ValueError):
            return


def _place(path: tuple[str, ...]) -> Place:
    for beginning, place in PLACES:
        if path[: len(beginning)] == beginning or (place == "annotation" and "annotations" in path):
            return place
    return "configuration"


def _displayed_path(path: tuple[str, ...], text: str) -> str:
    """Return `PATH` for a variable, `title` for a label, `3.created_by` for a step; never the value."""
    if path[:2] == ("config", "Env"):
        return text.partition("=")[0]
    for beginning, _ in PLACES:
        if path[: len(beginning)] == beginning:
            return ".".join(path[len(beginning) :])
    return ".".join(path)

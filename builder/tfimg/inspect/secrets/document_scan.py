"""Search the JSON documents of an image: manifests, configurations, attestations."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import suppress

from tfimg.core.documents import InvalidDocument, parse_json
from tfimg.inspect.limits import UnreadableError
from tfimg.inspect.secrets.findings import Place, SecretFinding
from tfimg.inspect.secrets.search import Match, Search

PLACES: tuple[tuple[tuple[str, ...], Place], ...] = (
    (("config", "Labels"), "label"),
    (("history",), "history"),
    (("annotations",), "annotation"),
)
"""Beginnings of paths in an image's configuration and manifest (image specification, config.md)."""


def search_document(content: bytes, search: Search) -> Sequence[SecretFinding]:
    """Search every text of a JSON document, and its bytes. Raises `UnreadableError`.

    The bytes count because parsers return only one value of a name that occurs twice.
    """
    try:
        document = parse_json(content)
    except InvalidDocument as error:
        raise UnreadableError(f"it is not a readable JSON document: {error}") from None
    found: dict[SecretFinding, None] = {}
    for path, text in _list_texts(document, ()):
        for match in search.matches(text.encode("utf-8", "surrogatepass")):
            found[_make_finding(match, *_locate(path, text))] = None
    known = {(finding.kind, finding.what) for finding in found}
    for match in search.matches(content):
        if (match.secret.kind, match.secret.what) not in known:
            found[_make_finding(match, "document", "")] = None
    return tuple(found)


def _make_finding(match: Match, place: Place, path: str) -> SecretFinding:
    secret = match.secret
    return SecretFinding(place=place, path=path, kind=secret.kind, what=secret.what, form=match.form)


def _list_texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            here = (*path, name)
            if isinstance(inner, str):
                yield here, f"{name}={inner}"
                if name == "data":  # the content of a descriptor (image specification, descriptor.md)
                    with suppress(ValueError):
                        yield here, base64.b64decode(inner).decode("latin-1")
            else:
                yield here, name
                yield from _list_texts(inner, here)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _list_texts(inner, (*path, str(number)))
    elif isinstance(value, str):
        yield path, value


def _locate(path: tuple[str, ...], text: str) -> tuple[Place, str]:
    """Return a text's place and path: `PATH` of a variable, `title` of a label, `3.created_by` of a step."""
    if path[:2] == ("config", "Env"):
        return "environment", text.partition("=")[0]  # never the value
    for beginning, place in PLACES:
        if path[: len(beginning)] == beginning:
            return place, ".".join(path[len(beginning) :])
    return "annotation" if "annotations" in path else "configuration", ".".join(path)

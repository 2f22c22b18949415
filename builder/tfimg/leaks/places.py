"""Where to look in an image: in the files of its layers, and in every text of its documents."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tfimg.contents.unpack import Places, unpacked, walk
from tfimg.leaks.rules import Kind, named_like_a_secret, public
from tfimg.leaks.search import MOST, Passing, Search

Place = Literal["layer", "environment", "label", "history", "annotation", "configuration", "document"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Something that must not be in an image: where in it, and what. `path` is a file's, or a text's in a document."""

    place: Place
    path: str
    kind: Kind
    what: str
    shown: str


def in_layer(pieces: Iterator[bytes], search: Search, on_bytes: Callable[[int], None]) -> Sequence[Trace]:
    """Search every byte of a layer, and its files' names; `on_bytes` is told how many were unpacked.

    What lies compressed inside a file (a zip, a wheel, a `.gz`) is not unpacked. Raises `TamperedError`.
    """
    passing, places = Passing(search), Places()
    named: list[Trace] = []

    def watched() -> Iterator[bytes]:
        for piece in unpacked(pieces):
            passing.feed(piece)
            on_bytes(len(piece))
            yield piece

    def on_member(member: tarfile.TarInfo) -> None:
        places.add(member)
        path = member.name.removeprefix("./")
        if member.isfile() and member.size and len(named) < MOST and (what := named_like_a_secret(path)):
            named.append(_named(path, what, member.size))

    walk(watched(), on_member)
    found = (
        Trace(place="layer", path=places.at(one.offset), kind=one.kind, what=one.what, shown=one.shown)
        for one in passing.close()
    )
    return tuple(one for one in dict.fromkeys([*named, *found]) if not public(one.path, one.kind))


def _named(path: str, what: str, size: int) -> Trace:
    return Trace(place="layer", path=path, kind="credential file", what=what, shown=f"({size} bytes)")


PLACES: tuple[tuple[tuple[str, ...], Place], ...] = (
    (("config", "Env"), "environment"),
    (("config", "Labels"), "label"),
    (("history",), "history"),
    (("annotations",), "annotation"),
)
"""The beginnings of paths in an image's configuration, and in a manifest (image specification, config.md)."""


def in_document(document: object, search: Search) -> Sequence[Trace]:
    """Search every text of a JSON document, with the name that it has there."""
    found = []
    for path, text in _texts(document, ()):
        passing = Passing(search)
        passing.feed(text.encode("utf-8", "surrogatepass"))
        for match in passing.close():
            trace = Trace(
                place=_place(path),
                path=_shown(path, text),
                kind=match.kind,
                what=match.what,
                shown=match.shown,
            )
            found.append(trace)
    return tuple(dict.fromkeys(found))


def _texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str):
                yield (*path, name), f"{name}={inner}"
            else:
                yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*path, str(number)))
    elif isinstance(value, str):
        yield path, value


def _place(path: tuple[str, ...]) -> Place:
    for beginning, place in PLACES:
        if path[: len(beginning)] == beginning or (place == "annotation" and place + "s" in path):
            return place
    return "configuration"


def _shown(path: tuple[str, ...], text: str) -> str:
    """`PATH` of a variable, `title` of a label, `3.created_by` of a step; never what it says."""
    if path[:2] == ("config", "Env"):
        return text.partition("=")[0]
    for beginning, _ in PLACES:
        if path[: len(beginning)] == beginning:
            return ".".join(path[len(beginning) :])
    return ".".join(path)


def read_document(content: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for what is none."""
    try:
        document = json.loads(content)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None

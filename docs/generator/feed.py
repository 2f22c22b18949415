"""Dates of the images: a page's table, `releases.json` and an Atom feed, which the built site publishes.

The feed has an entry for each TensorFlow release and one for each end of security fixes that is over or near. It is
made from the committed facts and records alone: the same checkout gives the same feed, apart from ends that come near.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5
from xml.etree import ElementTree

from generator.markdown import code, escape, table
from generator.program import project
from tfimg.core.levels import Level
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.support_ends import format_supported_until

NEAR = timedelta(days=90)
"""Time before an end from which the feed names it."""

ATOM = "http://www.w3.org/2005/Atom"
"""Namespace of RFC 4287, which says what a feed and an entry must have."""

PAGE = "reference/dates.html"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An event: what it is about (stable, for its identity), a title, the day, and text."""

    subject: str
    title: str
    day: date
    text: str


def dates() -> str:
    """Return release day and first end of each image for amd64, the newest release first."""
    today = project().services.today
    rows = []
    for spec in reversed([spec for spec in project().specs if spec.platform == PLATFORMS[0]]):
        first = spec.support_ends[0] if spec.support_ends else None
        until = format_supported_until(first.ends.isoformat(), today) if first else "no day is published"
        rows.append(
            (code(spec.identifier), spec.released.isoformat(), until or "", escape(first.subject) if first else "")
        )
    return table(("image", "released", "fixes until", "which end first"), rows)


def write_feed(folder: Path) -> None:
    """Write `releases.json` and `releases.atom` into a built site."""
    found = project()
    images = found.describe_all(found.specs)
    document = {"repository": found.repository, "as_of": found.services.today.isoformat(), "images": images}
    (folder / "releases.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    entries = sorted([*_list_releases(), *_list_ends(found.services.today)], key=lambda entry: entry.day, reverse=True)
    (folder / "releases.atom").write_bytes(render_atom(entries, found.repository))


def render_atom(entries: list[Entry], repository: str) -> bytes:
    """Return an Atom feed, the newest entry first."""
    feed = ElementTree.Element("feed", xmlns=ATOM)
    _add(feed, "id", uuid5(NAMESPACE_URL, repository).urn)
    _add(feed, "title", f"Images of {repository}")
    _add(feed, "updated", f"{max(entry.day for entry in entries)}T00:00:00Z")
    _add(_add(feed, "author"), "name", "tfimg")
    _add(feed, "link", rel="self", href="releases.atom")
    for entry in entries:
        element = _add(feed, "entry")
        _add(element, "id", uuid5(NAMESPACE_URL, f"{repository} {entry.subject}").urn)
        _add(element, "title", entry.title)
        _add(element, "updated", f"{entry.day}T00:00:00Z")
        _add(element, "link", rel="alternate", href=PAGE)
        _add(element, "content", entry.text, type="text")
    ElementTree.indent(feed)
    return bytes(ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True))


def _add(parent: ElementTree.Element, name: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, name, attributes)
    element.text = text
    return element


def _list_releases() -> Iterator[Entry]:
    found = project()
    for release, group in groupby(found.specs, key=lambda spec: spec.tensorflow):
        specs = list(group)
        proven = [status for spec in specs if (status := found.statuses[spec.identifier]).level != Level.DECLARED]
        days = [specs[0].released, *(date.fromisoformat(status.date) for status in proven if status.date)]
        lines = [_describe(spec) for spec in specs]
        yield Entry(
            subject=f"release {release}",
            title=f"TensorFlow {release}: {len(proven)} of {len(specs)} images proven",
            day=max(days),
            text="\n".join([f"Released on {specs[0].released}.", *lines]),
        )


def _describe(spec: ImageSpec) -> str:
    status = project().statuses[spec.identifier]
    until = f", fixes until {spec.support_ends[0].ends} ({spec.support_ends[0].subject})" if spec.support_ends else ""
    proven = f", proven on {status.date}" if status.date else ""
    return f"{spec.identifier}: {status.level}{proven}{until}"


def _list_ends(today: date) -> Iterator[Entry]:
    images: dict[tuple[str, date, str], list[str]] = {}
    for spec in project().specs:
        for end in spec.support_ends:
            if end.ends - NEAR <= today:
                images.setdefault((end.subject, end.ends, end.source), []).append(spec.identifier)
    for (subject, ends, source), identifiers in images.items():
        yield Entry(
            subject=f"end {subject}",
            title=f"{subject}: the last day of security fixes is {ends}",
            day=ends - NEAR,
            text="\n".join([f"As published in {source}. It concerns:", *identifiers]),
        )

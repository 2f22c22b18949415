"""The page of published images: from a file of `tfimg history --published`, else from the committed evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from packaging.version import InvalidVersion, Version
from sphinx.errors import ConfigError

from generator.matrix import report_links
from generator.program import project
from tfimg.core.documents import MAX_BYTES
from tfimg.core.errors import FileError
from tfimg.core.files import read_limited
from tfimg.core.levels import LEVEL_MEANINGS, LEVELS, Level
from tfimg.core.text import format_size
from tfimg.evidence.policy import DEFAULT_MAX_AGE
from tfimg.evidence.statement import format_time
from tfimg.matrix.schema import DEVICES, Device, minor_version
from tfimg.publish.published import PublishedImage, PublishedRepository, parse_published
from tfimg.recipe.describe import Status, format_request

FOLDER = Path(__file__).parent

_source: list[str] = []


def read_from(file: str) -> None:
    """Make the page from a file of published images; from the committed evidence if it is empty."""
    _source[:] = [file] if file else []


@dataclass(frozen=True, kw_only=True)
class Row:
    """An image of the page. `time` is the end of its test; `more` are the facts below it, `copied` those to copy."""

    anchor: str
    identifier: str
    tensorflow: str
    python: str
    device: Device
    level: Level
    time: str
    size: int | None = None
    digest: str | None = None
    withdrawn: bool = False
    earlier: bool = False
    report: str | None = None
    copied: dict[str, str]
    more: dict[str, str]


def published() -> str:
    """Return the images as HTML in Markdown. Raises `ConfigError` for a file that is not a list of images."""
    return embed_html(make_part(_read()))


def make_part(found: PublishedRepository | None) -> str:
    """Return published images as a part of an HTML page, or those of the committed evidence."""
    rows = sorted(_published_rows(found) if found else _committed_rows(), key=_order, reverse=True)
    return _render(found, rows)


def embed_html(part: str) -> str:
    """Return HTML as a block of Markdown that no text in it can end."""
    fence = "`" * max(4, 1 + max(map(len, re.findall("`+", part)), default=0))
    return f"{fence}{{raw}} html\n{part}\n{fence}\n"


def _read() -> PublishedRepository | None:
    if not _source:
        return None
    (file,) = _source
    try:
        content = read_limited(file, MAX_BYTES, next_step="Name the file of `tfimg history --published`.")
        return parse_published(content, source=file)
    except FileError as error:
        raise ConfigError(str(error)) from None


def _published_rows(found: PublishedRepository) -> Iterable[Row]:
    newest = _current_builds(found.images)
    for image in found.images:
        name = f"{found.repository}@{image.digest}"
        more = {
            "tags": ", ".join(image.tags),
            "withdrawn": image.withdrawn or "",
            "tested on": _describe_machine(image),
            "signed by": image.signer,
        }
        yield Row(
            anchor=image.build,
            identifier=image.identifier,
            tensorflow=image.tensorflow,
            python=image.python,
            device=image.device,
            level=image.level,
            time=format_time(image.tested),
            size=image.size,
            digest=image.digest,
            withdrawn=image.withdrawn is not None,
            earlier=newest[image.identifier] != image.build,
            copied={
                "digest": image.digest,
                "pull": f"docker pull {name}",
                "verify": f"tfimg verify {name} --public-key tfimg.pub",
            },
            more={title: text for title, text in more.items() if text},
        )


def _describe_machine(proof: PublishedImage | Status) -> str:
    """Return what decides about a proof: the accelerator, or that there was no processor of the image's kind."""
    emulator = "an emulator" if proof.emulated else None
    return ", ".join(filter(None, (proof.gpu, proof.driver and f"driver {proof.driver}", emulator)))


def _current_builds(images: Sequence[PublishedImage]) -> dict[str, str]:
    """Return the build of each identifier: the one that its exact tag points to, else the last tested one."""
    ranked = sorted(images, key=lambda image: (image.identifier in image.tags, image.tested))
    return {image.identifier: image.build for image in ranked}


def _committed_rows() -> Iterable[Row]:
    found, links = project(), report_links()
    for spec in found.specs:
        status = found.statuses[spec.identifier]
        if status.level == "declared" or not status.date:
            continue
        tested_on = _describe_machine(status)
        yield Row(
            anchor=spec.identifier,
            identifier=spec.identifier,
            tensorflow=spec.tensorflow,
            python=spec.python,
            device=spec.device,
            level=status.level,
            time=status.date,
            report=links.get(spec.identifier),
            copied={"build": f"tfimg build {format_request(spec)}"},
            more={"tested on": tested_on} if tested_on else {},
        )


def _order(row: Row) -> tuple[Any, ...]:
    return _version(row.tensorflow), -DEVICES.index(row.device), _version(row.python), not row.earlier, row.time


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _render(found: PublishedRepository | None, rows: Sequence[Row]) -> str:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FileSystemLoader(FOLDER),
    )
    environment.filters |= {"size": format_size, "time": format_time}
    choices = {
        "tensorflow": list(dict.fromkeys(row.tensorflow for row in rows)),
        "minor": list(dict.fromkeys(minor_version(row.tensorflow) for row in rows)),
        "python": sorted({row.python for row in rows}, key=_version, reverse=True),
        "device": [device for device in DEVICES if any(row.device == device for row in rows)],
        "level": [level for level in reversed(LEVELS) if any(row.level == level for row in rows)],
    }
    return environment.get_template("published.html.j2").render(
        found=found,
        rows=rows,
        choices=choices,
        meanings=LEVEL_MEANINGS,
        max_age=DEFAULT_MAX_AGE.days,
        style=files("tfimg.recipe").joinpath("matrix.css").read_text("utf-8")
        + (FOLDER / "published.css").read_text("utf-8"),
        script=(FOLDER / "published.js").read_text("utf-8"),
    )

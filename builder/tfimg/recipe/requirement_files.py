"""Read requirement files: pip's own format here, other forms with `tfimg.recipe.project_files`.

pip's format is parsed by pip-requirements-parser, which is pip's own code and reports every line; PyPA's pip-audit
uses it too.
"""

from __future__ import annotations

import codecs
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfimg.core.errors import UsageError
from tfimg.core.text import decode_text, escape_unprintable
from tfimg.recipe.project_files import CONDA_TABLE, find_form, make_source, parse_conda_list, parse_selection
from tfimg.recipe.requirements import (
    MAX_CONSTRAINTS,
    MAX_REQUIREMENT,
    WITH,
    WRITE_NAMES,
    Item,
    Note,
    Problem,
    Requested,
    Setting,
    Source,
    Wanted,
    collect,
    hide_secrets,
    parse_plain_lines,
    parse_requirement,
    refuse_line,
)

if TYPE_CHECKING:
    from pip_requirements_parser import InstallRequirement

MAX_FILES = 50  # files of one request, with those that they include
MAX_DEPTH = 10  # includes within includes
MAX_ITEMS = 2 * MAX_CONSTRAINTS  # requirements, constraints, options and problems of all files
MAX_CHARACTERS = 4 << 20  # of all files; one with 300 packages and their hashes has 100,000
MAX_LONG_LINES = 40  # requirements of the greatest length, each of which takes 0.1 s, or more shorter ones
MAX_BLANKS = 1000  # blanks in a row, for which the parser takes quadratic time

_UNCOUNTED = re.compile(r"(?:^|\s)(?:#|--hash)")
"""Begins what the parser takes away, or reads in linear time; for other parts it takes the square of their length."""

_LINE = re.compile(r"\s*(?!#|--hash)\S")  # begins a requirement, an option, or another part of one

_BLANKS = re.compile(r"(?:[^\S\r\n]|\\\r?\n|\\)+")

ReadFile = Callable[[str], bytes]
"""Name of a file → its content. Raises `OSError`, or `UsageError` for one that is too large."""

LEFT_OUT = {
    "no_index": "--no-index has no effect: the machine's package index and --find-links serve packages",
    "trusted_hosts": "--trusted-host has no effect: PIP_TRUSTED_HOST or UV_INSECURE_HOST of the machine has",
    "pre": "--pre has no effect: a prerelease is taken where a version names one, such as pandas>=3.0rc1",
    "prefer_binary": "--prefer-binary has no effect: an image takes wheels alone",
    "only_binary": "--only-binary has no effect: an image takes wheels alone",
    "no_binary": "--no-binary has no effect: an image takes wheels alone, as nothing is compiled while it is built",
    "use_features": "--use-feature has no effect: it is for pip",
}
"""Options without effect → why, as a note."""

INDEX_OPTIONS = {"index_url": "--index-url", "extra_index_urls": "--extra-index-url", "find_links": "--find-links"}


def read_requested(names: Sequence[str], texts: Sequence[str], read: ReadFile) -> Requested:
    """Return what requirement files in any form, and the texts of --with, ask for together.

    What is wrong in them is a problem of the result: `Requested.require_valid` raises it. Raises `UsageError` for too
    much text, and as `read` for a file that is named.
    """
    reader = _Reader(read)
    items: list[Item] = []
    for item in (item for name in names for item in reader.read_file(name)):
        items.append(item)
        if len(items) > MAX_ITEMS:
            raise _too_many()
    items += [item for text in texts for item in parse_plain_lines(text, source=WITH)]
    return collect(items, needs_hashes=reader.needs_hashes)


@dataclass
class _Reader:
    """Reads files and what they include, within limits."""

    read: ReadFile
    needs_hashes: bool = False
    seen: set[tuple[str, bool]] = field(default_factory=set)
    characters: int = 0

    def read_file(self, name: str) -> Iterator[Item]:
        """Yield what a file that the user names asks for."""
        selection = parse_selection(name)
        form = find_form(selection.path)
        text = self._read_text(selection.path)
        if form:
            yield from form(text, selection, partial(self._read_lines, name=selection.path, stack=()))
        elif CONDA_TABLE.search(text):
            yield from parse_conda_list(text, selection)
        else:
            shown = "standard input" if name == "-" else name
            yield from self._read_lines(text, None, name=shown, stack=(shown,))

    def _read_text(self, name: str) -> str:
        text = decode_text(self.read(name))
        self.characters += len(text)
        if self.characters > MAX_CHARACTERS:
            raise UsageError(
                f"{name} and the files before it have more than {MAX_CHARACTERS >> 20} Mi characters.",
                next_step="Name fewer files.",
            )
        return text

    def _read_lines(
        self,
        text: str,
        locate: Callable[[int], str] | None,
        *,
        name: str,
        stack: tuple[str, ...],
        is_constraint: bool = False,
    ) -> Iterator[Item]:
        """Yield what a text in pip's format asks for; `locate` says where a line of it stands, if not in the file."""
        if any(len(found[0]) > MAX_BLANKS for found in _BLANKS.finditer(text)):
            yield Problem(place=name, what=f"more than {MAX_BLANKS} blanks in a row", step="Remove them.")
            return
        if number := _find_long_line(text):
            what = (
                f"line {number} has a requirement of more than {MAX_REQUIREMENT} characters, or one of many long ones"
            )
            yield Problem(place=name, what=what, step="Write a requirement a line.")
            return
        # Before they are parsed, which takes 0.2 ms for each.
        if sum(1 for line in text.splitlines() if _LINE.match(line)) > MAX_ITEMS:
            raise _too_many()
        ends = _find_ends(text)
        parsed = _parse_lines(text)
        found = [*parsed.requirements, *parsed.options, *parsed.invalid_lines]
        for line in sorted(found, key=lambda one: one.line_number):
            first = line.line_number
            lines = f"lines {first}-{ends[first]}" if first in ends else f"line {first}"
            place = locate(first) if locate else f"{name}, {lines}"
            if hasattr(line, "error_message"):
                yield _refuse_invalid(place, line)
            elif hasattr(line, "hash_options"):
                yield from _convert(line, place, is_constraint)
                self.needs_hashes |= bool(line.hash_options)
            else:
                yield from self._read_options(line.options, place, name, (stack, is_constraint))

    def _read_options(
        self, options: dict[str, Any], place: str, name: str, where: tuple[tuple[str, ...], bool]
    ) -> Iterator[Item]:
        if not options:
            yield Problem(place=place, what="an option without a requirement", step=WRITE_NAMES)
        for option, value in options.items():
            if option in LEFT_OUT:
                yield Note(why=LEFT_OUT[option], what=place)
            elif option == "require_hashes":
                self.needs_hashes = True
            elif option in INDEX_OPTIONS:
                for one in [value] if isinstance(value, str) else value:
                    is_folder = option == "find_links" and "://" not in one
                    address = os.path.join(os.path.dirname(name), one) if is_folder else one  # noqa: PTH118, PTH120
                    yield Setting(option=INDEX_OPTIONS[option], value=address, place=place)  # type: ignore[arg-type]
            elif option in ("requirements", "constraints"):
                for one in value:
                    yield from self._include(one, place, name, where[0], where[1] or option == "constraints")

    def _include(
        self, name: str, place: str, parent: str, stack: tuple[str, ...], is_constraint: bool
    ) -> Iterator[Item]:
        """Yield what an included file asks for: relative to the file that names it, as pip reads it."""
        if "://" in name:
            shown = hide_secrets(name)[:200]
            step = "Download included files, and name them by their path."
            yield Problem(place=place, what=f"{shown!r} is an address, not a file", step=step)
            return
        path = os.path.normpath(os.path.join(os.path.dirname(parent), name))  # noqa: PTH118, PTH120
        if path in map(os.path.normpath, stack):
            yield Problem(place=place, what=f"{path} includes itself", step="Remove one of the two lines.")
            return
        if (path, is_constraint) in self.seen:
            return
        if len(stack) >= MAX_DEPTH or len(self.seen) >= MAX_FILES:
            raise UsageError(
                f"{place}: more than {MAX_FILES} files are included, or more than {MAX_DEPTH} within each other.",
                next_step="Name fewer.",
            )
        self.seen.add((path, is_constraint))
        try:
            text = self._read_text(path)
        except OSError as error:
            what = f"{escape_unprintable(path)} cannot be read: {error.strerror or error}"
            yield Problem(place=place, what=what, step="Check the paths, which are relative to the file.")
            return
        yield from self._read_lines(text, None, name=path, stack=(*stack, path), is_constraint=is_constraint)


def _too_many() -> UsageError:
    return UsageError(f"The files have more than {MAX_ITEMS} requirements.", next_step="Name fewer.")


def _find_long_line(text: str) -> int | None:
    """Return the line in which a requirement, or many together, get too long; hashes and comments do not count."""
    length, cost = 0, 0
    for number, line in enumerate(text.splitlines(), start=1):
        length += len(_UNCOUNTED.split(line, maxsplit=1)[0])
        if length > MAX_REQUIREMENT or cost + length**2 > MAX_LONG_LINES * MAX_REQUIREMENT**2:
            return number
        if not line.endswith("\\"):
            length, cost = 0, cost + length**2
    return None


def _find_ends(text: str) -> dict[int, int]:
    """Return the last line of each requirement that goes on after a backslash, by its first line."""
    ends, first = {}, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            first = first or number
        elif first:
            ends[first], first = number, 0
    return ends


def _parse_lines(text: str) -> Any:
    """Parse a text in pip's format. The parser takes files only."""
    from pip_requirements_parser import RequirementsFile

    with tempfile.TemporaryDirectory(prefix="tfimg-") as folder:
        file = Path(folder, "requirements.txt")
        # With a byte order mark, so that no comment chooses an encoding (PEP 263).
        file.write_bytes(codecs.BOM_UTF8 + text.encode(errors="replace"))
        return RequirementsFile.from_file(str(file))


def _refuse_invalid(place: str, line: Any) -> Problem:
    text = str(line.requirement_line.line)
    problem = refuse_line(place, text)
    if found := re.search(r"no such option: (-\S+)", str(line.error_message)):
        return Problem(place=place, what=f"{found[1][:100]!r} is not an option of requirement files", step=WRITE_NAMES)
    if re.fullmatch(r"[\w.-]+=[^=\s]+(=[^=\s]+)?", text):
        step = "Compare versions with ==, as in pandas==2.2.1."
        return Problem(place=place, what=problem.what, step=step)
    return problem


_CONDA_PATH = re.compile(r"_\d{9,}(/|$)|/croot/|/feedstock_root/|/conda-bld/")
"""Paths of the machines that build conda's packages, which `pip freeze` repeats."""


def _convert(line: InstallRequirement, place: str, is_constraint: bool) -> Iterator[Item]:
    """Yield the requirement of a line, or its source."""
    text = str(line.requirement_line.line)
    if len(line.requirement_line.line.partition(" --hash")[0]) > MAX_REQUIREMENT:
        yield refuse_line(place, text)
        return
    marker = f"; {line.marker}" if line.marker else ""
    if line.link is None:
        requirement = line.req
        requirement.marker = None
        if parse_requirement(f"{requirement}{marker}") is None:
            yield refuse_line(place, text)
            return
        stated = [one.removeprefix("sha256:").lower() for one in line.hash_options if one.startswith("sha256:")]
        if line.hash_options and not stated:
            step = "State SHA-256, which is what indexes and locks have: `pip hash FILE.whl` prints it."
            yield Problem(place=place, what=f"{requirement} has hashes, and none is a SHA-256", step=step)
        yield Wanted(text=f"{requirement}{marker}", place=place, hashes=frozenset(stated), is_constraint=is_constraint)
    elif line.req and line.link.scheme == "file" and _CONDA_PATH.search(line.link.url):
        yield Note(why="The name alone is taken of paths of conda's machine", what=f"{line.req.name} ({place})")
        yield Wanted(text=f"{line.req.name}{marker}", place=place, is_constraint=is_constraint)
    else:
        yield _make_source(line, place)


def _make_source(line: InstallRequirement, place: str) -> Source:
    url, name = str(line.link.url), line.req.name if line.req else None
    if "/" not in url and not url.startswith("."):
        url = f"./{url}"  # `pip wheel` would take it for the name of a package
    marker = str(line.marker) if line.marker else None
    extras = tuple(sorted(line.req.extras if line.req else line.extras))
    return make_source(url, line=place, name=name, marker=marker, extras=extras, is_editable=bool(line.is_editable))

"""What a user asks for on top of an image: requirements in one form, and what of them an image takes.

`tfimg.recipe.requirement_files` reads files into these values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlunsplit

from packaging.markers import Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import LockError, NetworkError, RequirementConflict, UsageError
from tfimg.core.text import escape_unprintable, list_first, split_url
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.schema import PROCESSORS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import Lock, LockedPackage, read_packages

if TYPE_CHECKING:
    from tfimg.index.client import Index

MAX_REQUIREMENTS = 500  # requirements of one image. What people freeze from a large environment has 300

MAX_CONSTRAINTS = 5000  # Airflow's list of constraints has 800

MAX_REQUIREMENT = 4000
"""Characters of a requirement: a version of 4300 digits cannot be compared. Markers of locks have up to 2000."""

MAX_PATCH = 30  # patch releases of a Python; 3.9 has 26
MAX_PROBLEMS = 60  # problems in one message
MAX_NAMES = 40  # packages in one note
MAX_PAGES = 8  # pages of an index that are read at once

_SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,80}(=[0-9A-Za-z.+:~-]{1,100})?")
"""Name of a Debian package and a version (Debian policy, 5.6.7 and 5.6.12)."""

TENSORFLOW_NAMES = frozenset({
    "tensorflow", "tensorflow-aarch64", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-gpu", "tensorflow-intel",
    "tensorflow-macos", "tensorflow-rocm", "intel-tensorflow",
})  # fmt: skip
"""Distributions of TensorFlow itself, which an image has once."""

PART_OF_TENSORFLOW = "tensorflow-io-gcs-filesystem"
"""What TensorFlow requires in another version for each system: a freeze of Windows pins 0.31.0."""

NIGHTLY_NAMES = frozenset({"tf-nightly", "tf-nightly-cpu", "tf-nightly-gpu", "tf-nightly-intel", "tf-nightly-macos"})

WITH = "--with"
"""The place of requirements of the command line."""

WRITE_NAMES = "Write names with versions; wheels of your own are taken from the folder of --find-links."

NO_FORM = "Name a requirement file of pip, pyproject.toml, or a lock of pip, uv, Poetry, PDM or Pipenv."

FindImage = Callable[[str, str], str | None]
"""Name and specifier of a package → the image closest to the one at hand that is locked with it, and its version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A requirement of a file, as PEP 508 without an address.

    `is_locked`: another tool has resolved it, so that the image's own version takes its place. `is_constraint`: it
    bounds a package without asking for it.
    """

    text: str
    place: str
    hashes: frozenset[str] = frozenset()
    is_locked: bool = False
    is_constraint: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A requirement that the package index cannot serve; `line` is its place, `marker` says where it applies.

    `address` is as written, with its secrets: `hide_secrets` is for messages. `sha256` is what it states of a file,
    `extras` are those of the requirement.
    """

    kind: Literal["git", "hg", "svn", "bzr", "folder", "wheel", "archive"]
    address: str
    line: str
    name: str | None = None
    commit: str | None = None
    subdirectory: str | None = None
    marker: str | None = None
    sha256: str | None = None
    is_editable: bool = False
    extras: tuple[str, ...] = ()

    @property
    def is_certain(self) -> bool:
        """Whether it means the same content tomorrow: a whole commit, a hash, or what lies on this machine."""
        if self.kind == "git":
            return re.fullmatch("[0-9a-f]{40}", self.commit or "") is not None
        is_there = "://" not in self.address or self.address.startswith("file:")
        return self.kind in _NOUNS and (is_there or self.sha256 is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A setting of the machine that a file states: the address of an index, or where wheels are."""

    option: Literal["--index-url", "--extra-index-url", "--find-links"]
    value: str
    place: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Why a line cannot be used, in the rest of a sentence, and the next step."""

    place: str
    what: str
    step: str
    is_conflict: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Why something is left out or changed; `collect` joins what has the same reason."""

    why: str
    what: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonBound:
    """The Python that a file is for, as a specifier."""

    specifier: str
    place: str

    def allows(self, python: str) -> bool:
        """Return whether a minor such as 3.11 has a patch release that it allows."""
        bound = SpecifierSet(self.specifier)
        return any(bound.contains(f"{python}.{patch}") for patch in range(MAX_PATCH))


Item = Wanted | Source | Setting | Problem | Note | PythonBound
"""What reading yields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requested:
    """What a user asks for.

    `hashes` are the allowed SHA-256 by canonical name; with `needs_hashes` every package must have one. `notes` say
    what is left out, and why. `fit_image` finds `tensorflow`, the releases that are asked for; None if it is not named.
    `places` say where a requirement or constraint stands: `FILE, line N`. `locked` are requirements that another tool
    has resolved, `pinned` those that files state with an exact version. `pythons` are the Pythons that files are for.
    What is of a system other than Linux, or of another Python, `fit_image` leaves out.
    """

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    hashes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    needs_hashes: bool = False
    notes: tuple[str, ...] = ()
    tensorflow: SpecifierSet | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    settings: tuple[Setting, ...] = ()
    problems: tuple[Problem, ...] = ()
    locked: frozenset[str] = frozenset()
    pythons: tuple[PythonBound, ...] = ()

    @property
    def pinned(self) -> tuple[str, ...]:
        """The requirements of files with exactly one version."""
        return tuple(one for one in self.requirements if self.is_of_file(one) and is_pin(_parse(one)))

    def is_of_file(self, text: str) -> bool:
        """Return whether a requirement or constraint stands in a file, and not in --with."""
        return not self.places.get(text, WITH).startswith(WITH)

    def gives_way(self, text: str) -> bool:
        """Return whether the image's own version takes the place of a requirement or constraint."""
        is_part = canonicalize_name(_parse(text).name) == PART_OF_TENSORFLOW and self.is_of_file(text)
        return is_part or text in self.locked

    def require_valid(self) -> None:
        """Raise `RequirementConflict` if all problems are conflicts with an image, else `UsageError` with all.

        A source that is certain is no problem: a build makes its wheel.
        """
        raise_for_problems((*self.problems, *_explain_sources([one for one in self.sources if not one.is_certain])))


def collect(items: Iterable[Item], *, needs_hashes: bool = False) -> Requested:
    """Return what files ask for together; the place of a requirement is its first."""
    items = list(items)
    wanted = [item for item in items if isinstance(item, Wanted)]
    notes: dict[str, list[str]] = {}
    for note in items:
        if isinstance(note, Note):
            notes.setdefault(note.why, []).append(note.what)
    hashes: dict[str, frozenset[str]] = {}
    for one in wanted:
        if one.hashes:
            name = canonicalize_name(_parse(one.text).name)
            hashes[name] = hashes.get(name, frozenset()) | one.hashes
    requirements = tuple(dict.fromkeys(one.text for one in wanted if not one.is_constraint))
    constraints = tuple(dict.fromkeys(one.text for one in wanted if one.is_constraint))
    too_many = [
        (what, limit)
        for what, count, limit in (
            ("requirements", len(requirements), MAX_REQUIREMENTS),
            ("constraints", len(constraints), MAX_CONSTRAINTS),
        )
        if count > limit
    ]
    if too_many:
        what, limit = too_many[0]
        raise UsageError(f"{wanted[-1].place}: more than {limit} {what} in all.", next_step="Name fewer.")
    return Requested(
        requirements=requirements,
        constraints=constraints,
        hashes=hashes,
        needs_hashes=needs_hashes,
        notes=tuple(f"{why}: {list_first([*dict.fromkeys(names)], MAX_NAMES)}." for why, names in notes.items()),
        places={one.text: one.place for one in reversed(wanted)},
        sources=tuple(item for item in items if isinstance(item, Source)),
        settings=tuple(item for item in items if isinstance(item, Setting)),
        problems=tuple(item for item in items if isinstance(item, Problem)),
        locked=frozenset(one.text for one in wanted if one.is_locked),
        pythons=tuple(item for item in items if isinstance(item, PythonBound)),
    )


def parse_requirement(text: str) -> Requirement | None:
    """Return a requirement; None for what is not one, is longer than `MAX_REQUIREMENT`, or has an impossible marker."""
    if len(text) > MAX_REQUIREMENT:
        return None
    try:
        found = Requirement(text)
        if found.marker:
            _evaluate(found.marker, "3.11", "x86_64")
            Requirement(str(found))  # an escaped character of a marker may not stand in one as it is
        return found
    except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName, RecursionError):
        return None


@lru_cache(maxsize=2 * MAX_CONSTRAINTS)
def _parse(text: str) -> Requirement:
    """Parse a requirement once: each of hundreds of images is asked whether it takes it."""
    return Requirement(text)


def is_pin(requirement: Requirement) -> bool:
    """Return whether a requirement allows exactly one version."""
    only = list(requirement.specifier)
    return len(only) == 1 and only[0].operator in ("==", "===") and not only[0].version.endswith(".*")


def parse_requirements(text: str, *, source: str) -> tuple[str, ...]:
    """Return the requirements of a text with one in each line, without comments. Raises `UsageError`.

    For --with, tfimg.toml and labels of images: options and addresses are refused.
    """
    items = parse_plain_lines(text, source=source)
    raise_for_problems([item for item in items if isinstance(item, Problem)])
    found = [item.text for item in items if isinstance(item, Wanted)]
    if len(found) > MAX_REQUIREMENTS:
        raise UsageError(f"{source} has more than {MAX_REQUIREMENTS} requirements.", next_step="Name fewer.")
    return tuple(found)


def parse_plain_lines(text: str, *, source: str) -> list[Wanted | Problem]:
    """Return the requirement of each line, or its problem."""
    found: list[Wanted | Problem] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if requirement := re.sub(r"(^|\s)#.*", "", line).strip():
            place = f"{source}, line {number}"
            parsed = parse_requirement(requirement)
            usable = parsed is not None and not parsed.url
            found.append(Wanted(text=requirement, place=place) if usable else refuse_line(place, requirement))
    return found


def refuse_line(place: str, text: str) -> Problem:
    """Return the problem of a line that is not a requirement."""
    shown = hide_secrets(text)[:100]
    return Problem(place=place, what=f"{shown!r} is not a requirement such as pandas<3", step=WRITE_NAMES)


def parse_system_packages(text: str, *, source: str) -> tuple[str, ...]:
    """Return the Debian packages that a file names, one or more in a line. Raises `UsageError`."""
    found = [name for line in text.splitlines() for name in line.partition("#")[0].split()]
    for name in found:
        if not _SYSTEM_PACKAGE.fullmatch(name):
            raise UsageError(
                f"{source}: {escape_unprintable(name[:100])!r} is not the name of a Debian package.",
                next_step="Write names such as ffmpeg or libsndfile1=1.2.0-1, one in a line.",
            )
    if len(found) > MAX_REQUIREMENTS:
        raise UsageError(f"{source} has more than {MAX_REQUIREMENTS} packages.", next_step="Name fewer.")
    return tuple(dict.fromkeys(found))


# Messages

_USERINFO = re.compile(r"(?<!ssh:)//[^/\s]*@|(?<=ssh:)//[^/@\s]*:[^/\s]*@")  # that of ssh is no secret
_QUERY = re.compile(r"\?[^#\s'\"]*")


def hide_secrets(text: str) -> str:
    """Return a text without user names, passwords and queries of addresses, which may be secret."""
    return _QUERY.sub("?…", _USERINFO.sub("//", text)) if "://" in text else text


def raise_for_problems(problems: Sequence[Problem]) -> None:
    """Raise one error for problems; see `Requested.require_valid`."""
    if not problems:
        return
    error = RequirementConflict if all(problem.is_conflict for problem in problems) else UsageError
    problems = sorted(problems, key=_order)
    step = " ".join(dict.fromkeys(problem.step for problem in problems))
    if len(problems) == 1:
        raise error(f"{problems[0].place}: {problems[0].what}.", next_step=step)
    listed = [f"  {problem.place}: {problem.what}\n" for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        listed.append(f"  and {len(problems) - MAX_PROBLEMS} more\n")
    raise error(f"The requirements have {len(problems)} problems:\n{''.join(listed)}", next_step=step)


def _order(problem: Problem) -> tuple[str, int]:
    file, _, lines = problem.place.partition(", line")
    number = re.search(r"\d+", lines)
    return file, int(number[0]) if number else 0


_NOUNS = {
    "folder": "a project in a folder",
    "wheel": "a wheel",
    "archive": "a source archive",
}


def _explain_sources(sources: Sequence[Source]) -> Iterator[Problem]:
    """Yield a problem for each source that may be another one tomorrow, or that no build reads."""
    for source in sources:
        shown = hide_secrets(source.address)[:200]
        what = f"{shown!r} is {_NOUNS.get(source.kind, f'a {source.kind} repository')}"
        if source.kind == "git":
            step = "Write the whole commit behind the address, ADDRESS@COMMIT: `git ls-remote ADDRESS` shows it."
            named = f"and {source.commit!r} may mean another commit tomorrow" if source.commit else "without a commit"
            what += f", {named}"
        elif source.kind in _NOUNS:
            what += ", without a hash"
            step = "Append #sha256= and the hash of the file to the address: `sha256sum FILE` prints it."
        else:
            make = f"`pip wheel --no-deps --wheel-dir wheels {source.kind}+ADDRESS`"
            step = f"Make wheels with {make}, write NAME==VERSION in place of the address, and add --find-links wheels."
        yield Problem(place=source.line, what=what, step=step)


# What an image takes


def applies(marker: Marker | None, spec: ImageSpec) -> bool:
    """Return whether a marker, if there is one, is true in an image."""
    return marker is None or _evaluate(marker, spec.python, PROCESSORS[spec.platform])


def _evaluate(marker: Marker, python: str, processor: str) -> bool:
    from tfimg.index.client import make_environment  # half of a start's time, and labels of images have no markers

    return marker.evaluate(make_environment(python, processor))


def find_tensorflow(requested: Requested, spec: ImageSpec) -> dict[str, SpecifierSet]:
    """Return what counts in an image of TensorFlow itself, constraints too, with the releases that each allows.

    A lock that has `tensorflow` may have `tensorflow-intel` and others for other systems.
    """
    found: dict[str, SpecifierSet] = {}
    for text in (*requested.requirements, *requested.constraints):
        parsed = _parse(text)
        if canonicalize_name(parsed.name) in TENSORFLOW_NAMES and applies(parsed.marker, spec):
            # ROCm's releases have a fourth part: its own version.
            releases = re.sub(r"(\d+\.\d+\.\d+)\.\d+", r"\1", str(parsed.specifier))
            found[text] = SpecifierSet(releases)
    names = {text: canonicalize_name(_parse(text).name) for text in found if text in requested.locked}
    others = [text for text, name in names.items() if name != ALIAS and ALIAS in names.values()]
    return {text: one for text, one in found.items() if text not in others}


def allows_release(requested: Requested, spec: ImageSpec) -> bool:
    """Return whether requirements allow the TensorFlow of an image."""
    return all(one.contains(spec.tensorflow, prereleases=True) for one in find_tensorflow(requested, spec).values())


def fits_files(requested: Requested, spec: ImageSpec) -> bool:
    """Return whether an image has the TensorFlow and the Python that the files of a fitted request name."""
    is_release = requested.tensorflow is None or requested.tensorflow.contains(spec.tensorflow, prereleases=True)
    return is_release and all(one.allows(spec.python) for one in requested.pythons)


def find_differences(requested: Requested, spec: ImageSpec, lock: Lock) -> dict[str, str]:
    """Return the requirements and constraints that exclude the image's version of a package, with that version.

    Without those of TensorFlow itself, and those that another tool has resolved.
    """
    versions = {package.name: package.version for package in read_packages(lock)}
    found = {}
    for text in (*requested.requirements, *requested.constraints):
        parsed = _parse(text)
        name = canonicalize_name(parsed.name)
        if name in TENSORFLOW_NAMES or requested.gives_way(text) or not applies(parsed.marker, spec):
            continue
        version = versions.get(name)
        if version is not None and not parsed.specifier.contains(version, prereleases=True):
            found[text] = version
    return found


def fit_image(requested: Requested, spec: ImageSpec, lock: Lock, find_image: FindImage) -> Requested:
    """Return what of a request an image takes, with notes on what is left out, and problems.

    Markers are evaluated, so that none is left. TensorFlow itself and pins of what the image has are left out.
    """
    locked = {package.name: package for package in read_packages(lock)}
    kept, constraints, same, held = _divide(requested, spec, locked)
    notes = [*requested.notes, *_note_tensorflow(requested, spec)]
    notes += [
        f"{one.place} is for Python {one.specifier}, and the image has Python {spec.python}."
        for one in requested.pythons
        if not one.allows(spec.python)
    ]
    if same:
        notes.append(f"The image has what these ask for: {list_first(same, MAX_NAMES)}.")
    if held:
        notes.append(f"These stay as the image has them: {list_first(held, MAX_NAMES)}.")
    texts = {**kept, **constraints}
    return replace(
        requested,
        requirements=tuple(dict.fromkeys(kept.values())),
        constraints=tuple(dict.fromkeys(constraints.values())),
        notes=tuple(notes),
        tensorflow=_combine(find_tensorflow(requested, spec).values()),
        places={texts[text]: place for text, place in requested.places.items() if text in texts},
        sources=tuple(one for one in requested.sources if applies(_parse_marker(one.marker), spec)),
        problems=(
            *requested.problems,
            *_find_wrong_release(requested, spec, find_image),
            *_find_wrong_hashes(requested, locked.values()),
            *_list_differences(requested, find_differences(requested, spec, lock)),
        ),
    )


def _divide(
    requested: Requested, spec: ImageSpec, locked: Mapping[str, LockedPackage]
) -> tuple[dict[str, str], dict[str, str], list[str], list[str]]:
    """Return the requirements and constraints that an image takes, as written and without their marker.

    Also the names of what it has as asked, and what it keeps in its own version.
    """
    kept: dict[str, str] = {}
    constraints: dict[str, str] = {}
    same: list[str] = []
    held: list[str] = []
    asked = ((text, True) for text in requested.requirements)
    for text, is_asked in (*asked, *((text, False) for text in requested.constraints)):
        parsed = _parse(text)
        name = canonicalize_name(parsed.name)
        if name in TENSORFLOW_NAMES or not applies(parsed.marker, spec):
            continue
        own = locked.get(name)
        is_locked = requested.gives_way(text)
        is_same = own is not None and parsed.specifier.contains(own.version, prereleases=True)
        if own and is_locked and not is_same:
            held.append(f"{name} {own.version} ({parsed.specifier})")
            if parsed.extras:
                kept[text] = f"{name}[{','.join(sorted(parsed.extras))}]"
        elif (
            is_same and not parsed.extras and is_asked and requested.is_of_file(text) and (is_locked or is_pin(parsed))
        ):
            same.append(name)
        elif is_asked:
            kept[text] = _without_marker(parsed, text)
        elif own is None or not is_locked:
            constraints[text] = _without_marker(parsed, text)
    return kept, constraints, same, held


def with_wheels(requested: Requested, made: Mapping[Source, Path]) -> Requested:
    """Return what a user asks for with the requirements of wheels that were made of sources, in their place."""
    places = {}
    for source, wheel in made.items():
        name, version, _, _ = parse_wheel_filename(wheel.name)
        extras = f"[{','.join(source.extras)}]" if source.extras else ""
        places[f"{name}{extras}=={version}"] = source.line
    return replace(
        requested,
        requirements=tuple(dict.fromkeys((*requested.requirements, *places))),
        sources=tuple(one for one in requested.sources if one not in made),
        places={**requested.places, **places},
    )


def _combine(specifiers: Iterable[SpecifierSet]) -> SpecifierSet | None:
    found = [*specifiers]
    return SpecifierSet(",".join(filter(None, map(str, found)))) if found else None


def _parse_marker(text: str | None) -> Marker | None:
    return _parse(f"x; {text}").marker if text else None


def _without_marker(parsed: Requirement, text: str) -> str:
    """Return a requirement without its marker; as written if it has none."""
    if parsed.marker is None:
        return text
    plain = Requirement(str(parsed))
    plain.marker = None
    return str(plain)


def _name(text: str, requested: Requested) -> str:
    place = requested.places.get(text, "")
    return f"{text.partition(';')[0].strip()} ({place})" if place else text


def _note_tensorflow(requested: Requested, spec: ImageSpec) -> Iterator[str]:
    allowed = [
        _name(text, requested)
        for text, one in find_tensorflow(requested, spec).items()
        if one.contains(spec.tensorflow, prereleases=True)
    ]
    if allowed:
        title = f"TensorFlow {spec.tensorflow} for {DEVICES[spec.device].title}"
        yield f"The image itself is {title}, which these mean: {list_first([*dict.fromkeys(allowed)], MAX_NAMES)}."


def _find_wrong_release(requested: Requested, spec: ImageSpec, find_image: FindImage) -> Iterator[Problem]:
    """Yield a problem for each requirement of another TensorFlow than that of an image."""
    asked = find_tensorflow(requested, spec)
    wrong = [text for text, one in asked.items() if not one.contains(spec.tensorflow, prereleases=True)]
    if wrong:
        image = find_image(ALIAS, str(_combine(asked.values())))
        step = f"Use the image {image}." if image else "Correct the version: `tfimg list` shows those that images have."
        for text in wrong:
            what = f"{text} is another release than the image's own TensorFlow {spec.tensorflow}"
            yield Problem(place=requested.places.get(text, WITH), what=what, step=step, is_conflict=True)
    for text in requested.requirements:
        parsed = _parse(text)
        if canonicalize_name(parsed.name) in NIGHTLY_NAMES and applies(parsed.marker, spec):
            yield Problem(
                place=requested.places.get(text, WITH),
                what=f"{text} is a build of one night, which no image has beside its TensorFlow {spec.tensorflow}",
                step=f"Leave {parsed.name} out, or make an image of its wheel with `tfimg build --wheel FILE.whl`.",
                is_conflict=True,
            )


def _list_differences(requested: Requested, different: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of constraints of files that exclude the image's version of a package.

    What is required moves where TensorFlow allows it, and is explained where it is resolved.
    """
    for text, version in different.items():
        if text in requested.constraints and text not in requested.requirements:
            what = f"{text.partition(';')[0].strip()} excludes the image's {version}, which a constraint does not move"
            step = "Leave the line out, or require the package: it moves where TensorFlow's own metadata allows it."
            yield Problem(place=requested.places[text], what=what, step=step, is_conflict=True)


def _find_wrong_hashes(requested: Requested, packages: Iterable[LockedPackage]) -> Iterator[Problem]:
    """Yield a problem for each package of the image whose hash is not among those that are stated for its version."""
    pins: dict[str, str] = {
        canonicalize_name(parsed.name): text
        for text in requested.requirements
        if is_pin(parsed := _parse(text)) and text not in requested.locked
    }
    for package in packages:
        name, version, sha256 = package.name, package.version, package.sha256
        stated = requested.hashes.get(name)
        text = pins.get(name)
        if not stated or text is None or name in TENSORFLOW_NAMES or sha256 in stated:
            continue
        if _parse(text).specifier.contains(version, prereleases=True):
            yield Problem(
                place=requested.places.get(text, WITH),
                what=f"the image's {name} {version} has the SHA-256 {sha256}, which is not among the stated hashes",
                step="Check where the hashes come from; `pip hash FILE.whl` prints that of a wheel.",
                is_conflict=True,
            )


def check_hashes(requested: Requested, files: Iterable[tuple[str, str, str | None]]) -> None:
    """Raise `LockError` for files whose hash is not among the stated ones, all at once.

    `files` are names of packages with the version and the SHA-256 of the file to install, or to make a wheel of.
    """
    if not requested.hashes and not requested.needs_hashes:
        return
    wrong, missing = [], []
    for name, version, sha256 in files:
        stated = requested.hashes.get(name)
        if stated and sha256 not in stated:
            wrong.append(f"{name} {version} (sha256:{sha256})")
        elif not stated and requested.needs_hashes:
            missing.append(f"{name}=={version} --hash=sha256:{sha256}")
    if wrong:
        raise LockError(
            f"The files that would be installed are not among the stated hashes: {list_first(wrong, MAX_NAMES)}.",
            next_step="Check where the hashes come from, and that the file has those of wheels for Linux: `pip-compile "
            "--generate-hashes` and `uv export` write all of a release.",
        )
    if missing:
        raise LockError(
            f"The requirements have hashes, and {len(missing)} packages that they need have none: "
            f"{list_first(missing, MAX_NAMES)}.",
            next_step="Check these and add them to the file, or leave all hashes out.",
        )


def without_foreign(requested: Requested, systems: Mapping[str, str]) -> Requested:
    """Return a request without the pins of files that exist for other systems only; a note lists them."""
    listed = [f"{one} ({system})" for one, system in systems.items()]
    kept = tuple(one for one in requested.requirements if one not in systems)
    note = f"Left out, as they exist for other systems than Linux only: {list_first(listed, MAX_NAMES)}."
    return replace(requested, requirements=kept, notes=(*requested.notes, note))


WITH_SOURCE = re.compile(r"pywinpty|twisted-iocpsupport|pyobjc(-.*)?")
"""Packages for one system that the index has as source too, as it has those that compile on Linux."""


def find_foreign(index: Index, requirements: Sequence[str]) -> dict[str, str]:
    """Return the requirements that the index has for other systems than Linux only, with those systems.

    What the index does not answer is not known to be one.
    """

    def find_systems(text: str) -> str:
        parsed = _parse(text)
        try:
            version = Version(next(iter(parsed.specifier)).version) if is_pin(parsed) else None
            is_known = WITH_SOURCE.fullmatch(canonicalize_name(parsed.name)) is not None
            return index.list_systems(parsed.name, version, with_source=is_known)
        except (ValueError, NetworkError):
            return ""

    systems = map_in_threads(find_systems, requirements, MAX_PAGES)
    return {text: found for text, found in zip(requirements, systems, strict=True) if found}


def strip_credentials(url: str) -> str:
    """Return the address of an index without credentials, to compare it with another."""
    parts = split_url(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2].lower(), parts.path.rstrip("/"), "", ""))

"""Why extra packages do not fit an image, and what would: asked of the package index and of uv, in variants."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import LockError, NetworkError, RequirementConflict
from tfimg.core.events import InfoEvent, OnEvent, ignore
from tfimg.core.text import escape_unprintable, list_first, quote_argument
from tfimg.index.client import make_environment, read_file_requires, select_requirements
from tfimg.matrix.schema import PROCESSORS
from tfimg.recipe.ages import (
    OldRelease,
    find_old_releases,
    find_recent,
    has_only_pre_releases,
    is_for_later,
)
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import read_packages
from tfimg.recipe.packages import (
    TORCH,
    Resolver,
    describe_torch_for_cpu,
    find_cuda_copies,
    is_exact,
    is_for_cuda,
    list_wheels,
    name_of,
)
from tfimg.recipe.releases import MAX_PAGES, PackageRelease, Releases, list_pythons, select_names
from tfimg.recipe.requirements import WITH_SOURCE

MAX_SECONDS = 60
"""Time after which no other resolution begins. One takes 0.3 seconds, 5 on a busy machine."""

MAX_END = 75  # seconds after which the last one is stopped

MORE_SECONDS = 5
"""Seconds in which other ways out are looked for once one is known."""

MAX_TRIES = 2  # ways out that are tried at once, each with its own process
SAY_AFTER = 3  # seconds without a word
MAX_LISTED = 5  # conflicts in one message
MAX_FIXES = 3  # ways out in one message
MAX_PYTHON = 100  # characters of a Requires-Python
MAX_WALK = 200  # packages whose requirements are read to find one without a wheel. TFX needs 150
MAX_COMPANIONS = 65  # releases that are looked at to find the one for a TensorFlow. TensorFlow Text has 61
MAX_IMAGES = 4  # images that are tried
MAX_JUDGED = 12  # images that are judged by what the requirement itself needs
LEAVE_OUT = "leave out "

NOTHING: Mapping[str, str] = MappingProxyType({})

FindImages = Callable[[str, str], Iterator[Resolver]]
"""Name and specifier of a package → the images that are locked with such a version, the closest one first."""


TryAttempt = Callable[[], "_Attempt | None"]
"""Returns a way out, None if it does not work."""


class _TimeIsUp(Exception):
    """The explanation takes too long."""


@dataclass(kw_only=True, slots=True)
class _Clock:
    """The time that an explanation takes, by `time.monotonic`; `said` is when the user was told of it last.

    Ways out are looked for from `began` on, and `found` is the number of those that work. `is_cut`: time was up before
    all were tried.
    """

    started: float
    said: float
    began: float = math.inf
    found: int = 0
    is_cut: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing else is looked for."""
        now = time.monotonic()
        return now > self.started + MAX_SECONDS or (self.found > 0 and now > self.began + MORE_SECONDS)

    def find_seconds_left(self) -> float:
        """Return the seconds in which a resolution has to end. Raises `_TimeIsUp` if none may begin."""
        if self.is_over:
            self.is_cut = True
            raise _TimeIsUp
        return self.started + MAX_END - time.monotonic()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    """A whole request that may work, and what it changes, in words."""

    text: str
    requirements: tuple[str, ...]
    resolver: Resolver


class _Visited(NamedTuple):
    """The release of a package that would be taken, with its needs; else its source, or why there is none."""

    version: Version | None = None
    needs: Sequence[Requirement] = ()
    source: str | None = None
    unusable: str | None = None


class _Need(NamedTuple):
    """What a package needs of another one, and in words."""

    name: str
    specifier: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Problem:
    """Why a requirement does not fit, in sentences, and what may work, the nearest first; `last` if nothing else does.

    `change` is the one of them that is combined with those of other problems: it changes the requirement alone. So are
    wheels of the names and versions in `missing`.
    """

    what: str
    attempts: Sequence[TryAttempt] = ()
    last: Sequence[TryAttempt] = ()
    change: Callable[[], _Attempt] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def explain_conflict(
    resolver: Resolver,
    requirements: Sequence[str],
    cause: LockError | OldRelease,
    *,
    releases: Callable[[Resolver], Releases],
    find_images: FindImages,
    started: float,
    on_event: OnEvent = ignore,
) -> LockError:
    """Return the refusal of requirements that have no solution together with an image, or only with an old release.

    `cause` is an error with uv's proof, or that release. A way out is named only if the whole request resolves
    with it. No resolution begins `MAX_SECONDS` after `started`, a value of `time.monotonic`, and no other way out is
    looked for when one is known and `MORE_SECONDS` have passed.
    """
    old = cause if isinstance(cause, OldRelease) else None
    newest = f"{old.name}=={old.newest}" if old else None
    wanted = list(requirements)
    for place, one in enumerate(map(Requirement, requirements)):
        if old and name_of(str(one)) == old.name:
            one.specifier = SpecifierSet(f"=={old.newest}")
            wanted[place] = newest = str(one)
    search = _Search(
        resolver=resolver,
        stated=tuple(requirements),
        requirements=tuple(wanted),
        releases=releases,
        find_images=find_images,
        report=on_event,
        clock=_Clock(started=started, said=time.monotonic()),
        old=old,
    )
    on_event(InfoEvent(text="Looking for what does not fit, and for what would"))
    try:
        search = search if old else search.move_to_pinned_day()
        problems = search.find_problems(first=newest)
    except (_TimeIsUp, NetworkError):
        problems = []
    if not problems and not old:
        what = f"{list_first(requirements, MAX_LISTED)} cannot be resolved together with the image."
        problems = [_Problem(what=what)]
    return search.refuse(problems, cause if isinstance(cause, LockError) else None)


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Asks the index and uv until it is known what does not fit; `old` is what the request resolves to.

    `requirements` are those that are `stated`, with the newest release in place of `old`. `option` chooses another day
    than that of the request, `_failed` are the images that it does not fit.
    """

    resolver: Resolver
    stated: tuple[str, ...]
    requirements: tuple[str, ...]
    releases: Callable[[Resolver], Releases]
    find_images: FindImages
    report: OnEvent
    clock: _Clock
    old: OldRelease | None = None
    option: str = ""
    _resolved: dict[tuple[object, ...], dict[str, str] | None] = field(default_factory=dict)
    _failed: list[str] = field(default_factory=list)

    # Answers

    def refuse(self, problems: Sequence[_Problem], error: LockError | None) -> LockError:
        """Return the refusal of problems, with those ways out that resolve."""
        sentences = [problem.what for problem in problems[:MAX_LISTED]]
        if len(problems) > MAX_LISTED:
            sentences.append(f"{len(problems) - MAX_LISTED} more requirements do not fit.")
        if self.old:
            sentences.insert(0, f"This request would take {self.old.describe()}.")
        attempts = list(self._find_fixes(problems))
        if self._failed and not attempts and not self.clock.is_cut:
            sentences.append(f"Nor does it fit {list_first(list(dict.fromkeys(self._failed)), MAX_IMAGES)}.")
        default = f"Loosen or leave out {'the requirement' if len(problems) == 1 else 'these requirements'}."
        if problems and not problems[0].attempts and error is not None:
            default = f"{default[:-1]}; the object of --json has what uv says as `proof`."
        step = self._advise([attempt.text for attempt in attempts], default)
        refusal = RequirementConflict(" ".join(sentences), next_step=step)
        if not self.option:
            same = (self.requirements, self.resolver.day)
            fixed = [one for one in attempts[:1] if (one.requirements, one.resolver.day) == same]
            # With wheels of what is missing, another reason is left, or none.
            missing = tuple((name, version) for one in problems for name, version in one.missing.items())
            refusal.sources = fixed[0].resolver.promised if fixed else missing
        if error is not None:
            refusal.details = {"proof": error.what}
        return refusal

    def _advise(self, fixes: Sequence[str], default: str) -> str:
        """Return the next step: the ways out in a sentence, else an old release, else a default."""
        if not fixes and (old := self._find_old()):
            fixes = [f"write {' and '.join(old)} to take the old release all the same"]
        step = "; or ".join(fixes)
        step = f"{step[0].upper()}{step[1:]}." if fixes else default
        if self.clock.is_cut and self.clock.found:
            step += f" The search for other ways out ended after {MORE_SECONDS} s."
        elif self.clock.is_cut:
            step += f" The search for ways out ended after {MAX_SECONDS} s; another one goes on with what was read."
        return f"Add {self.option}, and {step[0].lower()}{step[1:]}" if self.option else step

    def _find_old(self) -> list[str]:
        """Return the releases that the request would take if their age were no reason to refuse them."""
        resolver = self.resolver
        try:
            found = replace(resolver, timeout=self.clock.find_seconds_left()).find(self.stated)
            versions: dict[str, str] = {package.name: str(package.version) for package in found}
            old = find_old_releases(self.releases(resolver), resolver.spec, versions, self.stated, resolver.day)
        except (LockError, NetworkError, TimeoutError, _TimeIsUp):
            return []
        return [f"{one.name}=={one.version}" for one in old if one.is_refused and one.name not in resolver.versions]

    def _find_fixes(self, problems: Sequence[_Problem]) -> Iterator[_Attempt]:
        """Yield the ways out that resolve with the whole request, the nearest first."""
        found: list[str] = []
        self.clock.began = time.monotonic()
        if len(problems) > 1 and (combined := self._try(lambda: self._combine(problems))):
            yield combined
            return
        attempts = [attempt for problem in problems for attempt in problem.attempts]
        last = [attempt for problem in problems for attempt in problem.last]
        starts = (*range(0, len(attempts), MAX_TRIES), len(attempts))
        for some in (*(attempts[start : start + MAX_TRIES] for start in starts), last):
            if len(found) == MAX_FIXES or (some is last and self.clock.found):
                return
            for attempt in filter(None, map_in_threads(self._try, some, MAX_TRIES)):
                if attempt.text not in found and len(found) < MAX_FIXES:
                    found.append(attempt.text)
                    yield attempt

    def _try(self, attempt: TryAttempt) -> _Attempt | None:
        """Return a way out; None if it does not work, or if nothing is known of it in time."""
        try:
            self.clock.find_seconds_left()
            made = attempt()
            if made and self._works(made):
                self.clock.found += not made.text.startswith(LEAVE_OUT)
                return made
        except (_TimeIsUp, NetworkError):
            pass
        return None

    def _say(self, text: str) -> None:
        """Tell the user what is done, after some seconds without a word."""
        if time.monotonic() - self.clock.said > SAY_AFTER:
            self.clock.said = time.monotonic()
            self.report(InfoEvent(text=text))

    def _works(self, attempt: _Attempt) -> bool:
        """Return whether a whole request resolves, and to no release that would be refused."""
        found = self._resolve(attempt.requirements, resolver=attempt.resolver)
        if found is None or find_cuda_copies(attempt.resolver.versions, found):
            return False
        named = {name_of(one) for one in attempt.requirements}
        try:
            old = find_old_releases(
                self.releases(attempt.resolver),
                attempt.resolver.spec,
                {name: version for name, version in found.items() if name in named},
                attempt.requirements,
                attempt.resolver.day,
            )
        except NetworkError:
            return True
        return not any(one.is_refused and one.name not in attempt.resolver.versions for one in old)

    def _combine(self, problems: Sequence[_Problem]) -> _Attempt | None:
        """Return the first way out of each problem together; None if one has none that is about requirements alone."""
        requirements, texts, missing = self.requirements, list[str](), dict[str, str]()
        for problem in problems:
            if problem.missing:
                missing |= problem.missing
                continue
            if problem.change is None:
                return None
            first = problem.change()
            changed = dict(zip(self.requirements, first.requirements, strict=False))
            if len(first.requirements) == len(self.requirements):
                requirements = tuple(changed.get(one, one) for one in requirements)
            else:
                requirements = tuple(one for one in requirements if one in first.requirements)
            texts.append(first.text)
        same = [text.removeprefix(LEAVE_OUT) for text in texts if text.startswith(LEAVE_OUT)]
        text = f"{LEAVE_OUT}{', '.join(same)}" if same and len(same) == len(texts) else "; and ".join(texts)
        if missing:
            text = "; and ".join(filter(None, [text, _describe_wheels(missing)]))
        return _Attempt(text=text, requirements=requirements, resolver=self._promise(missing))

    # Changes of the request

    def _replace(self, requirement: str, other: str | None, text: str) -> Callable[[], _Attempt]:
        """Return the request with another requirement in place of one, None to leave it out."""
        changed = tuple(other if one == requirement else one for one in self.requirements)
        return lambda: _Attempt(text=text, requirements=tuple(filter(None, changed)), resolver=self.resolver)

    def _at_image(self, name: str, specifier: str, culprit: str, since: date | None = None) -> Sequence[TryAttempt]:
        """Return the request on the closest image of a day on that has such a version of a package, and resolves."""

        def attempt() -> _Attempt | None:
            images = (one for one in self._list_images(name, specifier, culprit) if since is None or one.day >= since)
            return self._try_images(name, images, culprit)

        return (attempt,)

    def _try_images(self, name: str, images: Iterable[Resolver], culprit: str) -> _Attempt | None:
        """Return the request on the first of some images that it fits; the words name a package of it."""
        for image in islice(images, MAX_IMAGES):
            has = f"which has {name} {image.versions[name]}"
            if name == name_of(culprit) and not Requirement(culprit).specifier.contains(image.versions[name], True):
                has = f"whose TensorFlow allows {culprit}"
            text = f"use the image {image.spec.identifier}, {has}"
            for day in self._list_days(image):
                made = self._move(text, replace(image, as_of=day), culprit)
                if made and self._works(made):
                    return made
            self._failed.append(image.spec.identifier)
        return None

    def _list_made_for(self, culprit: str) -> Iterator[Resolver]:
        """Yield an image for each release that is made for one TensorFlow, that of the newest release first."""
        spec, releases, name = self.resolver.spec, self.releases(self.resolver), name_of(culprit)
        environment, wanted = make_environment(spec.python, PROCESSORS[spec.platform]), Requirement(culprit).specifier
        finals = [one for one in releases.read(name) or () if wanted.contains(one.version, prereleases=False)]
        listed = {*self._failed}
        for release in finals[:MAX_JUDGED]:
            bounds = select_requirements(releases.read_requirements(name, str(release.version)) or (), environment)
            need = bounds.get(ALIAS, SpecifierSet())
            if not need.contains("999"):
                images = (one for one in self.find_images(ALIAS, str(need)) if release.allows(one.spec.python))
                nearest = next(images, None)
                if nearest and nearest.spec.identifier not in listed:
                    listed.add(nearest.spec.identifier)
                    yield nearest

    def _list_days(self, image: Resolver) -> list[date | None]:
        """Return the days as of which a request is tried on another image."""
        # What is pinned to a release of a later day may need others of that day, or of later ones.
        is_late = self._pinned_day is not None and self._pinned_day > image.day
        return list(dict.fromkeys([image.as_of, *([self._pinned_day] if is_late else []), image.today]))

    def _list_images(self, name: str, specifier: str, culprit: str) -> Iterator[Resolver]:
        """Yield the images with a version of a package that a requirement itself does not exclude, the closest first.

        In place of one whose TensorFlow it excludes, those of the same Python with a TensorFlow that it needs there.
        """
        listed = set[str]()
        images = list(islice(self.find_images(name, specifier), MAX_JUDGED))
        for image in images or (self._list_allowing(culprit) if name == name_of(culprit) else ()):
            searches = [replace(self, resolver=replace(image, as_of=day)) for day in self._list_days(image)]
            nearest = [image] if any(one._may_fit(culprit) for one in searches) else []
            if not nearest:
                self._failed.append(image.spec.identifier)
                needs = [outside[0] for one in searches if (outside := one._find_outside(culprit))]
                if needs and {name, needs[0].name} <= {ALIAS, image.spec.package}:
                    others = self.find_images(ALIAS, needs[0].specifier)
                    nearest = [one for one in others if one.spec.python == image.spec.python]
            for one in nearest:
                if one.spec.identifier not in listed:
                    listed.add(one.spec.identifier)
                    yield one

    def _list_allowing(self, requirement: str) -> Iterator[Resolver]:
        """Yield the images that have another version of a package, and whose TensorFlow allows the one required."""
        name = name_of(requirement)
        for image in islice(self.find_images(ALIAS, ""), MAX_JUDGED):
            if not image.is_held(name, [name]) and not replace(self, resolver=image)._is_excluded(requirement):
                yield image

    def _is_excluded(self, requirement: str) -> bool:
        """Return whether the image has a package, and its TensorFlow needs other releases than those of a requirement.

        No day changes that. False as well if the index has no such release.
        """
        name, wanted = name_of(requirement), Requirement(requirement).specifier
        if name not in self.resolver.versions or name not in self.bounds:
            return False
        matching = [
            one.version
            for one in self.releases(self.resolver).read(name) or ()
            if wanted.contains(one.version, prereleases=True)
        ]
        return bool(matching) and not any(self.bounds[name].contains(one, prereleases=True) for one in matching)

    def _move(
        self, text: str, resolver: Resolver, culprit: str, missing: Mapping[str, str] = NOTHING
    ) -> _Attempt | None:
        """Return the request with what it needs of packages that only their names move, if it resolves then.

        Also with wheels of what the index has as source, of `missing` packages at least.
        """
        search = replace(self, resolver=replace(resolver, promised=self.resolver.promised))
        versions = resolver.versions
        if not search._may_fit(culprit, missing):
            return None
        self._say(f"Trying {resolver.spec.identifier} as of {resolver.day}")
        free = [name for name in versions if not search._is_the_image(name)]
        wanted = tuple(dict.fromkeys((*self.requirements, culprit)))  # others may need it

        def resolve(wheels: Mapping[str, str]) -> dict[str, str] | None:
            return self._resolve(wanted, free, resolver=search._promise(wheels))

        if not missing and resolve(missing) is None:
            missing = search._find_without_wheel(culprit, lambda wheels: resolve(wheels) is not None)[0]
        resolver, found = search._promise(missing), resolve(missing)
        if found is None:
            return None
        moved = [name for name in found if versions.get(name, found[name]) != found[name]]
        pins = tuple(f"{name}=={found[name]}" for name in moved if resolver.is_held(name, self.requirements))
        option = "--newest" if resolver.day == resolver.today else f"--as-of {resolver.day}"
        is_other_day = resolver.as_of is not None and resolver.as_of != self.resolver.as_of
        parts = [f"{text}, with {option}" if is_other_day else text] if text else []
        if is_other_day and not text:
            parts = [f"allow later releases with {option}"]
        if pins:
            parts.append(f"add {','.join(pins)} to the request, which TensorFlow's own metadata allows")
        if files := {one: version for one, version in missing.items() if one in found}:
            parts.append(_describe_wheels(files))
        made = _Attempt(text=", and ".join(parts), requirements=(*self.requirements, *pins), resolver=resolver)
        self._resolved[self._key(resolver, made.requirements)] = found  # it proves the request with the pins too
        return made

    def _may_fit(self, culprit: str, missing: Mapping[str, str] = NOTHING) -> bool:
        """Return whether the index has nothing against a requirement: a release, and what that itself needs."""
        name = name_of(culprit)
        has_release = name in (*missing, *self.resolver.versions) or self._find_newest(culprit) or self._is_local(name)
        return bool(has_release) and self._find_outside(culprit) is None

    @cached_property
    def _pinned_day(self) -> date | None:
        """The day of the latest release that the request names exactly."""
        return max(filter(None, map(self._find_pinned_day, self.requirements)), default=None)

    def _find_pinned_day(self, requirement: str) -> date | None:
        """Return the day of the release that a requirement names exactly; None if it names none."""
        wanted = Requirement(requirement)
        listed = self.releases(self.resolver).read(name_of(requirement)) if is_exact(requirement) else ()
        days = (one.uploaded for one in listed or () if wanted.specifier.contains(one.version, prereleases=True))
        return max(filter(None, days), default=None)

    # What does not fit

    def move_to_pinned_day(self) -> _Search:
        """Return the search as of the day of the latest pin, if late pins need it and the request fails then too."""
        resolver = self.resolver
        days = {one: self._find_pinned_day(one) for one in self.requirements if not self._is_excluded(one)}
        late = {one: day for one, day in days.items() if day and day > resolver.day}
        pinned = max(late.values(), default=None)
        if pinned is None or pinned > resolver.today:
            return self
        later = replace(resolver, as_of=pinned)
        if self._resolve(self.requirements, resolver=later) is not None or self._resolve(late) is not None:
            return self
        option = "--newest" if pinned == resolver.today else f"--as-of {pinned}"
        return replace(self, resolver=later, option=option)

    def find_problems(self, first: str | None = None) -> list[_Problem]:
        """Return why the request has no solution. Raises `_TimeIsUp` and `NetworkError`."""
        here = self.releases(self.resolver)
        here.prefetch(map(name_of, self.requirements))
        if problems := [problem for one in self.requirements if (problem := self._find_plain(one))]:
            return problems
        pinned = self._pinned_day
        if not first and pinned and self.resolver.day < pinned <= self.resolver.today:
            resolver = replace(self.resolver, as_of=pinned)
            if self._resolve(self.requirements, resolver=resolver) is not None:
                what = (
                    f"The request pins releases of up to {pinned}, and needs others of their time, not of {self.day}."
                )
                return [_Problem(what=what, attempts=self._later(pinned))]
        culprit = first or self._find_culprit()
        if not first and len(self.requirements) > 1 and self._resolve([culprit]) is not None:
            return [self._explain_together(culprit)]
        return [self._explain_one(culprit)]

    @property
    def day(self) -> str:
        """The day as of which packages are resolved, in words."""
        of = "" if self.resolver.as_of else f", the time of TensorFlow {self.resolver.spec.tensorflow}"
        return f"{self.resolver.day}{of}"

    @cached_property
    def bounds(self) -> dict[str, SpecifierSet]:
        """What TensorFlow's own metadata requires, and what the matrix requires beside it."""
        spec = self.resolver.spec
        if spec.wheel:
            requires = read_file_requires(spec.wheel.file) if spec.wheel.file.is_file() else ()
        else:
            requires = self.releases(self.resolver).read_requirements(spec.package, spec.tensorflow) or ()
        environment = make_environment(spec.python, PROCESSORS[spec.platform])
        return select_requirements((*requires, *(one.requirement for one in spec.constraints)), environment)

    def _find_plain(self, requirement: str) -> _Problem | None:
        """Return why no release of a requirement fits, whatever it needs; None if one fits. Asks the index alone."""
        wanted, name = Requirement(requirement), name_of(requirement)
        spec = self.resolver.spec
        environment = make_environment(spec.python, PROCESSORS[spec.platform])
        if wanted.marker and not wanted.marker.evaluate(dict(environment)):
            return None
        version = self.resolver.versions.get(name)
        if version is not None and wanted.specifier.contains(version, prereleases=True):
            return None
        if problem := self._find_companion(requirement):
            return problem
        plain = self._replace(requirement, wanted.name, f"write {wanted.name} without a version")
        if version is not None and self.resolver.is_held(name, [requirement]):
            return _Problem(
                what=f"{requirement} conflicts with {name} {version} of the image itself.",
                attempts=(*self._at_image(name, str(wanted.specifier), requirement), plain),
                change=plain,
            )
        if self._is_excluded(requirement):
            return _Problem(
                what=f"{requirement} conflicts with TensorFlow {spec.tensorflow}, which needs {name}"
                f"{self.bounds[name]}; the image has {version}.",
                attempts=(plain, *self._at_image(name, str(wanted.specifier), requirement)),
                change=plain,
            )
        listed = self.releases(self.resolver).read(name)
        matching = [one for one in listed or () if wanted.specifier.contains(one.version, prereleases=True)]
        if listed is None:
            return None if self._is_local(requirement) else self._describe_unknown(requirement)
        return None if self._is_local(requirement) else self._describe_releases(requirement, listed, matching)

    def _find_companion(self, requirement: str) -> _Problem | None:
        """Return why no release of a package works with the image's TensorFlow, if its metadata does not say it."""
        wanted, spec = Requirement(requirement), self.resolver.spec
        one = dict(spec.companions).get(name_of(requirement))
        out = self._replace(requirement, None, f"{LEAVE_OUT}{requirement}")
        listed = self.releases(self.resolver).read(wanted.name) or ()
        matching = [release.version for release in listed if wanted.specifier.contains(release.version)]
        if one is None or not matching:
            return None
        works = one.find_releases(spec.tensorflow)
        if any(SpecifierSet(works).contains(version) for version in matching):
            return None
        need = one.find_need(matching[0])
        return _Problem(
            what=f"{requirement} needs tensorflow{need}, and {spec.identifier} has {spec.tensorflow}: it {one.reason}.",
            attempts=(
                self._replace(requirement, f"{wanted.name}{works}", f"write {wanted.name}{works}"),
                *self._at_image(ALIAS, need, requirement),
                out,
            ),
            change=out,
        )

    def _is_local(self, requirement: str) -> bool:
        """Return whether a folder of --find-links may have it, or it was made of a source, or is promised."""
        return name_of(requirement) in dict(self.resolver.promised) or bool(self._find_local(requirement))

    def _find_local(self, requirement: str) -> list[Path]:
        """Return the wheels of a requirement that no index has."""
        stem = name_of(requirement).replace("-", "_")
        files = [*(list_wheels(self.resolver.find_links) if self.resolver.find_links else ()), *self.resolver.made]
        return [one for one in files if one.name.lower().replace("-", "_").replace(".", "_").startswith(f"{stem}_")]

    def _describe_unknown(self, requirement: str) -> _Problem:
        out = self._replace(requirement, None, f"{LEAVE_OUT}{requirement}, or correct its name")
        what = f"The package index has no package {Requirement(requirement).name}."
        return _Problem(what=what, attempts=(out,), change=out)

    def _describe_releases(
        self, requirement: str, listed: Sequence[PackageRelease], matching: Sequence[PackageRelease]
    ) -> _Problem | None:
        """Return why none of the releases that match a requirement can be installed as of the day; None if one can."""
        wanted, spec, day = Requirement(requirement), self.resolver.spec, self.resolver.day
        name = wanted.name
        if not matching:
            newest = next(iter(listed), None)
            has = f"its newest is {newest.version}" if newest else "it has none"
            plain = self._replace(requirement, name, f"write {name} without a version")
            what = f"The package index has no release of {name} that meets {wanted.specifier}; {has}."
            return _Problem(what=what, attempts=(plain,), change=plain)
        finals = [one for one in matching if not one.version.is_prerelease]
        if not wanted.specifier.prereleases:
            if has_only_pre_releases(wanted, listed, day):
                return self._describe_pre_releases(wanted, matching, finals)
            matching = finals or matching
        out = self._replace(requirement, None, f"{LEAVE_OUT}{requirement}")
        where = f"Python {spec.python} on {spec.platform}"
        usable = [one for one in matching if one.fits and one.supports_python]
        # The same release of TensorFlow on another Python.
        is_of_pythons = any(one.pythons or not one.supports_python for one in matching)
        others = self._at_image(ALIAS, f"=={spec.tensorflow}", requirement) if is_of_pythons else ()
        if usable:
            if is_exact(requirement) or any(one.usable is None or one.usable <= day for one in usable):
                return None
            return self._describe_late(requirement, matching, usable, others)
        newest = matching[0]
        plain = self._replace(requirement, name, f"write {name} without a version")
        others = (*others, *([plain] if str(wanted.specifier) else []))
        if newest.python and not any(one.supports_python for one in matching):
            needed = escape_unprintable(newest.python)[:MAX_PYTHON]
            what = f"{requirement} has no release for {where}: {newest.version} needs Python {needed}."
            return _Problem(what=what, attempts=(*others, out), change=out)
        with_wheels = [one for one in matching if one.has_wheels]
        present = next((one for one in matching if one.supports_python and one.is_there(day)), newest)
        may_compile = present.has_source and (not present.has_wheels or bool(present.systems))
        if with_wheels and (not may_compile or WITH_SOURCE.fullmatch(name_of(requirement))):
            systems = all(one.systems for one in with_wheels)
            only = f"{list_pythons(with_wheels[0])}{' only' if systems else ''}"
            return _Problem(
                what=f"{requirement} has no wheel for {where}: those of {with_wheels[0].version} are for {only}.",
                attempts=(out,) if systems else (*others, out),
                change=out,
            )
        return self._describe_without_wheel(requirement, {name_of(requirement): str(present.version)})

    def _describe_late(
        self,
        requirement: str,
        matching: Sequence[PackageRelease],
        usable: Sequence[PackageRelease],
        others: Sequence[TryAttempt],
    ) -> _Problem:
        """Return the problem of a requirement whose releases that can be installed are of later days."""
        spec, day = self.resolver.spec, self.resolver.day
        first = min(usable, key=lambda one: one.usable or date.max)
        what = f"{requirement} has no release that fits as of {self.day}: {first.version} is of {first.usable}."
        there = [one for one in matching if one.is_there(day) and not one.version.is_prerelease]
        if there and there[0].python and not any(one.supports_python for one in there):
            needed = escape_unprintable(there[0].python)[:MAX_PYTHON]
            what = (
                f"{requirement} has no release for Python {spec.python} as of {self.day}: {there[0].version} needs "
                f"Python {needed}."
            )
        early = [one for one in matching if one.pythons and one.uploaded and one.uploaded <= day]
        if early:
            newest = next((one for one in early if not one.version.is_prerelease), early[0])
            of_then = f"those of {newest.version} are for {list_pythons(newest)}"
            return _Problem(
                what=f"{requirement} has no wheel for Python {spec.python} on {spec.platform} as of {self.day}: "
                f"{of_then}.",
                attempts=(*others, *self._later(first.usable)),
            )
        today = replace(self, resolver=replace(self.resolver, as_of=self.resolver.today))
        if self._resolve([requirement], resolver=today.resolver) is None:
            beyond = today._explain_one(requirement)
            return _Problem(what=f"{what} {beyond.what}", attempts=(*others, *beyond.attempts), last=beyond.last)
        newer = self._at_image(ALIAS, f">{spec.tensorflow}", requirement, first.usable)
        return _Problem(what=what, attempts=(*self._later(first.usable), *newer, *others))

    def _describe_pre_releases(
        self, wanted: Requirement, matching: Sequence[PackageRelease], finals: Sequence[PackageRelease]
    ) -> _Problem:
        """Return the problem of a package that has pre-releases only as of the day, of which the request names none."""
        requirement, pinned, day = str(wanted), Requirement(str(wanted)), self.resolver.day
        newest = next(one for one in matching if one.is_there(day))
        pinned.specifier = SpecifierSet(f"=={newest.version}")
        days = {one.usable: one.version for one in finals if one.usable and one.supports_python}
        first = min(days, default=None)
        taken = self._replace(requirement, str(pinned), f"write {pinned} to take the pre-release")
        then = f"; {days[first]} is of {first}" if first else ""
        return _Problem(
            what=f"{requirement} has only pre-releases as of {self.day}, the newest of them {newest.version}{then}.",
            attempts=(
                *(self._later(first) if first else ()),
                *(self._at_image(ALIAS, f">{self.resolver.spec.tensorflow}", requirement, first) if first else ()),
                taken,
            ),
            change=taken,
        )

    def _describe_without_wheel(self, requirement: str, missing: Mapping[str, str]) -> _Problem:
        """Return the problem of packages that the index has only as source."""
        name = name_of(requirement)
        days = {one: self._usable_day(one) for one in missing}
        later = [day for day in days.values() if day and day > self.resolver.day]
        # Other releases may have wheels.
        shown = [f"{one} {missing[one]}" if day and day not in later else one for one, day in days.items()]
        what = f"{shown[0]} has" if [*missing] == [name] else f"{requirement} needs {' and '.join(shown)}, which has"
        text = _describe_wheels(missing)
        promising = self._promise(missing)
        attempts: list[TryAttempt] = [lambda: _Attempt(text=text, requirements=self.requirements, resolver=promising)]
        if len(later) == len(missing):
            attempts += self._later(max(later))
        return _Problem(
            what=f"{what} no wheel on the package index{f' as of {self.day}' if later else ''}, and nothing is "
            "compiled while an image is built.",
            attempts=attempts,
            missing=missing,
        )

    def _usable_day(self, name: str) -> date | None:
        """Return the first day on which a package has a wheel that fits."""
        listed = self.releases(self.resolver).read(name) or ()
        return min((one.usable for one in listed if one.usable and one.supports_python), default=None)

    def _later(self, day: date | None, missing: Mapping[str, str] = NOTHING) -> Sequence[TryAttempt]:
        """Return the request as of a later day, else as of today, with wheels of `missing` packages."""
        today = self.resolver.today
        if self.resolver.day >= today:
            return ()

        def attempt() -> _Attempt | None:
            for one in dict.fromkeys(filter(None, (day, today))):
                option = "--newest" if one == today else f"--as-of {one}"
                resolver = replace(self._promise(missing), as_of=one)
                text = f"allow later releases with {option}"
                text += f", and {_describe_wheels(missing)}" if missing else ""
                made = _Attempt(text=text, requirements=self.requirements, resolver=resolver)
                if one > self.resolver.day and self._works(made):
                    return made
            return None

        return (attempt,)

    # With uv

    def _resolve(
        self, requirements: Iterable[str], free: Iterable[str] = (), resolver: Resolver | None = None
    ) -> dict[str, str] | None:
        """Return the versions by name that requirements resolve to, None without a solution. Raises `_TimeIsUp`."""
        timeout = self.clock.find_seconds_left()
        chosen, wanted, freed = resolver or self.resolver, tuple(requirements), tuple(free)
        key = self._key(chosen, wanted, freed)
        if key not in self._resolved:
            try:
                found = find_recent(replace(chosen, timeout=timeout), self.releases(chosen), wanted, freed)
                self._resolved[key] = {package.name: str(package.version) for package in found}
            except LockError:
                self._resolved[key] = None
            except TimeoutError:
                raise _TimeIsUp from None
        return self._resolved[key]

    def _key(self, resolver: Resolver, requirements: tuple[str, ...], free: tuple[str, ...] = ()) -> tuple[object, ...]:
        return resolver.spec.identifier, len(resolver.lock), resolver.day, resolver.promised, requirements, free

    def _find_culprit(self) -> str:
        """Return the first requirement that does not fit with those before it; in a logarithm of resolutions."""
        wanted = self.requirements
        return wanted[_first_without(range(len(wanted)), lambda end: self._resolve(wanted[: end + 1]) is not None)]

    def _explain_together(self, culprit: str) -> _Problem:
        """Return the problem of a requirement that fits alone, and not with those before it."""
        before = self.requirements[: self.requirements.index(culprit)]
        place = _first_without(range(len(before)), lambda end: self._resolve((*before[: end + 1], culprit)) is not None)
        other = before[place]
        attempts = [
            self._replace(one, name, f"write {name} in place of {one}")
            for one in (culprit, other)
            if (name := Requirement(one).name) != one
        ]
        attempts += [self._replace(one, None, f"{LEAVE_OUT}{one}") for one in (culprit, other)]
        if self._resolve((other, culprit)) is None:
            what = f"{other} and {culprit} exclude each other in {self.resolver.spec.identifier}; each fits alone."
        else:
            what = (
                f"{culprit} does not fit with the requirements before it, of which {other} is the last that it needs "
                "otherwise."
            )
        return _Problem(what=what, attempts=attempts)

    def _explain_one(self, culprit: str) -> _Problem:
        """Return why a requirement does not fit, although releases of it do: something that it needs does not."""
        if direct := self._explain_direct(culprit):
            return direct
        missing, unusable = self._find_without_wheel(culprit, lambda wheels: self._fits_with(wheels, culprit))
        promising = self._promise(missing)
        if missing and (helped := self._resolve([culprit], resolver=promising)):
            return self._describe_without_wheel(culprit, {one: missing[one] for one in missing if one in helped})
        today = replace(promising, as_of=self.resolver.today)
        is_today = self.resolver.day >= self.resolver.today
        free = [name for name in self.resolver.versions if not self._is_the_image(name)]
        questions: list[Callable[[], dict[str, str] | None]] = [
            lambda: self._resolve([culprit], free, resolver=promising),
            lambda: None if is_today else self._resolve([culprit], resolver=today),
            lambda: None if is_today else self._resolve([culprit], free, resolver=today),
        ]
        freed, later, both = map_in_threads(lambda ask: ask(), questions, MAX_TRIES)
        used = {one: version for one, version in missing.items() if one in (freed or later or both or ())}
        if freed is not None:
            problem = self._describe_held(culprit, self._find_held(culprit, freed, promising), used)
            more = self._later(None, used) if later is not None else ()
            return replace(problem, attempts=(*problem.attempts, *more))
        if later is not None:
            return self._describe_later(culprit, later, used)
        if both is not None:
            return self._describe_held(culprit, self._find_held(culprit, both, today), used)
        if unusable:
            out = self._replace(culprit, None, f"{LEAVE_OUT}{culprit}")
            attempts = (*self._without_version(culprit), *([out] if len(self.requirements) > 1 else []))
            return _Problem(what=f"{culprit} needs {unusable[0]}.", attempts=attempts, change=out)
        return self._describe_excluded(culprit, missing)

    def _is_the_image(self, name: str) -> bool:
        return self.resolver.is_held(name, [name])

    def _describe_later(self, culprit: str, later: Mapping[str, str], missing: Mapping[str, str]) -> _Problem:
        """Return the problem of a requirement that fits as of today, with wheels of `missing` packages."""
        promising = self._promise(missing)
        releases = self.releases(self.resolver)
        releases.prefetch(later)
        there = ((name, releases.find(name, version)) for name, version in later.items())
        days = {name: one.usable for name, one in there if one and one.usable}
        late = sorted({day for day in days.values() if day > self.resolver.day})
        first = None
        pinned = self._pinned_day
        if (
            pinned
            and pinned > self.resolver.day
            and self._resolve([culprit], resolver=replace(promising, as_of=pinned))
        ):
            return _Problem(
                what=f"{culprit} does not fit as of {self.day}: it needs releases of its time.",
                attempts=self._later(pinned, missing),
            )
        if late:
            place = _first_without(
                range(len(late)),
                lambda end: self._resolve([culprit], resolver=replace(promising, as_of=late[end])) is None,
            )
            first = late[place]
        needed = [name for name, day in days.items() if day == first and name not in self.resolver.versions]
        what = f"{culprit} does not fit as of {self.day}"
        name = name_of(culprit)
        what += f": {needed[0]} {later[needed[0]]} is of {first}." if needed and needed != [name] else "."
        return _Problem(what=what, attempts=self._later(first, missing))

    def _find_held(self, culprit: str, found: Mapping[str, str], resolver: Resolver) -> list[_Need]:
        """Return what a requirement needs of packages that only their names move; `found` has them moved."""
        versions = self.resolver.versions
        moved = [
            name
            for name in found
            if name in versions and versions[name] != found[name] and self.resolver.is_held(name, self.requirements)
        ]

        def is_needed(name: str) -> bool:
            free = [one for one in versions if one != name and not self._is_the_image(one)]
            return self._resolve([culprit], free, resolver=resolver) is None

        answers = map_in_threads(is_needed, moved, MAX_TRIES) if len(moved) > 1 else [True for _ in moved]
        needed = [one for one, answer in zip(moved, answers, strict=True) if answer] or moved
        return [self._find_need(culprit, found, name, versions[name]) for name in needed]

    def _describe_held(self, culprit: str, needs: Sequence[_Need], missing: Mapping[str, str] = NOTHING) -> _Problem:
        """Return the problem of a requirement that needs what moves only if the request names it."""
        versions = self.resolver.versions
        reasons = {one.name: one.reason for one in read_packages(self.resolver.lock) if one.reason}
        texts = []
        for need in needs[:MAX_LISTED]:
            reason = reasons.get(need.name) or ""
            fix = f" ({reason})" if reason.startswith("fixes") else ""
            texts.append(f"{need.text}, and the image has {need.name} {versions[need.name]}{fix}")
        them = "it" if len(needs) == 1 else "them"
        days = dict.fromkeys([self.resolver.as_of, self._pinned_day, self.resolver.today])

        def move() -> _Attempt | None:
            later = (replace(self.resolver, as_of=day) for day in days)
            tried = (self._move("", one, culprit, missing) for one in later if one.day >= self.resolver.day)
            return next(filter(None, tried), None)

        return _Problem(
            what=f"{'; '.join(texts)}. Extra packages do not move {them} unless the request names {them}.",
            attempts=(move, *self._at_image(needs[0].name, needs[0].specifier, culprit)),
            last=(lambda: self._try_images(ALIAS, self._list_made_for(culprit), culprit),),
        )

    def _describe_excluded(self, culprit: str, missing: Mapping[str, str]) -> _Problem:
        """Return the problem of a requirement that TensorFlow's own metadata excludes."""
        spec, versions = self.resolver.spec, self.resolver.versions
        bare = replace(self._promise(missing), lock={}, fixes=(), may_move=False, as_of=self.resolver.today)
        found = self._resolve([culprit], [ALIAS], resolver=bare)
        if found is None:
            return _Problem(
                what=f"{culprit} cannot be resolved on Python {spec.python}, {spec.platform}, with any TensorFlow: "
                "something that it needs has no wheel, or no release.",
                attempts=self._without_version(culprit),
            )
        held = [one for one in found if one in versions and found[one] != versions[one] and self._is_the_image(one)]
        if held:
            name = ALIAS if ALIAS in held else held[0]
            need = self._find_need(culprit, found, name, versions[name])
            return _Problem(
                what=f"{need.text}, and the image has {name} {versions[name]}.",
                attempts=(*self._at_image(name, need.specifier, culprit), *self._without_version(culprit)),
            )
        outside = [one for one, bound in self.bounds.items() if one in found and not bound.contains(found[one])]
        if not outside:
            return _Problem(
                what=f"{culprit} does not fit with what TensorFlow {spec.tensorflow} and the image's packages need.",
                attempts=self._without_version(culprit),
            )
        needs = [self._find_need(culprit, found, one, versions.get(one, "0")) for one in outside[:MAX_LISTED]]
        bounds = ", ".join(f"{one}{self.bounds[one]}" for one in outside[:MAX_LISTED])
        return _Problem(
            what=f"{'; '.join(need.text for need in needs)}, and TensorFlow {spec.tensorflow} needs {bounds}.",
            attempts=(*self._at_image(outside[0], needs[0].specifier, culprit), *self._without_version(culprit)),
        )

    def _for_cpu(self, culprit: str, need: _Need) -> Sequence[Callable[[], _Attempt]]:
        """Return the request with PyTorch's build for CPU, if it is the one that needs a library of CUDA."""
        name = name_of(culprit)
        newest = self._find_newest(culprit)
        if name not in TORCH or newest is None or not is_for_cuda(need.name):
            return ()
        version = f"{newest.version.public}+cpu"
        wanted = tuple(f"{name}=={version}" if one == culprit else one for one in self.requirements)
        promising = self._promise({name: version})
        text = describe_torch_for_cpu([f"{name}=={version}"])
        return (lambda: _Attempt(text=text, requirements=wanted, resolver=promising),)

    def _find_newest(self, requirement: str) -> PackageRelease | None:
        """Return the newest release of a requirement that the image's Python and platform can install.

        If releases are made for one TensorFlow each, it is the newest for the image's.
        """
        wanted, until = Requirement(requirement).specifier, self.resolver.today
        until = until if is_exact(requirement) else self.resolver.day
        name, releases = name_of(requirement), self.releases(self.resolver)
        listed = [
            one
            for one in releases.read(name) or ()
            if one.fits and one.supports_python and (one.usable is None or one.usable <= until)
            if wanted.contains(one.version, prereleases=bool(wanted.prereleases))
        ]
        if not listed or not is_for_later(releases, self.resolver.spec, name, str(listed[0].version)):
            return listed[0] if listed else None
        for start in range(1, min(len(listed), MAX_COMPANIONS), MAX_PAGES):
            some = listed[start : start + MAX_PAGES]
            later = map_in_threads(
                lambda one: is_for_later(releases, self.resolver.spec, name, str(one.version)), some, MAX_PAGES
            )
            if found := [one for one, is_later in zip(some, later, strict=True) if not is_later]:
                return found[0]
        return listed[0]

    def _list_needs(self, culprit: str) -> list[_Need]:
        """Return what the newest release of a requirement needs of held packages, and the image does not have.

        Asks the index alone; TensorFlow itself first.
        """
        newest, spec = self._find_newest(culprit), self.resolver.spec
        if newest is None:
            return []
        name, versions = name_of(culprit), self.resolver.versions
        requires = self.releases(self.resolver).read_requirements(name, str(newest.version)) or ()
        environment = make_environment(spec.python, PROCESSORS[spec.platform])
        needs = [
            _Need(other, str(one.specifier), f"{name} {newest.version} needs {other}{one.specifier}")
            for one in select_names(requires, environment, Requirement(culprit).extras)
            if (other := name_of(str(one))) in versions
            and not one.specifier.contains(versions[other], prereleases=True)
            and self.resolver.is_held(other, self.requirements)
        ]
        return sorted(needs, key=lambda need: need.name not in (ALIAS, spec.package))

    def _find_outside(self, culprit: str) -> tuple[_Need, str] | None:
        """Return what a requirement itself needs that no name in the request moves, and what excludes it."""
        for need in self._list_needs(culprit):
            if self._is_the_image(need.name):
                return need, f"the image has {need.name} {self.resolver.versions[need.name]}"
            bound = self.bounds.get(need.name, SpecifierSet())
            both = SpecifierSet(need.specifier) & bound
            listed = self.releases(self.resolver).read(need.name) or ()
            if not any(both.contains(one.version, prereleases=True) for one in listed):
                return need, f"TensorFlow {self.resolver.spec.tensorflow} needs {need.name}{bound}"
        return None

    def _explain_direct(self, culprit: str) -> _Problem | None:
        """Return why what the newest release of a requirement needs itself does not fit."""
        if outside := self._find_outside(culprit):
            need, excludes = outside
            today = replace(self.resolver, as_of=self.resolver.today)
            later = partial(self._move, "", today, culprit)
            return _Problem(
                what=f"{need.text}, and {excludes}.",
                attempts=(
                    *self._for_cpu(culprit, need),
                    *([later] if self.resolver.day < today.day else []),
                    *self._at_image(need.name, need.specifier, culprit),
                    *self._without_version(culprit),
                ),
                last=(lambda: self._try_images(ALIAS, self._list_made_for(culprit), culprit),),
            )
        if needs := self._list_needs(culprit):
            free = [name for name in self.resolver.versions if not self._is_the_image(name)]
            missing = dict[str, str]()
            if not self._fits_with(missing, culprit, free):
                missing, _ = self._find_without_wheel(culprit, lambda wheels: self._fits_with(wheels, culprit, free))
            return self._describe_held(culprit, needs, missing)
        return None

    def _fits_with(self, wheels: Mapping[str, str], culprit: str, free: Sequence[str] = ()) -> bool:
        """Return whether a requirement resolves with wheels of names and versions."""
        return self._resolve([culprit], free, resolver=self._promise(wheels)) is not None

    def _find_need(self, culprit: str, found: Mapping[str, str], name: str, version: str) -> _Need:
        """Return which of the packages that a requirement resolves to excludes a version of another one of them."""
        if need := self._ask_need(culprit, found, name, version):
            return need
        way = ">=" if Version(found[name]) > Version(version) else "<="
        return _Need(name, f"{way}{Version(found[name]).public}", f"{culprit} takes {name} {found[name]}")

    def _ask_need(self, culprit: str, found: Mapping[str, str], name: str, version: str) -> _Need | None:
        """Return which of some packages excludes a version of another package, as the index has their metadata."""
        spec = self.resolver.spec
        environment = make_environment(spec.python, PROCESSORS[spec.platform])
        releases, first = self.releases(self.resolver), name_of(culprit)
        others = [one for one in found if one != first and self.resolver.versions.get(one) != found[one]]

        def ask(one: str) -> _Need | None:
            requires = releases.read_requirements(one, found[one]) or ()
            extras = Requirement(culprit).extras if one == first else ()
            for need in select_names(requires, environment, extras):
                if name_of(str(need)) == name and not need.specifier.contains(version, prereleases=True):
                    text = f"{one} {found[one]} needs {name}{need.specifier}"
                    text = text if one == first else f"{first} needs {one}, and {text}"
                    return _Need(name, str(need.specifier), text)
            return None

        for some in ([first] if first in found else [], others):
            if need := next(filter(None, map_in_threads(ask, some, MAX_PAGES)), None):
                return need
        return None

    def _without_version(self, requirement: str) -> Sequence[Callable[[], _Attempt]]:
        wanted = Requirement(requirement)
        if not str(wanted.specifier) or self.old:
            return ()
        return (self._replace(requirement, wanted.name, f"write {wanted.name} without a version"),)

    # Packages without a wheel

    def _promise(self, missing: Mapping[str, str]) -> Resolver:
        """Return what resolves packages with wheels of names and versions that the index has as source."""
        return replace(self.resolver, promised=(*self.resolver.promised, *missing.items()))

    def _find_without_wheel(
        self, culprit: str, is_enough: Callable[[Mapping[str, str]], bool]
    ) -> tuple[dict[str, str], list[str]]:
        """Return packages that a requirement needs and no image can install as they are.

        First those that the index has as source, with versions; then in words those that it does not have for an image.
        The requirements of the newest releases are followed, of those that all bounds found so far allow, until wheels
        of the sources are enough.
        """
        known, chosen = dict[str, Requirement](), dict[str, Version]()
        missing, unusable = dict[str, str](), list[str]()
        level = [Requirement(culprit)]
        while level and len(known) < MAX_WALK and not self.clock.is_over:
            changed = dict[str, Requirement]()
            for needed in level:
                name = name_of(str(needed))
                before = known.get(name)
                if name in self.resolver.versions or (before and _is_met(needed, before, chosen.get(name))):
                    continue
                known[name] = changed[name] = _join(needed, before) if before else needed
            self._say(f"Reading what {culprit} needs: {len(known)} packages")
            level, before_level = [], dict(missing)
            for name, one in zip(changed, map_in_threads(self._visit, changed.values(), MAX_PAGES), strict=True):
                level += one.needs
                if one.version:
                    chosen[name] = one.version
                if one.source:
                    missing[name] = one.source
                    chosen.pop(name, None)
                if one.unusable:
                    unusable.append(one.unusable)
            if missing != before_level and is_enough(missing):
                break
        return missing, unusable

    def _visit(self, needed: Requirement) -> _Visited:
        """Return the newest release that meets a requirement, or why there is none that can be installed."""
        releases, spec, name = self.releases(self.resolver), self.resolver.spec, name_of(str(needed))
        environment = make_environment(spec.python, PROCESSORS[spec.platform])
        local = [one for file in self._find_local(name) for one in read_file_requires(file)]
        needs = select_names(local, environment, needed.extras)
        pages = releases.read(name)
        if newest := self._find_newest(str(needed)):
            requires = releases.read_requirements(name, str(newest.version)) or ()
            return _Visited(version=newest.version, needs=[*needs, *select_names(requires, environment, needed.extras)])
        if self._is_local(name):
            return _Visited(needs=needs)
        if pages is None:
            return _Visited(unusable=f"{name}, which the package index does not have")
        until = self.resolver.today if is_exact(str(needed)) else self.resolver.day
        listed = [
            one
            for one in pages
            if one.is_there(until)
            and one.supports_python
            and needed.specifier.contains(one.version, prereleases=bool(needed.specifier.prereleases))
        ]
        if sources := [one for one in listed if one.has_source]:
            return _Visited(source=str(sources[0].version))
        if not listed:
            return _Visited()
        only = "only " if listed[0].systems else ""
        wheels = f"whose wheels are {only}for {list_pythons(listed[0])}"
        return _Visited(unusable=f"{name}{needed.specifier}, {wheels}")


def _is_met(needed: Requirement, known: Requirement, chosen: Version | None) -> bool:
    """Return whether a requirement adds nothing to what is known of a package, or to the release that is chosen."""
    if not needed.extras <= known.extras:
        return False
    if chosen is not None:
        return needed.specifier.contains(chosen, prereleases=True)
    return set(needed.specifier) <= set(known.specifier)


def _join(one: Requirement, other: Requirement) -> Requirement:
    """Return what two requirements of a package need together."""
    both = Requirement(str(one))
    both.specifier &= other.specifier
    both.extras |= other.extras
    return both


def _describe_wheels(missing: Mapping[str, str]) -> str:
    """Return in words how to make wheels of names and versions that the index has as source."""
    files = " ".join(quote_argument(f"{one}=={version}") for one, version in missing.items())
    return (
        "let `tfimg build` make the wheel in a container, or make it with `pip wheel --no-deps "
        f"--wheel-dir wheels {files}` and add --find-links wheels"
    )


def _first_without(places: range, fits: Callable[[int], bool]) -> int:
    """Return the first place that does not fit, by halving; all places after it do not fit either."""
    low, high = places.start, places.stop - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fits(middle) else (low, middle)
    return low

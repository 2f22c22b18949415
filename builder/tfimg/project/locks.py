"""Locks of a project: make, check, fix."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from tfimg.core import cancellation, errors, files
from tfimg.core.events import OnEvent, ignore
from tfimg.core.paths import Workspace
from tfimg.core.text import list_first
from tfimg.matrix.schema import RUNTIME, Matrix, Newer, Variant
from tfimg.matrix.spec import ExtraPackages, ImageSpec, with_extra_packages, with_variant, without_extra_packages
from tfimg.project.services import Services
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import (
    MAX_RESOLUTIONS,
    Lock,
    LockedPackage,
    add_own_part,
    find_fixes,
    hash_lock,
    make_query,
    read_packages,
    require_local_wheel,
    resolve_lock,
)

if TYPE_CHECKING:
    from packaging.pylock import Package

    from tfimg.custom.image import GivenFacts
    from tfimg.project.source_wheels import KeptWheels, MakeWheels, Unmade
    from tfimg.recipe.additions import Addition
    from tfimg.recipe.ages import OldRelease
    from tfimg.recipe.packages import Resolver
    from tfimg.recipe.releases import Releases
    from tfimg.recipe.requirements import FindImage, Requested


MAX_PAGES = 200
"""Packages that are looked up after a resolution has failed, as they may be for other systems."""

MAX_SOURCES = 50
"""Packages of one request of which wheels are made; what a wheel needs is known when it is there."""

MAX_ASKED = 5
"""Packages whose upload times are looked up after a resolution has failed."""


@dataclass(frozen=True, kw_only=True)
class Locks:
    """Finds or resolves the lock of an image.

    `specs` are all images, `find_links` is a folder of wheels that no package index has. What resolves extra packages
    is imported where it is used: that takes three times as long as all else that this module imports.
    """

    workspace: Workspace
    services: Services
    newer: Newer
    specs: Sequence[ImageSpec]
    variants: Mapping[str, Variant] = field(default_factory=dict)
    find_links: Path | None = None

    def local_wheels(self, spec: ImageSpec, lock: Lock) -> tuple[Path, ...]:
        """Return the wheels that a build is handed: the one of a user, and those of `find_links` in parts of `lock`.

        Also those that were made of sources. The parts that are committed need the package index alone.
        """
        file = (spec.wheel.file,) if spec.wheel and not spec.wheel.lock else ()
        made = self._find_made(spec.extra.lock) if spec.extra else ()
        if self.find_links is None:
            return *file, *made
        from tfimg.recipe.packages import find_locked_wheels

        resolved = dict(lock)
        if file:
            resolved.pop("tensorflow")
        elif not spec.wheel and not self._needs_local_libtpu(spec):
            resolved = {part: text for part, text in lock.items() if part in ("variant", "own")}
        if spec.variant_lock and self.workspace.lock(spec.variant_lock, "variant").exists():
            resolved.pop("variant", None)
        return *file, *made, *find_locked_wheels(self.find_links, resolved)

    def _find_made(self, own: str) -> tuple[Path, ...]:
        """Return the wheels of a part of extra packages that were made of sources."""
        from tfimg.project.source_wheels import find_kept_wheel

        return tuple(
            wheel for one in read_packages({"own": own}) if (wheel := find_kept_wheel(self.services.state, one.sha256))
        )

    def _needs_local_libtpu(self, spec: ImageSpec) -> bool:
        """Whether an image needs a libtpu that no package index has, so that no lock of it is committed."""
        return bool(self.find_links and spec.libtpu and not self.workspace.locks(spec.runtime).exists())

    def require_committed(self, specs: Iterable[ImageSpec]) -> None:
        """Raise `LockError` if images, or their variants, have no committed lock: a build without tfimg reads it."""
        names = dict.fromkeys(name for spec in specs for name in (spec.runtime, spec.variant_lock) if name)
        self.workspace.require_locks(names)

    def find(self, spec: ImageSpec) -> Lock:
        """Return the lock of an image to build: the committed one, or one resolved now with custom wheels.

        That of a variant is resolved when it is not committed. Raises `LockError` when there is none.
        """
        if spec.wheel and spec.wheel.lock:
            lock = dict(spec.wheel.lock)
        elif spec.wheel:
            if not spec.wheel.file.is_file():
                raise errors.LockError(
                    f"{spec.identifier} is the image of a custom wheel, which is not at hand, and no labels of the "
                    "image tell its lock.",
                    next_step="Build it again with `tfimg build --wheel WHEEL`, which writes the labels.",
                )
            lock = resolve_custom_lock(spec, self.newer, self.services, self.find_links)
        elif self.find_links and self._needs_local_libtpu(spec):
            require_local_wheel(spec, self.find_links)
            env = self.services.network.environment(self.services.environ)
            lock = resolve_lock(spec, self.newer, uv=self.services.uv(), env=env, find_links=self.find_links)
        else:
            lock = self.workspace.read_lock(spec.runtime)
        if spec.variant_lock and not (spec.wheel and spec.wheel.lock):
            # The image may have all packages of the variant.
            lock |= {"variant": text} if (text := self._variant_lock(spec, spec.variant_lock, lock)) else {}
        return add_own_part(lock, spec.extra.lock) if spec.extra and spec.extra.lock else lock

    def read_predictable(self, spec: ImageSpec) -> Lock:
        """Return the lock of the layers whose size is predicted: the committed one, and that of extra packages."""
        lock = self.workspace.read_lock(spec.runtime)
        return add_own_part(lock, spec.extra.lock) if spec.extra and spec.extra.lock else lock

    def _variant_lock(self, spec: ImageSpec, identifier: str, lock: Lock) -> str:
        """Return the requirement file of a variant: the committed one, that of an earlier run, or one resolved now."""
        committed = self.workspace.lock(identifier, "variant")
        if committed.exists():
            return committed.read_text("utf-8")
        requirements = spec.variant_requirements
        asked = hashlib.sha256("\n".join([hash_lock(lock), str(spec.cutoff), *requirements]).encode()).hexdigest()
        kept = self.services.state / "locks" / f"{identifier}-{asked[:16]}.txt"
        if not kept.exists():
            files.write_atomically(kept, self._resolve(spec, lock, requirements))
        return kept.read_text("utf-8")

    def read_committed(self, spec: ImageSpec) -> Lock:
        """Return the committed lock of an image, or of its variant alone; empty without one."""
        return {
            file.stem: file.read_text("utf-8") for file in sorted(self.workspace.locks(spec.identifier).glob("*.txt"))
        }

    def list_committed_variants(self, specs: Iterable[ImageSpec]) -> tuple[ImageSpec, ...]:
        """Return the variants of images whose own lock is committed; an image of a variant has none."""
        plain = [spec for spec in specs if not spec.variants]
        variants = [with_variant(spec, name, self.variants) for spec in plain for name in self.variants]
        return tuple(spec for spec in variants if self.workspace.lock(spec.identifier, "variant").exists())

    def list_locked_variants(self, specs: Iterable[ImageSpec]) -> tuple[ImageSpec, ...]:
        """Return the variants whose locks have the packages of images: jupyter for dev, none for slim."""
        plain = {spec.identifier: spec for spec in self.specs}
        found = {
            spec.variant_lock: with_variant(plain[spec.runtime], spec.locked_variant, self.variants)
            for spec in specs
            if spec.locked_variant
        }
        return tuple(found.values())

    def resolve_variants(self, specs: Sequence[ImageSpec]) -> Iterator[tuple[ImageSpec, Lock | errors.LockError]]:
        """Resolve the requirement files of variants above committed locks; yield each, or why there is none."""

        def resolve(spec: ImageSpec) -> Lock | errors.LockError:
            try:
                lock = self.workspace.read_lock(spec.runtime)
                fixes = find_fixes(self.read_committed(spec))
                return {"variant": self._resolve(spec, lock, spec.variant_requirements, fixes)}
            except errors.LockError as error:
                return error

        yield from zip(specs, cancellation.map_in_threads(resolve, specs, MAX_RESOLUTIONS), strict=True)

    def add_packages(
        self,
        spec: ImageSpec,
        requirements: Sequence[str],
        system_packages: Sequence[str] = (),
        as_of: date | None = None,
        on_event: OnEvent = ignore,
    ) -> ImageSpec:
        """Return an image with extra packages, resolved as of its release's time or of a day.

        Raises as `add_requested`.
        """
        from tfimg.recipe.requirements import Requested

        requested = Requested(requirements=tuple(requirements))
        return self.add_requested(spec, requested, system_packages, as_of, on_event=on_event)[0]

    def add_requested(
        self,
        spec: ImageSpec,
        requested: Requested,
        system_packages: Sequence[str] = (),
        as_of: date | None = None,
        *,
        make: MakeWheels | None = None,
        on_event: OnEvent = ignore,
    ) -> tuple[ImageSpec, tuple[str, ...]]:
        """Return an image with extra packages, and notes on what is left out, and on what is not known yet.

        A source has the wheel that was made earlier, or that `make` makes. One that `make` promises is not in the lock,
        nor is what it needs. Raises `RequirementConflict` if packages do not fit, would be old releases, or exist only
        as source and there is no `make`; `LockError`, also for a file whose hash is not stated; `FileError`, and what
        `make` raises.
        """
        if not (requested.requirements or requested.sources):
            own = ExtraPackages(system_packages=tuple(system_packages))
            return with_extra_packages(spec, own) if system_packages else spec, ()
        from tfimg.project.source_wheels import describe_unmade, find_archive
        from tfimg.recipe.requirements import Source, check_hashes, with_wheels

        plain = self.resolver(spec, self.find(spec), as_of)
        kept = self.kept_wheels(spec, system_packages, plain.day)
        # Nothing is made of a request that is refused.
        wheels: dict[Unmade, Path | None] = {source: kept.find(source) for source in requested.sources}
        while True:
            made = {source: wheel for source, wheel in wheels.items() if wheel}
            promised = tuple(one for one in wheels if one not in made and not isinstance(one, Source))
            resolver = replace(plain, constraints=requested.constraints, made=tuple(made.values()), promised=promised)
            whole = with_wheels(requested, {one: wheel for one, wheel in made.items() if isinstance(one, Source)})
            try:
                image, notes = self._add_resolved(resolver, whole, system_packages, on_event)
            except errors.RequirementConflict as conflict:
                missing = [one for one in conflict.sources if one not in wheels]
                if not missing or make is None or len(wheels) > MAX_SOURCES:
                    raise
                check_hashes(requested, ((*one, find_archive(*one, kept.indexes)[1].sha256) for one in missing))
                wheels |= {one: kept.find(one) for one in missing}
                continue
            unmade = [source for source, wheel in wheels.items() if wheel is None]
            if make and unmade:
                wheels |= make(kept, unmade)
            if not any(wheels[source] for source in unmade):
                return image, (*notes, *describe_unmade(unmade))

    def _add_resolved(
        self, resolver: Resolver, requested: Requested, system_packages: Sequence[str], on_event: OnEvent
    ) -> tuple[ImageSpec, tuple[str, ...]]:
        """Return an image with extra packages, and notes on those that are left out as they are for other systems."""
        from tfimg.recipe.ages import find_recent
        from tfimg.recipe.packages import name_of
        from tfimg.recipe.requirements import check_hashes, find_foreign, without_foreign

        text, known, started = "", len(requested.notes), time.monotonic()
        while requested.requirements and not text:
            try:
                found = find_recent(resolver, self.releases(resolver), requested.requirements)
            except errors.LockError as error:
                pins = [one for one in requested.pinned if name_of(one) not in resolver.versions]
                systems = find_foreign(self.services.index(), pins[:MAX_PAGES])
                if not systems:
                    raise self._explain(resolver, requested, error, started, on_event) from None
                requested = without_foreign(requested, systems)
                continue
            text = self._format_extra(resolver, requested, found, started, on_event)
            # What wheels were made of has been checked.
            made = {files.hash_file(wheel) for wheel in resolver.made}
            packages = (one for one in read_packages({"own": text}) if one.sha256 not in made)
            check_hashes(requested, ((one.name, one.version, one.sha256) for one in packages))
            break
        if not (requested.requirements or requested.sources or system_packages):
            return resolver.spec, requested.notes[known:]
        own = ExtraPackages(requirements=requested.requirements, system_packages=tuple(system_packages), lock=text)
        return with_extra_packages(resolver.spec, own), requested.notes[known:]

    def kept_wheels(self, spec: ImageSpec, system_packages: Sequence[str], day: date) -> KeptWheels:
        """Return the wheels that were made for an image with Debian packages as of a day."""
        from tfimg.project.source_wheels import KeptWheels

        # Without the variant: slim has no headers, and all variants have the same TensorFlow.
        plain = replace(without_extra_packages(spec), identifier=spec.runtime, variant=RUNTIME, variants=())
        maker = {one.name: one for one in self.workspace.source_wheels.iterdir() if one.is_file()}
        recipe = f"{hash_lock(self.find(plain))} {day} {system_packages} {files.hash_files(maker)}"
        image = with_extra_packages(plain, ExtraPackages(system_packages=tuple(system_packages)))
        return KeptWheels(services=self.services, spec=image, day=day, recipe=recipe)

    def _format_extra(
        self,
        resolver: Resolver,
        requested: Requested,
        found: Sequence[Package],
        started: float,
        on_event: OnEvent,
    ) -> str:
        """Return the requirement file of extra packages. Raises `RequirementConflict` for old releases; `LockError`."""
        from tfimg.recipe.additions import require_one_cuda
        from tfimg.recipe.ages import find_old_releases, take_newer_releases
        from tfimg.recipe.packages import name_of

        requirements = requested.requirements
        versions: dict[str, str] = {package.name: str(package.version) for package in found}
        named = {name_of(one) for one in requirements} - resolver.versions.keys()
        named_versions = {name: versions[name] for name in named if name in versions}
        old = find_old_releases(self.releases(resolver), resolver.spec, named_versions, requirements, resolver.day)
        refused = next((one for one in old if one.is_refused), None)
        if refused is None:
            found, refused = take_newer_releases(resolver, self.releases(resolver), requirements, found)
        if refused:
            raise self._explain(resolver, requested, refused, started, on_event)
        if late := next((one for one in old if one.is_late), None):
            refusal = self._explain(resolver, requested, late, started, on_event)
            if isinstance(refusal, errors.RequirementConflict) and refusal.sources:
                raise refusal
        own = resolver.format(requirements, found)
        require_one_cuda(resolver.spec, resolver.lock, own)
        return own

    def _explain(
        self,
        resolver: Resolver,
        requested: Requested,
        cause: errors.LockError | OldRelease,
        started: float,
        on_event: OnEvent,
    ) -> errors.LockError:
        """Return the refusal of extra packages. Raises `LockError` if an index states no upload times."""
        from tfimg.recipe.conflicts import explain_conflict
        from tfimg.recipe.requirements import fits_files

        if isinstance(cause, errors.LockError) and resolver.as_of != resolver.today:
            self._require_times(requested.requirements, resolver.day)

        def find_images(name: str, specifier: str) -> Iterator[Resolver]:
            found = self._find_images(resolver.spec, resolver.as_of, name, specifier)
            return (one for one in found if fits_files(requested, one.spec))

        return explain_conflict(
            resolver,
            requested.requirements,
            cause,
            releases=self.releases,
            find_images=find_images,
            started=started,
            on_event=on_event,
        )

    def list_additions(
        self, spec: ImageSpec, as_of: date | None = None
    ) -> tuple[tuple[Addition, ...], tuple[str, ...]]:
        """Return what the extra packages of an image add to it, and notes on it."""
        from tfimg.recipe.additions import list_addition_notes, list_additions

        plain = without_extra_packages(spec)
        resolver = self.resolver(plain, self.find(plain), as_of)
        additions = list_additions(spec, resolver.lock, self.releases(resolver), resolver.day)
        return additions, list_addition_notes(spec, additions)

    def resolver(
        self,
        spec: ImageSpec,
        lock: Lock,
        as_of: date | None = None,
        *,
        may_move: bool = True,
        fixes: tuple[LockedPackage, ...] = (),
    ) -> Resolver:
        """Return what resolves packages together with a lock."""
        from tfimg.recipe.packages import Resolver

        return Resolver(
            spec=spec,
            lock=lock,
            newer=self.newer,
            uv=self.services.uv(),
            env=self.services.network.environment(self.services.environ),
            today=self.services.today,
            as_of=as_of,
            find_links=self.find_links,
            fixes=fixes,
            may_move=may_move,
        )

    def releases(self, resolver: Resolver) -> Releases:
        """Return the releases on the package indexes as an image sees them."""
        return self.services.releases(resolver.spec.python, resolver.spec.platform)

    def _resolve(
        self, spec: ImageSpec, lock: Lock, requirements: Sequence[str], fixes: tuple[LockedPackage, ...] = ()
    ) -> str:
        """Return the requirement file of a variant's packages above a lock, none of which moves. Raises `LockError`."""
        resolver = self.resolver(spec, lock, may_move=False, fixes=fixes)
        return resolver.format(requirements, resolver.find(requirements))

    def _require_times(self, requirements: Sequence[str], day: date) -> None:
        """Raise `LockError` if an index states no upload times, so that nothing is known to be of a day or before."""
        from packaging.requirements import Requirement

        names = [Requirement(one).name for one in requirements][:MAX_ASKED]
        others = self.services.network.variables.get("PIP_EXTRA_INDEX_URL", "").split()
        without: list[str] = []
        with suppress(errors.NetworkError):
            indexes = (self.services.index(), *map(self.services.open_index, others))
            without = [name for name in names if any(index.states_no_times(name) for index in indexes)]
        if without:
            raise errors.LockError(
                f"The package index states no upload times (PEP 700), so that no release of "
                f"{list_first(without, MAX_ASKED)} is known to be of {day} or before.",
                next_step="Add --newest, which takes the newest releases that fit, or name an index that states them.",
            )

    def find_image_of(self, spec: ImageSpec) -> FindImage:
        """Return the search for the image closest to one that is locked with a version of a package."""

        def find(name: str, specifier: str) -> str | None:
            resolver = next(self._find_images(spec, None, name, specifier), None)
            return f"{resolver.spec.identifier}, which has {name} {resolver.versions[name]}" if resolver else None

        return find

    def _find_images(self, spec: ImageSpec, as_of: date | None, name: str, specifier: str) -> Iterator[Resolver]:
        """Yield the images that are locked with a version of a package, the closest to `spec` first."""
        place = next((number for number, one in enumerate(self.specs) if one.identifier == spec.runtime), 0)
        near = sorted(
            (one for one in self.specs if (one.device, one.platform) == (spec.device, spec.platform)),
            key=lambda one: (one.python != spec.python, not one.is_newest_patch, abs(self.specs.index(one) - place)),
        )
        if name != ALIAS:  # who asks for a release may mean a certain patch
            near = [one for one in near if one.is_newest_patch]
        for one in near:
            if one.identifier == spec.runtime or not self.workspace.locks(one.identifier).exists():
                continue
            image = with_variant(one, spec.variant, self.variants)
            if image.variant_lock and not self.workspace.lock(image.variant_lock, "variant").exists():
                continue
            resolver = self.resolver(image, self.find(image), as_of)
            version = resolver.versions.get(name)
            if version and SpecifierSet(specifier).contains(version, prereleases=True):
                yield resolver


def find_custom_spec(
    matrix: Matrix,
    services: Services,
    text: str,
    given: GivenFacts,
    as_of: date | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> ImageSpec:
    """Return the image of the wheel of FILE-or-URL#sha256=…, with a lock as of a day, else as of today.

    Raises `UsageError`, `FileError`, `HashMismatchError`, `NetworkError`, `InvalidWheel`, and as `make_custom_spec`.
    """
    # Few commands read a wheel, and all import this module: half its time.
    from tfimg.custom.image import make_custom_spec
    from tfimg.custom.source import find_wheel, parse_address, read_facts

    address = parse_address(text)
    file = find_wheel(
        address, services.state / "wheels", services.open_index, lambda name: on_step(f"Downloading {name}")
    )
    on_step(f"Reading {file.name}")
    try:
        facts = read_facts(file)
    except errors.InvalidWheel as error:
        if type(error) is not errors.InvalidWheel:
            raise
        # It is in no lock, which the advice for wheels of a package index is about.
        raise errors.InvalidWheel(error.what, next_step="Copy, download or build it again.") from None
    return make_custom_spec(matrix, facts, given, as_of or services.today)


def resolve_custom_lock(spec: ImageSpec, newer: Newer, services: Services, find_links: Path | None = None) -> Lock:
    """Return the lock of a custom image: one that was resolved before for the same requirements and day, or a new one.

    Raises `LockError` when there is no solution, `NetworkError`.
    """
    from tfimg.recipe.packages import list_wheels

    # NVIDIA's wheels for a CUDA may be newer than the day, as in images of the matrix.
    latest = replace(newer, as_of=max(newer.as_of, spec.cutoff))
    query = make_query(spec, latest, find_links)
    links = [files.hash_file(wheel) for wheel in list_wheels(find_links)] if find_links else []
    asked = repr((query, spec.wheel, *links))
    kept = services.state / "locks" / f"{spec.runtime}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
    if kept.is_file():
        from tfimg.core import documents  # pydantic, which few commands need

        try:
            return documents.parse_document(dict[str, str], kept.read_bytes())
        except documents.InvalidDocument:
            pass  # resolved again
    env = services.network.environment(services.environ)
    try:
        lock = resolve_lock(spec, latest, uv=services.uv(), env=env, find_links=find_links)
    except errors.LockError as error:
        raise errors.LockError(
            error.what,
            next_step="Name the day that its requirements are of with --as-of, or build the wheel with others.",
        ) from None
    files.write_atomically(kept, json.dumps(lock))
    return lock

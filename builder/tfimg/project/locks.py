"""Locks of a project: make, check, fix."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import InvalidWheel, LockError
from tfimg.core.files import hash_file, write_atomically
from tfimg.core.paths import Workspace
from tfimg.matrix.schema import Matrix, Newer, Variant
from tfimg.matrix.spec import ExtraPackages, ImageSpec, with_extra_packages, with_variant
from tfimg.project.services import Services
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import (
    MAX_RESOLUTIONS,
    Lock,
    LockedPackage,
    find_fixes,
    hash_lock,
    make_query,
    read_packages,
    require_local_wheel,
    resolve_lock,
)

if TYPE_CHECKING:
    from tfimg.custom.image import GivenFacts


@dataclass(frozen=True, kw_only=True)
class Locks:
    """Finds or resolves the lock of an image.

    `specs` are all images, `find_links` is a folder of wheels that no package index has.
    """

    workspace: Workspace
    services: Services
    newer: Newer
    specs: Sequence[ImageSpec]
    variants: Mapping[str, Variant] = field(default_factory=dict)
    find_links: Path | None = None

    def local_wheels(self, spec: ImageSpec, lock: Lock) -> tuple[Path, ...]:
        """Return the wheels that a build is handed: the one of a user, and those of `find_links` in parts of `lock`.

        The parts that are committed need the package index alone.
        """
        file = (spec.wheel.file,) if spec.wheel and not spec.wheel.lock else ()
        if self.find_links is None:
            return file
        from tfimg.recipe.packages import find_locked_wheels

        resolved = dict(lock)
        if file:
            resolved.pop("tensorflow")
        elif not spec.wheel and not self._needs_local_libtpu(spec):
            resolved = {part: text for part, text in lock.items() if part in ("variant", "own")}
        if spec.variant_lock and self.workspace.lock(spec.variant_lock, "variant").exists():
            resolved.pop("variant", None)
        return *file, *find_locked_wheels(self.find_links, resolved)

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
                raise LockError(
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
        if spec.extra and spec.extra.lock:
            lock["own"] = spec.extra.lock
        return lock

    def read_predictable(self, spec: ImageSpec) -> Lock:
        """Return the lock of the layers whose size is predicted: the committed one, and that of extra packages."""
        lock = self.workspace.read_lock(spec.runtime)
        return {**lock, **({"own": spec.extra.lock} if spec.extra and spec.extra.lock else {})}

    def _variant_lock(self, spec: ImageSpec, identifier: str, lock: Lock) -> str:
        """Return the requirement file of a variant: the committed one, that of an earlier run, or one resolved now."""
        committed = self.workspace.lock(identifier, "variant")
        if committed.exists():
            return committed.read_text()
        requirements = spec.variant_requirements
        asked = hashlib.sha256("\n".join([hash_lock(lock), str(spec.cutoff), *requirements]).encode()).hexdigest()
        kept = self.services.state / "locks" / f"{identifier}-{asked[:16]}.txt"
        if not kept.exists():
            write_atomically(kept, self._resolve(spec, lock, requirements))
        return kept.read_text()

    def read_committed(self, spec: ImageSpec) -> Lock:
        """Return the committed lock of an image, or of its variant alone; empty without one."""
        return {file.stem: file.read_text() for file in sorted(self.workspace.locks(spec.identifier).glob("*.txt"))}

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

    def resolve_variants(self, specs: Sequence[ImageSpec]) -> Iterator[tuple[ImageSpec, Lock | LockError]]:
        """Resolve the requirement files of variants above committed locks; yield each, or why there is none."""

        def resolve(spec: ImageSpec) -> Lock | LockError:
            try:
                lock = self.workspace.read_lock(spec.runtime)
                fixes = find_fixes(self.read_committed(spec))
                return {"variant": self._resolve(spec, lock, spec.variant_requirements, fixes=fixes)}
            except LockError as error:
                return error

        yield from zip(specs, map_in_threads(resolve, specs, MAX_RESOLUTIONS), strict=True)

    def add_packages(
        self,
        spec: ImageSpec,
        requirements: Sequence[str],
        system_packages: Sequence[str] = (),
        as_of: date | None = None,
    ) -> ImageSpec:
        """Return an image with extra packages, resolved as of its release's time or of a day.

        Raises `RequirementConflict` if they would move a package of the image, `LockError`.
        """
        lock = self._resolve(spec, self.find(spec), requirements, as_of) if requirements else ""
        own = ExtraPackages(requirements=tuple(requirements), system_packages=tuple(system_packages), lock=lock)
        return with_extra_packages(spec, own)

    def _resolve(
        self,
        spec: ImageSpec,
        lock: Lock,
        requirements: Sequence[str],
        as_of: date | None = None,
        fixes: tuple[LockedPackage, ...] = (),
    ) -> str:
        """Return the requirement file of packages above a lock. Raises `RequirementConflict` with an explanation."""
        # The parsers of requirements, which finding a lock need not import.
        from tfimg.recipe.packages import Resolver, explain_conflict

        resolver = Resolver(
            spec=spec,
            lock=lock,
            newer=self.newer,
            uv=self.services.uv(),
            env=self.services.network.environment(self.services.environ),
            as_of=as_of,
            find_links=self.find_links,
            fixes=fixes,
        )
        try:
            found = resolver.find(requirements)
        except LockError as error:
            find_image = partial(self._find_image, spec)
            raise explain_conflict(
                resolver, requirements, error, today=self.services.today, find_image=find_image
            ) from None
        return resolver.format(requirements, found)

    def _find_image(self, spec: ImageSpec, name: str, specifier: str) -> str | None:
        """Return the request for the image closest to `spec` that is locked with a version of a package."""
        place = next((number for number, one in enumerate(self.specs) if one.identifier == spec.runtime), 0)
        near = sorted(
            (one for one in self.specs if (one.device, one.platform) == (spec.device, spec.platform)),
            key=lambda one: (one.python != spec.python, abs(self.specs.index(one) - place)),
        )
        for one in near:
            if not (one.is_newest_patch and self.workspace.locks(one.identifier).exists()):
                continue
            versions = {
                package.name: package.version for package in read_packages(self.workspace.read_lock(one.identifier))
            }
            versions.setdefault(ALIAS, one.tensorflow)
            if name in versions and SpecifierSet(specifier).contains(versions[name], prereleases=True):
                return f"{one.identifier}, which has {name} {versions[name]}"
        return None


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
    except InvalidWheel as error:
        if type(error) is not InvalidWheel:
            raise
        # It is in no lock, which the advice for wheels of a package index is about.
        raise InvalidWheel(error.what, next_step="Copy, download or build it again.") from None
    return make_custom_spec(matrix, facts, given, as_of or services.today)


def resolve_custom_lock(spec: ImageSpec, newer: Newer, services: Services, find_links: Path | None = None) -> Lock:
    """Return the lock of a custom image: one that was resolved before for the same requirements and day, or a new one.

    Raises `LockError` when there is no solution, `NetworkError`.
    """
    from tfimg.recipe.packages import list_wheels

    # NVIDIA's wheels for a CUDA may be newer than the day, as in images of the matrix.
    latest = replace(newer, as_of=max(newer.as_of, spec.cutoff))
    query = make_query(spec, latest, find_links)
    links = [hash_file(wheel) for wheel in list_wheels(find_links)] if find_links else []
    asked = repr((query, spec.wheel, *links))
    kept = services.state / "locks" / f"{spec.runtime}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
    if kept.is_file():
        from tfimg.core.documents import InvalidDocument, parse_document  # pydantic, which few commands need

        try:
            return parse_document(dict[str, str], kept.read_bytes())
        except InvalidDocument:
            pass  # resolved again
    env = services.network.environment(services.environ)
    try:
        lock = resolve_lock(spec, latest, uv=services.uv(), env=env, find_links=find_links)
    except LockError as error:
        raise LockError(
            error.what,
            next_step="Name the day that its requirements are of with --as-of, or build the wheel with others.",
        ) from None
    write_atomically(kept, json.dumps(lock))
    return lock

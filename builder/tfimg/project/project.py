"""A project: matrix, locks, records, images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tfimg.core.errors import FileError, ImageMissing, MatrixError, ResolutionError, UnlabelledImage, UsageError
from tfimg.core.files import hash_files, write_atomically
from tfimg.core.levels import Level
from tfimg.core.paths import Workspace, find_workspace
from tfimg.matrix.checked import load_matrix
from tfimg.matrix.conditions import Request, find_spec, select_variants
from tfimg.matrix.resolve import Resolution, resolve
from tfimg.matrix.schema import RUNTIME, Matrix, check_repository_name
from tfimg.matrix.spec import (
    CUSTOM_PREFIX,
    EXTRA_SUFFIX,
    ExtraPackages,
    ImageSpec,
    expand_matrix,
    with_extra_packages,
    with_variant,
)
from tfimg.matrix.support_ends import SupportEnd, find_support_ends_of
from tfimg.project.locks import Locks
from tfimg.project.proofs import list_record_files, read_proofs
from tfimg.project.services import Services
from tfimg.recipe.labels import DECLARED, IDENTIFIER_LABEL, Status, describe_image, read_extra_labels
from tfimg.recipe.lock import Lock, hash_lock

if TYPE_CHECKING:
    from jinja2 import Environment

    from tfimg.engine.interface import Engine
    from tfimg.host.survey import TargetHost
    from tfimg.recipe.plan import Plan
    from tfimg.recipe.support import Support
    from tfimg.validation.record import ImageRecord, RecordedBase
    from tfimg.validation.report import Report
    from tfimg.validation.run import InventoryCache


def read_record(workspace: Workspace, identifier: str) -> ImageRecord | None:
    """Return the record of an image, of whatever lock; None without. Raises `FileError`."""
    first = next(list_record_files(workspace, identifier), None)
    return first.parse() if first and first.where == "container" else None


def write_record(
    workspace: Workspace, report: Report, *, content: str | None, recipe: str | None, base: RecordedBase | None = None
) -> None:
    """Write record into the workspace if a report proves more than that the image was built.

    `content` and `recipe` are those of the image, as in `LocalImage` and its label. Records of a higher level for the
    same lock stays: a machine without a GPU does not replace what one with a GPU has proven. So does record of the
    same level on the official base, which most users have.
    """
    from tfimg.validation.record import format_image_record, make_image_record

    if report.level == Level.BUILT:
        return
    record = make_image_record(report, content=content, recipe=recipe, base=base)
    with suppress(FileError):
        earlier = read_record(workspace, report.identifier)
        if earlier and earlier.lock == record.lock and _rank(earlier) > _rank(record):
            return
    write_atomically(workspace.record(report.identifier), format_image_record(record))


def _rank(record: ImageRecord) -> tuple[Level, bool]:
    return record.level, record.base is not None and record.base.kind == "official"


NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Project:
    """A checkout or the installed data: its matrix, the images of it, and how each is built.

    `repository_override` replaces the matrix's repository of tags. `find_links` is a folder of wheels that no package
    index has, such as libtpu's.
    """

    services: Services = field(default_factory=Services)
    repository_override: str | None = None
    find_links: Path | None = None

    @cached_property
    def workspace(self) -> Workspace:
        """The folder with the matrix and the files of images."""
        return find_workspace(self.services.environ)

    @cached_property
    def matrix(self) -> Matrix:
        """The compatibility matrix. Raises `MatrixError`."""
        text, source = self.workspace.read_matrix(), self.workspace.matrix.name
        return load_matrix(text, source=source, today=self.services.today, cache=self.services.cache)

    @cached_property
    def specs(self) -> Sequence[ImageSpec]:
        """Every image of the matrix; with `find_links` also those whose libtpu has to be supplied."""
        return expand_matrix(self.matrix, local_wheels=self.find_links is not None)

    def spec(self, identifier: str, labels: Mapping[str, str] = NO_LABELS) -> ImageSpec:
        """Return the image of an identifier, which may be abbreviated. Raises `ResolutionError` if there is none.

        Only `labels` of an image know the wheel of one that begins with `custom-`, and only `spec_of_labels` the
        packages of one that ends in `-own`.
        """
        name = identifier.removesuffix(EXTRA_SUFFIX)
        variant = next((one for one in self.matrix.variants if name.endswith(f"-{one}")), RUNTIME)
        found = find_spec(self.specs, name.removesuffix(f"-{variant}"))
        if found is None and identifier.startswith(CUSTOM_PREFIX):
            from tfimg.custom.image import parse_custom_identifier, read_custom_labels

            plain = name.removesuffix(f"-{variant}")
            labelled = read_custom_labels(self.matrix, labels)
            is_labelled = labelled is not None and labelled.identifier == plain
            found = labelled if is_labelled else parse_custom_identifier(plain, self.specs)
        if found is None:
            raise ResolutionError(
                f"The matrix has no image {identifier!r}.", next_step="`tfimg list` shows all identifiers."
            )
        spec = with_variant(found, variant, self.matrix.variants)
        return with_extra_packages(spec, ExtraPackages()) if name != identifier else spec

    def spec_of_labels(self, labels: Mapping[str, str], identifier: str | None = None) -> ImageSpec | None:
        """Return the image of `identifier`, else of its label; None without.

        Raises `ResolutionError`, and `UnlabelledImage` for labels that tfimg never writes.
        """
        name = identifier or labels.get(IDENTIFIER_LABEL)
        spec = self.spec(name, labels) if name else None
        own = read_extra_labels(labels) if spec and spec.extra else None
        return replace(spec, extra=own) if spec and own else spec

    def list_variants(self, engine: Engine) -> tuple[ImageSpec, ...]:
        """Return the images beside the matrix that an engine has: of variants, packages of users, custom wheels."""
        found = {}
        for image in engine.list_images():
            if any(name.startswith(f"{self.repository}:") for name in image.names):
                with suppress(ResolutionError, UnlabelledImage):  # of another matrix, or with labels of others
                    spec = self.spec_of_labels(image.labels)
                    if spec and (spec.suffix or spec.wheel):
                        found[spec.identifier] = spec
        return tuple(found.values())

    def resolve(self, request: Request) -> Resolution:
        """Return the image that meets a request. Raises `ResolutionError`."""
        return resolve(self.matrix, self.specs, request)

    def find_support_ends(self, identifier: str) -> tuple[SupportEnd, ...] | None:
        """Return when security fixes of an image end, also of one that the matrix lacks; None if that is not known.

        A matrix that is not valid knows nothing: images are verified without one.
        """
        try:
            return find_support_ends_of(self.matrix, identifier)
        except MatrixError:
            return None

    def select(self, patterns: Sequence[str], variant: str | None = None) -> tuple[ImageSpec, ...]:
        """Return the images that patterns select; see `select_variants`. Raises `ResolutionError`."""
        return select_variants(self.specs, patterns, self.matrix.variants, variant or RUNTIME)

    @cached_property
    def locks(self) -> Locks:
        """The locks of the images, committed and resolved now."""
        return Locks(
            workspace=self.workspace,
            services=self.services,
            newer=self.matrix.newer,
            specs=self.specs,
            variants=self.matrix.variants,
            find_links=self.find_links,
        )

    def lock(self, spec: ImageSpec) -> Lock:
        """Return the lock of an image to build; see `Locks.find`."""
        return self.locks.find(spec)

    def plan(self, spec: ImageSpec) -> Plan:
        """Return what to build of an image. Raises as `lock` does, and `RenderError`."""
        from tfimg.recipe.plan import Plan, find_dockerfile
        from tfimg.recipe.tags import list_tags

        lock = self.lock(spec)
        wheels = self.locks.local_wheels(spec, lock)
        folder = self.services.cache / "dockerfiles"
        dockerfile, steps = find_dockerfile(
            spec, lock, self._template_texts, lambda: self.templates, folder, wheels=bool(wheels)
        )
        tags = list_tags(spec, repository=self.repository)
        return Plan(spec=spec, lock=lock, dockerfile=dockerfile, steps=steps, tags=tags, wheels=wheels)

    @cached_property
    def _template_texts(self) -> Mapping[str, str]:
        return self.workspace.read_templates()

    @cached_property
    def templates(self) -> Environment:
        """The Dockerfile templates."""
        from tfimg.recipe.plan import make_template_environment

        return make_template_environment(self._template_texts)

    @cached_property
    def build_files_digest(self) -> str:
        """Digest of the files of `images/` that every build uses."""
        return hash_files(self.workspace.read_build_files())

    @cached_property
    def revision(self) -> str | None:
        """Git commit of the checkout; see `Workspace.revision`."""
        return self.workspace.revision()

    @cached_property
    def repository(self) -> str:
        """Repository of the tags. Raises `UsageError` for a name that is not a repository."""
        if self.repository_override is None:
            return self.matrix.repository
        try:
            return check_repository_name(self.repository_override)
        except ValueError as error:
            raise UsageError(
                f"--repository {error}.",
                next_step="Write for example tfimg/tensorflow or registry.example:5000/team/tensorflow, without a tag.",
            ) from None

    def describe(self, spec: ImageSpec) -> dict[str, Any]:
        """Return an image as the JSON object that `resolve` prints."""
        return self.describe_all([spec])[0]

    def describe_all(self, specs: Sequence[ImageSpec]) -> list[dict[str, Any]]:
        """Return images as the JSON objects that `list` prints."""
        statuses = self.find_statuses(specs)
        return [describe_image(spec, repository=self.repository, status=statuses[spec.identifier]) for spec in specs]

    @cached_property
    def statuses(self) -> Mapping[str, Status]:
        """What record proves of every image, by identifier."""
        return self.find_statuses(self.specs)

    @cached_property
    def support(self) -> tuple[Support, ...]:
        """What each row of the matrix supports, and how much of it is proven."""
        from tfimg.recipe.support import summarize_support

        return summarize_support(self.matrix, self.specs, self.statuses)

    def status(self, spec: ImageSpec) -> Status:
        """Return what records prove of an image."""
        return self.find_statuses([spec])[spec.identifier]

    def find_statuses(self, specs: Sequence[ImageSpec]) -> dict[str, Status]:
        """Return what records prove of images, by identifier."""
        found = dict.fromkeys((spec.identifier for spec in specs), DECLARED)
        proofs = read_proofs(self.workspace, found, self.services.cache)
        for spec in specs:
            if proofs[spec.identifier]:
                lock = hash_lock(self.lock(spec))
                valid = [proof for proof in proofs[spec.identifier] if proof.lock == lock]
                status = next((proof.status for proof in valid if proof.status), DECLARED)
                machines = tuple(proof.machine for proof in valid if proof.machine)
                found[spec.identifier] = replace(status, host_machines=machines)
        return found

    @property
    def inventories(self) -> InventoryCache:
        """The inventories of image contents that are kept in the state folder."""
        from tfimg.validation.run import InventoryCache

        script = (self.workspace.images / "inventory.py").read_bytes()
        return InventoryCache(folder=self.services.state / "inventories", script=script)

    def require_image(self, engine: Engine, image: str) -> str:
        """Return the digest of an image in an engine. Raises `ImageMissing` if there is none."""
        digest = engine.find_digest(image)
        if digest is None:
            # An identifier or a tag, as `tfimg build` takes and shows them.
            whole = f"{self.repository}:{image}"
            known = not set(image) & set(":/@") and engine.find_digest(whole)
            step = f"It has {whole}: give the whole name." if known else "Build or pull it first."
            raise ImageMissing(f"The engine has no image {image}.", next_step=step)
        return digest

    def spec_of_image(self, engine: Engine, image: str, identifier: str | None = None) -> ImageSpec:
        """Return the row of an image in an engine: that of `identifier`, else that of its label.

        Raises `ImageMissing` if there is no image, `UnlabelledImage` if it has no label.
        """
        self.require_image(engine, image)
        spec = self.spec_of_labels(engine.find_labels(image) or {}, identifier)
        if spec is None:
            raise UnlabelledImage(
                f"{image} has no label {IDENTIFIER_LABEL}, which names its identifier.",
                next_step="Name it with --as IDENTIFIER; `tfimg list` shows all identifiers.",
            )
        return spec

    def target_host(self, engine: Engine) -> TargetHost:
        """Return where images run: this machine, and an engine."""
        from tfimg.host.survey import TargetHost

        toolkit = engine.get_device_support()
        host = self.services.survey(toolkit.host)
        return TargetHost(matrix=self.matrix, specs=self.specs, host=host, toolkit=toolkit)

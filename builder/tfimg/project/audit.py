"""Packages of images to audit, and fixes of their locks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from cyclonedx.exception import CycloneDxException

from tfimg.advisories import audit, match
from tfimg.advisories.fix import LockFix, LockFixer
from tfimg.advisories.service import OsvService
from tfimg.attestations import envelopes, predicates
from tfimg.core import cancellation, documents, errors, text
from tfimg.engine.interface import Engine
from tfimg.inspect.inspection import Bill, Inspection
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.lock import MAX_RESOLUTIONS, Lock, read_packages, resolve_packages
from tfimg.validation.report import take_inventory


def fix_locks(
    project: Project, plain: Sequence[ImageSpec], varied: Sequence[ImageSpec], service: OsvService
) -> Iterator[LockFix]:
    """Yield the fix of each image's lock, then of each variant's part above it. Raises `NetworkError`."""
    services, locks = project.services, project.locks
    env = services.network.environment(services.environ)
    fixer = LockFixer(
        newer=project.matrix.newer,
        risks=[risk for risk in project.matrix.accepted_risks if risk.review_by >= services.today],
        find=service.find,
        resolve=partial(resolve_packages, uv=services.uv(), env=env),
        today=services.today,
    )

    def fix_plain(spec: ImageSpec) -> LockFix:
        above = [(variant, locks.read_committed(variant)) for variant in locks.list_committed_variants([spec])]
        return fixer.fix(spec, locks.read_committed(spec), above=above)

    def fix_variant(spec: ImageSpec) -> LockFix:
        below = fixed.get(spec.runtime) or project.workspace.read_lock(spec.runtime)
        return fixer.fix(spec, locks.read_committed(spec), below=below)

    fixed: dict[str, Lock] = {}
    for fix in cancellation.map_in_threads(fix_plain, plain, MAX_RESOLUTIONS):
        fixed[fix.spec.identifier] = {**locks.read_committed(fix.spec), **fix.changed}
        yield fix
    yield from cancellation.map_in_threads(fix_variant, varied, MAX_RESOLUTIONS)


def read_locked_images(project: Project, specs: Sequence[ImageSpec]) -> Iterator[audit.AuditedImage]:
    """Yield what the locks of images and of their variants install. Raises `LockError`."""
    project.workspace.require_locks(spec.runtime for spec in specs)
    for spec in (*specs, *project.locks.list_committed_variants(specs)):
        found = match.read_lock_packages(read_packages(project.lock(spec)))
        yield audit.AuditedImage(identifier=spec.identifier, packages=found)


def read_built_image(project: Project, engine: Engine, name: str) -> audit.AuditedImage:
    """Return the Python and Debian packages of an image in the engine. Raises `EngineError` and `ValidationAborted`."""
    spec = project.spec_of_image(engine, name)
    inventory = take_inventory(name, (project.workspace.images / "inventory.py").read_bytes(), engine=engine)
    try:
        purls = [component.purl for component, _ in predicates.list_components(inventory) if component.purl]
        packages = match.read_components(purls, spec.tensorflow if spec.wheel else None)
    except (ValueError, CycloneDxException) as error:  # names, versions and addresses come from the image
        raise errors.ValidationAborted(
            f"The packages of {name} cannot be read: {text.to_plain_text(text.truncate(str(error))).rstrip('.')}.",
            next_step=predicates.INVALID_CONTENTS,
        ) from None
    return audit.AuditedImage(identifier=spec.identifier, packages=packages, imported=inventory.imported)


def read_published_image(project: Project, name: str, image: Inspection, *, trusts_keys: bool) -> audit.AuditedImage:
    """Return the packages of an image in a registry, by its bill of materials.

    With `trusts_keys`, only a bill that one of the keys of the inspection signed counts. Raises `UnsignedError` without
    a bill, `TamperedError` for one that cannot be read, and `UnlabelledImage` for an image of another program.
    """
    bills = [one for one in image.attestations if one.kind == envelopes.CYCLONEDX and (one.signer or not trusts_keys)]
    if not bills:
        raise errors.UnsignedError(
            f"{name} has no bill of materials{' that a trusted key signed' if trusts_keys else ''}.",
            next_step="Name the publisher's key with --public-key, or pull the image and name it with --built.",
        )
    spec = project.spec_of_labels(image.labels)
    if spec is None:
        raise errors.UnlabelledImage(f"{name} does not say which image it is.", next_step="Name an image of tfimg.")
    try:
        purls = [component.parse_purl() for component in documents.validate_model(Bill, bills[0].predicate).components]
        if None in purls:
            raise documents.InvalidDocument("a component has no valid package URL")
        packages = match.read_components(filter(None, purls), spec.tensorflow if spec.wheel else None)
        return audit.AuditedImage(identifier=spec.identifier, packages=packages)
    except documents.InvalidDocument as error:
        raise errors.TamperedError(
            f"The bill of materials of {name} cannot be read: {error}.",
            next_step="Pull the image and audit it with --built.",
        ) from None

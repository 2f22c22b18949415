"""`tfimg audit`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.advisory_options import AdvisoryOptions
from tfimg.cli.context import Context
from tfimg.cli.options import Command, Patterns, values
from tfimg.cli.trust_options import TrustedKeyOptions
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from tfimg.advisories.audit import AuditedFinding, AuditedImage, AuditResult
    from tfimg.matrix.spec import ImageSpec


@dataclass(frozen=True, kw_only=True)
class Audit(Command, AdvisoryOptions, TrustedKeyOptions, Patterns):
    """Find known vulnerabilities of what locks install, or of all packages of images.

    Examples:
      tfimg audit '2.21*' --advisories osv-export.zip
      tfimg audit --built tfimg/tensorflow:2.15 --advisories https://osv.example
    """

    built: tuple[str, ...] = values("audit an image in the engine instead of locks, Debian packages included", "IMAGE")
    published: tuple[str, ...] = values("audit an image in a registry, by its bill of materials", "IMAGE")

    def run(self, context: Context) -> int:
        """Print the findings. Raises `VulnerablePackage`, `ExpiredRisk` or `NotAudited` if the result is not green."""
        from tfimg.advisories.audit import audit

        if (self.built or self.published) and self.patterns:
            raise UsageError(
                "PATTERN selects locks, and cannot be combined with --built or --published.",
                next_step="Leave PATTERN out.",
            )
        if self.built or self.published:
            images = [*self._read_built(context), *self._read_published(context)]
        else:
            images = [*self._read_locks(context)]
        packages = list(dict.fromkeys(package for image in images for package in image.packages))
        index = self.read_advisories(context, packages)
        result = audit(images, index, context.project.matrix.accepted_risks, today=context.services.today)
        context.print_result(
            result.to_json(), lambda: _print_result(result, has_debian=bool(self.built or self.published))
        )
        result.raise_for_findings()
        return 0

    def _read_locks(self, context: Context) -> Iterator[AuditedImage]:
        from tfimg.advisories.audit import AuditedImage
        from tfimg.advisories.packages import read_lock_packages
        from tfimg.recipe.lockfile import read_packages

        project = context.project
        specs = project.select(self.patterns)
        project.workspace.require_locks(spec.runtime for spec in specs)
        for spec in (*specs, *project.locks.list_committed_flavors(specs)):
            found = read_lock_packages(read_packages(project.lock(spec)))
            yield AuditedImage(identifier=spec.identifier, packages=found)

    def _read_built(self, context: Context) -> Iterator[AuditedImage]:
        from tfimg.advisories.audit import AuditedImage
        from tfimg.advisories.packages import read_bill
        from tfimg.evidence.sbom import list_components
        from tfimg.validation.inventory import take_inventory

        script = (context.project.workspace.images / "inventory.py").read_bytes()
        for name in self.built:
            spec = context.project.spec_of_image(context.services.runner(), name)
            context.say(f"Taking the inventory of {name}")
            inventory = take_inventory(name, script, engine=context.services.runner())
            bill = {"components": [{"purl": str(component.purl)} for component, _ in list_components(inventory)]}
            packages = read_bill(bill, _find_supplied(spec))
            imported = inventory["imported"]
            yield AuditedImage(
                identifier=spec.identifier,
                packages=packages,
                imported=None if imported is None else frozenset(imported),
            )

    def _read_published(self, context: Context) -> Iterator[AuditedImage]:
        from tfimg.advisories.audit import AuditedImage
        from tfimg.advisories.packages import read_bill
        from tfimg.cli.commands.inspect import read_image
        from tfimg.core.documents import InvalidDocument
        from tfimg.core.errors import TamperedError, UnlabelledImage, UnsignedError
        from tfimg.evidence.statement import CYCLONEDX

        keys = self.public_keys(context.services.environ)
        for name in self.published:
            image = read_image(context, name, local=False, keys=keys)
            bills = [one for one in image.evidence if one.kind == CYCLONEDX and (one.signer or not keys)]
            if not bills:
                raise UnsignedError(
                    f"{name} has no bill of materials{' that a trusted key signed' if keys else ''}.",
                    next_step="Name the publisher's key with --public-key, or pull the image and name it with --built.",
                )
            spec = context.project.spec_of_labels(image.labels)
            if spec is None:
                raise UnlabelledImage(f"{name} does not say which image it is.", next_step="Name an image of tfimg.")
            try:
                packages = read_bill(bills[0].predicate, _find_supplied(spec))
            except InvalidDocument as error:
                raise TamperedError(
                    f"The bill of materials of {name} cannot be read: {error}.",
                    next_step="Pull the image and audit it with --built.",
                ) from None
            yield AuditedImage(identifier=spec.identifier, packages=packages)


def _find_supplied(spec: ImageSpec) -> str | None:
    """Return the version of a TensorFlow whose wheel a user supplied; None for one from the package index."""
    return spec.tensorflow if spec.wheel else None


def _print_result(result: AuditResult, *, has_debian: bool) -> None:
    from tfimg.cli.output.tables import print_rows

    if result.findings:
        columns = ("PACKAGE", "ADVISORY", "SEVERITY", "FIXED IN", "IMPORTED", "STATUS", "IMAGES")
        print_rows(columns, map(_format_finding, result.findings), folding=("ADVISORY", "STATUS"))
    if result.not_audited:
        rows = [(str(package), reason, _format_images(images)) for package, reason, images in result.not_audited]
        print_rows(("NOT AUDITED", "REASON", "IMAGES"), rows, folding=("REASON",))
    for risk in result.expired:
        print(f"Expired on {risk.review_by}: {risk.advisory} of {risk.package} ({risk.reason})")
    if not has_debian:
        print("A lock has no Debian packages: --built IMAGE and --published IMAGE audit those too.")
    print(f"{result.sentence} ({result.source})")


def _format_finding(found: AuditedFinding) -> tuple[str, ...]:
    finding, risk = found.finding, found.accepted
    imported = {True: "yes", False: "no", None: "not known"}[found.imported]
    return (
        str(finding.package),
        " ".join((finding.identifier, *finding.aliases)),
        str(finding.severity),
        ", ".join(finding.fixed) or "-",
        imported if finding.package.ecosystem == "PyPI" else "-",
        f"accepted until {risk.review_by}: {risk.reason}" if risk else "open",
        _format_images(found.images),
    )


def _format_images(images: tuple[str, ...]) -> str:
    return images[0] + (f" and {len(images) - 1} more" if images[1:] else "")

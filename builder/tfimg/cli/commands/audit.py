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


@dataclass(frozen=True, kw_only=True)
class Audit(Command, AdvisoryOptions, TrustedKeyOptions, Patterns):
    """Find known vulnerabilities of what locks install, or of all packages of images.

    Examples:
      tfimg audit '2.21*'
      tfimg audit --built tfimg/tensorflow:2.15 --osv https://osv.example
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
        images = list(self._read_images(context))
        packages = list(dict.fromkeys(package for image in images for package in image.packages))
        service = self.ask_service(context, packages)
        risks, today = context.project.matrix.accepted_risks, context.services.today
        result = audit(images, service.find(packages), risks, source=service.url, today=today)
        context.print_result(
            result.to_json(), lambda: _print_result(result, has_debian=bool(self.built or self.published))
        )
        result.raise_for_findings()
        return 0

    def _read_images(self, context: Context) -> Iterator[AuditedImage]:
        from tfimg.cli.commands.inspect import read_image
        from tfimg.project.audit import read_built_image, read_locked_images, read_published_image

        project = context.project
        if not (self.built or self.published):
            yield from read_locked_images(project, project.select(self.patterns))
        for name in self.built:
            context.say(f"Taking the inventory of {name}")
            yield read_built_image(project, context.services.runner(), name)
        keys = self.public_keys(context.services.environ) if self.published else ()
        for name in self.published:
            image = read_image(context, name, local=False, keys=keys)
            yield read_published_image(project, name, image, trusts_keys=bool(keys))


def _print_result(result: AuditResult, *, has_debian: bool) -> None:
    from tfimg.cli.output.tables import print_rows

    if result.findings:
        columns = ("PACKAGE", "ADVISORY", "SEVERITY", "FIXED IN", "IMPORTED", "STATUS", "IMAGES")
        print_rows(columns, map(_format_finding, result.findings), folding=("ADVISORY", "STATUS"))
    if result.not_audited:
        rows = [(str(package), reason, _format_images(images)) for package, reason, images in result.not_audited]
        print_rows(("NOT AUDITED", "REASON", "IMAGES"), rows, folding=("REASON",))
    for risk in result.expired:
        print(f"Expired on {risk.review_by}: {risk} ({risk.reason})")
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

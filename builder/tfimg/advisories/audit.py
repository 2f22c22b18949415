"""Audit images: the defects of their packages, less the accepted ones, and the packages that were not judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from tfimg.advisories.match import AuditedPackage, Finding
from tfimg.core import errors, text
from tfimg.matrix.load import dump_facts
from tfimg.matrix.schema import AcceptedRisk

MAX_LISTED = 5  # packages or acceptances that a message names


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedImage:
    """An image with its packages.

    `imported` are the Python packages that `import tensorflow` loads; None if that is not known, as of a lock.
    """

    identifier: str
    packages: tuple[AuditedPackage, ...]
    imported: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedFinding:
    """A defect with the images that have it. `accepted` is the risk that covers them, `imported` is as in the image."""

    finding: Finding
    images: tuple[str, ...]
    accepted: AcceptedRisk | None
    imported: bool | None

    def to_json(self) -> dict[str, Any]:
        finding = self.finding
        return {
            "advisory": finding.identifier,
            "aliases": list(finding.aliases),
            **finding.package.to_json(),
            "severity": finding.severity.word,
            "score": finding.severity.score,
            "vector": finding.severity.vector,
            "fixed": list(finding.fixed),
            "imported_by_tensorflow": self.imported,
            "images": list(self.images),
            "accepted": dump_facts(self.accepted, mode="json") if self.accepted else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditResult:
    """What advisories say of images. `not_audited` are packages with reason and images."""

    source: str
    images: tuple[str, ...]
    packages: int
    findings: tuple[AuditedFinding, ...]
    not_audited: tuple[tuple[AuditedPackage, str, tuple[str, ...]], ...]
    expired: tuple[AcceptedRisk, ...]
    unused: tuple[AcceptedRisk, ...]

    @property
    def open(self) -> tuple[AuditedFinding, ...]:
        return tuple(finding for finding in self.findings if finding.accepted is None)

    def to_json(self) -> dict[str, Any]:
        return {
            "event": "audited",
            "source": self.source,
            "images": list(self.images),
            "packages": self.packages,
            "findings": [finding.to_json() for finding in self.findings],
            "not_audited": [
                {**package.to_json(), "reason": reason, "images": list(images)}
                for package, reason, images in self.not_audited
            ],
            "expired": [dump_facts(risk, mode="json") for risk in self.expired],
            "unused": [dump_facts(risk, mode="json") for risk in self.unused],
        }

    @property
    def sentence(self) -> str:
        """For example `83 packages of 2 images: 3 advisories, 1 of them accepted; 1 package not audited`."""
        accepted = len(self.findings) - len(self.open)
        words = f"{_count(self.packages, 'package')} of {_count(len(self.images), 'image')}: "
        words += f"{len(self.findings)} advisor{'y' if len(self.findings) == 1 else 'ies'}"
        words += f", {accepted} of them accepted" if accepted else ""
        return words + (f"; {_count(len(self.not_audited), 'package')} not audited" if self.not_audited else "")

    def raise_for_findings(self) -> None:
        """Raise `VulnerablePackage`, `ExpiredRisk` or `NotAudited` for what keeps the result from being green."""
        if self.open:
            packages = dict.fromkeys(str(one.finding.package) for one in self.open)
            raise errors.VulnerablePackage(
                f"{len(self.open)} advisor{'y affects' if len(self.open) == 1 else 'ies affect'} "
                f"{text.list_first(list(packages), MAX_LISTED)}.",
                next_step="`tfimg matrix lock --fix` moves Python packages to fixed versions and says what blocks a "
                "fix; Debian packages come with a newer base (`tfimg build --renew-base`); `accepted_risks` of "
                "matrix.yaml accepts a risk with a reason until a day.",
            )
        raise_for_expired(self.expired)
        if self.not_audited:
            listed = [f"{package} ({reason})" for package, reason, _ in self.not_audited]
            raise errors.NotAudited(
                f"Nothing is known of {_count(len(listed), 'package')}: {'; '.join(listed[:MAX_LISTED])}"
                f"{f'; and {len(listed) - MAX_LISTED} more' if len(listed) > MAX_LISTED else ''}.",
                next_step="Check such packages yourself.",
            )


def audit(
    images: Sequence[AuditedImage],
    findings: Mapping[AuditedPackage, Sequence[Finding]],
    risks: Sequence[AcceptedRisk],
    *,
    source: str,
    today: date,
) -> AuditResult:
    """Return what advisories say of images; `risks` are accepted until their day of review.

    `findings` are those of all packages but the ones with a problem, from the service `source`.
    """
    users: dict[AuditedPackage, list[AuditedImage]] = {}
    for image in images:
        for package in dict.fromkeys(image.packages):
            users.setdefault(package, []).append(image)
    packages = sorted(users, key=lambda one: (one.ecosystem, one.installed, one.version))
    valid = [risk for risk in risks if risk.review_by >= today]
    found = [
        split
        for package in packages
        if package.problem is None
        for finding in findings[package]
        for split in _split_accepted(finding, users[package], valid)
    ]
    used = {id(finding.accepted) for finding in found}
    return AuditResult(
        source=source,
        images=tuple(image.identifier for image in images),
        packages=len(users),
        findings=tuple(found),
        not_audited=tuple(
            (package, package.problem, tuple(image.identifier for image in users[package]))
            for package in packages
            if package.problem
        ),
        expired=find_expired(risks, today),
        unused=tuple(risk for risk in valid if id(risk) not in used),
    )


def find_risk(finding: Finding, image: str, risks: Iterable[AcceptedRisk]) -> AcceptedRisk | None:
    return next(
        (
            risk
            for risk in risks
            if not finding.identifiers.isdisjoint(risk.advisories)
            and risk.package in (finding.package.name, finding.package.installed, *finding.package.aliases)
            and fnmatchcase(image, risk.images)
        ),
        None,
    )


def find_expired(risks: Iterable[AcceptedRisk], today: date) -> tuple[AcceptedRisk, ...]:
    return tuple(risk for risk in risks if risk.review_by < today)


def raise_for_expired(expired: Sequence[AcceptedRisk]) -> None:
    """Raise `ExpiredRisk` if there are expired acceptances."""
    if expired:
        listed = [f"{risk} ({risk.review_by})" for risk in expired]
        raise errors.ExpiredRisk(
            f"{_count(len(expired), 'accepted risk')} of matrix.yaml {'is' if len(expired) == 1 else 'are'} past the "
            f"day of review: {text.list_first(listed, MAX_LISTED)}.",
            next_step="Review each: fix it with `tfimg matrix lock --fix`, or give it a new reason and day.",
        )


def _split_accepted(
    finding: Finding, images: Sequence[AuditedImage], risks: Sequence[AcceptedRisk]
) -> Iterator[AuditedFinding]:
    """Yield a defect once for the images without an acceptance, and once for each acceptance."""
    groups: dict[int, tuple[AcceptedRisk | None, list[AuditedImage]]] = {}
    for image in images:
        risk = find_risk(finding, image.identifier, risks)
        groups.setdefault(id(risk), (risk, []))[1].append(image)
    name = finding.package.name
    for risk, group in groups.values():
        known = {name in image.imported if image.imported is not None else None for image in group}
        imported = True if True in known else None if None in known else False
        yield AuditedFinding(
            finding=finding,
            images=tuple(image.identifier for image in group),
            accepted=risk,
            imported=imported if finding.package.ecosystem == "PyPI" else None,
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

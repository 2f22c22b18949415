"""What attestations state: results of the suite, provenance, packages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.exception import CycloneDxException
from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name
from pydantic import Field, StrictBool, StringConstraints

from tfimg.attestations import envelopes
from tfimg.core import documents, errors
from tfimg.core.levels import AttestedLevel, Level
from tfimg.core.text import to_plain_text
from tfimg.matrix.devices import DEVICES, Device
from tfimg.validation.report import GPU_CHECK, About, Inventory, Report

MAX_CHECKS = 10_000  # entries in each list of a test result. The full profile of the suite has 140 checks
MAX_TEXT = 4_096  # characters of a name or reason

ResultWord = Literal["PASSED", "WARNED", "FAILED"]
"""Words of test-result v0.1. It has none for skipped tests: a reader of this alone must not take a gap for a pass."""

Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Names = Annotated[tuple[Text, ...], Field(max_length=MAX_CHECKS)]


class ResultGpu(documents.Document):
    """A GPU of the test's machine."""

    name: Text
    capability: Text


class SkippedCheck(documents.Document):
    """A check without an answer."""

    name: Text
    reason: Text | None = None
    required: StrictBool


class ExemptCheck(documents.Document):
    """A check that the level does not require, with the reason."""

    name: Text
    reason: Text


class ResultEnvironment(documents.Document):
    """The machine of the test."""

    host: Text
    engine: Text
    kernel: Text | None = None
    gpus: tuple[ResultGpu, ...] = Field(default=(), max_length=MAX_CHECKS)
    driver: Text | None = None
    emulated: StrictBool = False


class SignedResult(documents.Document):
    """The predicate of a signed test result, as `make_test_result` writes it."""

    result: ResultWord
    identifier: Text
    device: Device
    level: AttestedLevel
    passed: Names = Field(alias="passedTests")
    failed: Names = Field(alias="failedTests")
    skipped: tuple[SkippedCheck, ...] = Field(alias="skippedTests", max_length=MAX_CHECKS)
    waived: tuple[ExemptCheck, ...] = Field(alias="waivedTests", max_length=MAX_CHECKS)
    unproven: tuple[ExemptCheck, ...] = Field(alias="unprovenTests", max_length=MAX_CHECKS)
    began: envelopes.Time = Field(alias="startedOn")
    ended: envelopes.Time = Field(alias="finishedOn")
    environment: ResultEnvironment

    @property
    def missing(self) -> tuple[SkippedCheck, ...]:
        return tuple(check for check in self.skipped if check.required)

    @property
    def is_pass(self) -> bool:
        """Whether tests passed, none failed, and no required one was skipped, whatever `result` claims."""
        return self.result != "FAILED" and bool(self.passed) and not self.failed and not self.missing

    @property
    def proven_level(self) -> Level:
        """The level that the tests prove: for a GPU image, `validated` needs a machine that named its GPU."""
        saw_gpu = bool(self.environment.gpus) and GPU_CHECK in self.passed
        is_unseen = DEVICES[self.device].is_reported and not saw_gpu
        return Level.LINKED if self.level == Level.VALIDATED and is_unseen else self.level


def read_result(predicate: Mapping[str, Any], *, image: str) -> SignedResult:
    """Return the predicate of a signed test result as a value. Raises `TamperedError` for an invalid one."""
    try:
        return documents.validate_model(SignedResult, predicate)
    except documents.InvalidDocument as error:
        raise errors.TamperedError(
            f"The test result of {image} is invalid: {error}.",
            next_step="Read it with a newer tfimg, or have the image validated again with `tfimg publish --renew`.",
        ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Where a validation ran: the publisher's name of the machine, the engine with its version, tfimg's version."""

    host: str
    engine: str
    version: str


def make_test_result(report: Report, *, subject: envelopes.Subject, ran: RunContext) -> envelopes.Statement:
    """Return in-toto's test-result v0.1, with tfimg's fields for what it lacks.

    The report has to be about the subject's digest: the image, pulled by that digest. Raises `WrongClock`.
    """
    ended = envelopes.require_time(datetime.fromisoformat(report.date))
    began = envelopes.require_time(ended - timedelta(seconds=report.seconds))
    ran_checks = {result.check for result in report.results}
    skipped = [
        {"name": result.check, "reason": result.reason, "required": result.check in report.required}
        for result in report.results
        if result.outcome == "skipped"
    ]
    left_out = [
        {"name": name, "reason": "it was left out", "required": True}
        for name in report.required
        if name not in ran_checks
    ]
    result_word: ResultWord = "WARNED" if report.missing or report.unproven else "PASSED"
    suite = {"name": "suite", "digest": envelopes.digest_set(report.suite), "annotations": {"version": ran.version}}
    lock = {
        "name": "lock",
        "digest": envelopes.digest_set(report.lock),
        "annotations": {"identifier": report.identifier},
    }
    predicate = {
        "result": result_word if report.passed else "FAILED",
        "configuration": [suite, lock],
        "passedTests": [result.check for result in report.results if result.outcome == "passed"],
        "warnedTests": list(report.unproven),
        "failedTests": [result.check for result in report.results if result.outcome not in ("passed", "skipped")],
        "skippedTests": skipped + left_out,
        "waivedTests": [{"name": name, "reason": cause} for name, cause in report.waived.items()],
        "unprovenTests": [{"name": name, "reason": f"it needs {report.missing_hardware}"} for name in report.unproven],
        "problem": report.problem,
        "identifier": report.identifier,
        "device": report.device,
        "level": report.level,
        "profile": report.profile,
        "environment": {
            **report.environment,
            "host": ran.host,
            "engine": ran.engine,
            "tfimg": ran.version,
            "gpus": [{"name": name, "capability": f"sm_{sm.replace('.', '')}"} for name, sm in report.gpus],
            "driver": report.driver,
        },
        "startedOn": envelopes.format_time(began),
        "finishedOn": envelopes.format_time(ended),
    }
    return envelopes.make_statement(subject, envelopes.TEST_RESULT, predicate)


def make_report_statement(report: Report, *, subject: envelopes.Subject) -> envelopes.Statement:
    return envelopes.make_statement(subject, envelopes.REPORT, report.to_json())


BUILD_TYPE = "urn:tfimg:build:1"
"""Meaning of the parameters: an identifier of the matrix, built from its lock on a base."""

SELF_SIGNED = "urn:tfimg:builder:slsa-build-l1"
"""A builder that attests itself: level 1 of SLSA's build track, which requires provenance only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """One build. `locks` are digests of the lock's files by layer, `recipe` is the recipe's digest, `wheel` that of a
    custom TensorFlow.

    `revision` is the git commit of the checkout, `engine` the container engine with its version.
    """

    identifier: str
    base: str
    base_digest: str | None
    locks: Mapping[str, str]
    recipe: str | None
    revision: str | None
    engine: str
    version: str
    ended: datetime
    wheel: str | None = None


def make_provenance(build: BuildRecord, *, subject: envelopes.Subject) -> envelopes.Statement:
    """Return the provenance statement; the claimed level is in the builder's name and in the metadata."""
    dependencies: list[dict[str, Any]] = [{"name": "base", "uri": build.base}]
    if build.base_digest:
        dependencies[0]["digest"] = envelopes.digest_set(build.base_digest)
    locks = {f"lock/{layer}": build.locks[layer] for layer in sorted(build.locks)}
    digests = {**locks, "wheel": build.wheel, "recipe": build.recipe}
    dependencies += [
        {"name": name, "digest": envelopes.digest_set(digest)} for name, digest in digests.items() if digest
    ]
    if build.revision:
        commit, _, dirty = build.revision.partition("-")
        changed = {"annotations": {"uncommittedChanges": True}} if dirty else {}
        dependencies.append({"name": "tfimg", "digest": {"gitCommit": commit}} | changed)
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"identifier": build.identifier},
            "internalParameters": {"engine": build.engine, "tfimg": build.version},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": SELF_SIGNED, "version": {"tfimg": build.version, "engine": build.engine}},
            "metadata": {"finishedOn": envelopes.format_time(build.ended), "slsaBuildLevel": 1},
        },
    }
    return envelopes.make_statement(subject, envelopes.PROVENANCE, predicate)


MAX_PROBLEM = 200  # characters of a problem that a message shows

MAX_ADDRESS, MAX_ADDRESSES = 200, 500
"""Characters of a homepage, and packages whose homepage is listed. The validator takes half a millisecond for each
character: a hostile image could make it run for hours. The longest homepage of our images has 77 characters."""

MAX_COMPONENTS = 5_000
"""Components of one bill of materials. The validator compares each with each: 1,000 take 2 seconds, 4,000 take 30.
Our images have less than 1,000."""

MAX_VERSION = 1024  # characters of a component's version (CycloneDX 1.6)

INVALID_CONTENTS = "Look inside with `tfimg inspect --local`: a package has an invalid name, version or homepage."
"""The next step where what an image contains cannot be expressed."""


def make_sbom(inventory: Inventory, *, subject: envelopes.Subject, created: datetime) -> envelopes.Statement:
    """Return the CycloneDX statement of an inventory, validated; `created` is the document's timestamp.

    Raises `ValidationAborted` for names, versions and addresses that it cannot express.
    """
    try:
        bom = _make_cyclonedx(list_components(inventory), subject, created.replace(microsecond=0))
    except (ValueError, CycloneDxException) as error:  # names, versions and addresses come from the image
        raise errors.ValidationAborted(
            f"The contents of {subject.name}@{subject.digest} cannot be written as a bill of materials: "
            f"{to_plain_text(str(error)).rstrip('.')[:MAX_PROBLEM]}.",
            next_step=INVALID_CONTENTS,
        ) from None
    return envelopes.make_statement(subject, envelopes.CYCLONEDX, bom)


def image_purl(subject: envelopes.Subject) -> str:
    """Return the image's package URL, of type oci."""
    folder, _, name = subject.name.rpartition("/")
    qualifiers = {"repository_url": subject.name} if folder else {}
    return PackageURL("oci", name=name, version=subject.digest, qualifiers=qualifiers).to_string()


def list_components(inventory: Inventory) -> Iterator[tuple[Component, str | None]]:
    """Yield the Python packages, Debian packages and accelerator libraries of an inventory, sorted.

    Each comes with the purl of the package that contains it, None for the image itself. Raises `ValueError` for a name
    or version that cannot be expressed.
    """
    for number, (name, version) in enumerate(sorted(inventory.packages.items())):
        about = inventory.about.get(name, About())
        sites = []
        if about.homepage and len(about.homepage) <= MAX_ADDRESS and number < MAX_ADDRESSES:
            sites = [ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(about.homepage))]
        licence = [LicenseFactory().make_from_string(about.licence)] if about.licence else []
        purl = PackageURL("pypi", name=name, version=version)
        yield _component(name, purl, external_references=sites, licenses=licence), None
    for package in sorted(inventory.debian, key=lambda package: (package.package, package.architecture)):
        qualifiers = {"arch": package.architecture, "distro": f"{inventory.system.id}-{inventory.system.version}"}
        if package.upstream:
            qualifiers["upstream"] = package.upstream
        purl = PackageURL("deb", inventory.system.id, package.package, package.version, qualifiers)
        yield _component(package.package, purl), None
    # One component for all libraries of one name from one package.
    libraries: dict[tuple[str, str], list[str]] = {}
    for path, owner in sorted(inventory.libraries.items()):
        libraries.setdefault((PurePosixPath(path).name, canonicalize_name(owner or "")), []).append(path)
    for (name, owner), paths in sorted(libraries.items()):
        known = inventory.packages.get(owner)
        purl = PackageURL("generic", "google" if name.partition(".")[0] == "libtpu" else "nvidia", name, known)
        within = PackageURL("pypi", name=owner, version=known).to_string() if known else None
        properties = [Property(name="tfimg:path", value=path) for path in paths]
        yield _component(name, purl, type=ComponentType.FILE, properties=properties), within


def _component(name: str, purl: PackageURL, **fields: Any) -> Component:
    if not purl.name:  # blanks and slashes alone, of which the library makes no text
        raise ValueError(f"{name!r} is not the name of a package")
    if len(purl.version or "") > MAX_VERSION:
        raise ValueError(f"the version of {name} has more than {MAX_VERSION} characters")
    return Component(name=name, version=purl.version, purl=purl, bom_ref=purl.to_string(), **fields)


def _make_cyclonedx(
    parts: Iterable[tuple[Component, str | None]], subject: envelopes.Subject, created: datetime
) -> dict[str, Any]:
    """Return the document, validated against the schema. Raises `ValueError`."""
    # Importing the validator takes seconds: it compiles a grammar of addresses.
    from cyclonedx.validation.json import JsonStrictValidator

    image = image_purl(subject)
    root = _component(subject.name.rpartition("/")[2], PackageURL.from_string(image), type=ComponentType.CONTAINER)
    components: dict[str, Component] = {}
    contained: dict[str, list[Dependency]] = {}
    for component, within in parts:
        components[str(component.purl)] = component
        contained.setdefault(within or image, []).append(Dependency(component.bom_ref))
        if len(components) > MAX_COMPONENTS:
            raise ValueError(f"the image has more than {MAX_COMPONENTS} packages and libraries")
    bom = Bom(
        components=components.values(),
        # Derived from image and time, so that the same input gives the same bytes.
        serial_number=uuid5(NAMESPACE_URL, f"{image}#{created.isoformat()}#cyclonedx"),
        dependencies=[
            Dependency(component.bom_ref, contained.get(purl, ()))
            for purl, component in {image: root, **components}.items()
        ],
        metadata=BomMetaData(component=root, timestamp=created),
    )
    text = JsonV1Dot6(bom).output_as_string()
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        # The other lines quote the schema.
        raise ValueError(f"the document is not valid CycloneDX: {str(problem).splitlines()[0]}")
    document: dict[str, Any] = json.loads(text)
    return document

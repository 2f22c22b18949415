"""What an image is, from its labels, layers and packages."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

from packageurl import PackageURL
from packaging.utils import canonicalize_name
from pydantic import BeforeValidator

from tfimg.attestations import attach, envelopes
from tfimg.attestations.keys import VerifyingKey
from tfimg.core import documents, errors
from tfimg.core.text import format_size, parse_time
from tfimg.engine.interface import Engine, StoredImage, StoredLayer
from tfimg.matrix.spec import ExtraPackages
from tfimg.matrix.support_ends import format_supported_until
from tfimg.recipe import labels as recipe
from tfimg.recipe import layout
from tfimg.registry.documents import Descriptor, Reader, open_image
from tfimg.validation.report import Inventory

Source = Literal["bill of materials", "inventory", "unknown"]


class Component(documents.Document):
    """A component of an image, by its package URL."""

    purl: str | None = None

    def parse_purl(self) -> PackageURL | None:
        """Return the package URL; None without a valid one."""
        try:
            return PackageURL.from_string(self.purl or "")
        except ValueError:
            return None


class Bill(documents.Document):
    """The fields of a CycloneDX bill of materials that are read."""

    components: Annotated[tuple[Component, ...], BeforeValidator(lambda value: value or ())] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """Versions by name: `libraries` are Python packages with accelerator libraries, `files` the files of these.

    `source` is `unknown` for an image without a bill of materials; `signer` is the trusted key that signed it.
    """

    source: Source
    signer: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, str] = field(default_factory=dict)
    debian: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def known(self) -> bool:
        """Whether an empty mapping means that the image has no such packages."""
        return self.source != "unknown"

    def version(self, beginning: str) -> str | None:
        """Return the version of the first package with this beginning: `nvidia-cudnn` is followed by CUDA's major."""
        packages = {**self.libraries, **self.python}
        return next((version for name, version in packages.items() if name.startswith(beginning)), None)


def parse_bill_of_materials(bill: Mapping[str, Any], signer: str | None = None) -> Contents:
    """Return the Python, Debian and generic components of a CycloneDX bill of materials.

    Raises `InvalidDocument`.
    """
    found: dict[str, dict[str, str]] = {"pypi": {}, "deb": {}, "generic": {}}
    for component in documents.validate_model(Bill, bill).components:
        purl = component.parse_purl()
        if purl and purl.type in found and purl.name:
            found[purl.type][purl.name] = purl.version or ""
    return _make_contents("bill of materials", found["pypi"], found["deb"], found["generic"], signer)


def list_contents(inventory: Inventory) -> Contents:
    packages = inventory.packages
    libraries = {
        path.rpartition("/")[2]: packages.get(canonicalize_name(owner), "") if owner else ""
        for path, owner in inventory.libraries.items()
    }
    debian = {entry.package: entry.version for entry in inventory.debian}
    return _make_contents("inventory", packages, debian, libraries, None)


def _make_contents(
    source: Source, packages: Mapping[str, str], debian: Mapping[str, str], files: Mapping[str, str], signer: str | None
) -> Contents:
    python = dict(sorted(packages.items()))
    libraries = {name: python.pop(name) for name in list(python) if name.startswith("nvidia-") or name == "libtpu"}
    debian, files = dict(sorted(debian.items())), dict(sorted(files.items()))
    return Contents(source=source, signer=signer, libraries=libraries, python=python, debian=debian, files=files)


MAX_TAGS = 200  # tags that are resolved, each with a request. A release has fewer than 50 beside its builds' own

START_FIELDS = ("User", "WorkingDir", "Entrypoint", "Cmd", "ExposedPorts", "Volumes", "StopSignal")
"""Fields of a configuration that determine how containers start (OCI image specification 1.1, config.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A layer with its part (`tensorflow`; None if unknown) and a description of its contents."""

    digest: str
    size: int
    part: str | None
    holds: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Attestation:
    """An attached statement. `claims` are the keys that it names, `signer` is the trusted key that signed it."""

    kind: str
    where: str
    claims: tuple[str, ...]
    signer: str | None
    predicate: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """The metadata of an image; `layers`, `contents` and settings are those of the first platform.

    `attestations_problem` says why the attestations could not be read.
    """

    name: str
    digest: str
    labels: Mapping[str, str]
    environment: Mapping[str, str]
    configuration: Mapping[str, str]
    platforms: tuple[str, ...]
    layers: tuple[Layer, ...]
    contents: Contents
    created: datetime | None = None
    attestations: tuple[Attestation, ...] = ()
    attestations_problem: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def identifier(self) -> str | None:
        return self.labels.get(recipe.IDENTIFIER_LABEL)

    @property
    def extra_packages(self) -> ExtraPackages | None:
        """The extra packages, as the labels tell them; None also for labels that cannot be read."""
        try:
            return recipe.read_extra_labels(self.labels)
        except errors.UnlabelledImage:
            return None

    @property
    def compressed_bytes(self) -> int:
        return sum(layer.size for layer in self.layers)

    def newest(self, kind: str, moment: str) -> Attestation | None:
        """Return the last statement of a kind, by a field with its time; those of trusted keys win."""
        found = [one for one in self.attestations if one.kind == kind]
        return max(found, key=lambda one: (one.signer is not None, str(one.predicate.get(moment))), default=None)

    @property
    def tested(self) -> Mapping[str, Any] | None:
        found = self.newest(envelopes.TEST_RESULT, "finishedOn")
        return found.predicate if found else None

    @property
    def report(self) -> Mapping[str, Any] | None:
        found = self.newest(envelopes.REPORT, "date")
        return found.predicate if found else None

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, without the predicates of its statements."""
        document = asdict(self)
        for attestations in document["attestations"]:
            del attestations["predicate"]
        return document | {
            "image": document.pop("name"),
            "identifier": self.identifier,
            "extra_packages": asdict(own) if (own := self.extra_packages) else None,
            "created": self.created.isoformat() if self.created else None,
            "compressed_bytes": self.compressed_bytes,
            "tested": self.tested,
        }


def inspect_image(registry: Reader, reference: str, keys: Sequence[VerifyingKey]) -> Inspection:
    """Read an image's documents and attestations, without its layers and without verification.

    Raises the errors of a `Registry`.
    """
    image = open_image(registry, reference)
    first = next(iter(image.platforms or image.images), None)
    history = [step.created_by for step in first.settings.history if not step.empty_layer] if first else []
    attestations: tuple[Attestation, ...] = ()
    problem = None
    try:
        attestations = tuple(_read_attestations(registry, image.digest, keys))
    except errors.TamperedError as error:
        problem = str(error)
    contents = Contents(source="unknown")
    bills = (one for one in attestations if one.kind == envelopes.CYCLONEDX)
    for bill in sorted(bills, key=lambda one: one.signer is None):
        with suppress(documents.InvalidDocument):
            contents = parse_bill_of_materials(bill.predicate, bill.signer)
            break
    separator = "@" if reference.startswith("sha256:") else ":"
    minor = ".".join(image.labels.get(f"{recipe.LABEL_PREFIX}tensorflow", "").split(".")[:2])
    likely = (
        tag
        for tag in registry.list_tags()
        if not tag.startswith("sha256-") and (not minor or tag.startswith((minor, "latest")))
    )
    return Inspection(
        name=f"{registry.repository}{separator}{reference}",
        digest=image.digest,
        created=parse_time(first.settings.created) if first else None,
        labels=image.labels,
        environment=dict(variable.partition("=")[::2] for variable in (first.settings.config.env if first else ())),
        configuration=_list_start_settings((first and first.config.get("config")) or {}),
        platforms=tuple(one.platform for one in image.platforms if one.platform),
        layers=_describe_layers(first.layers, first.labels, history) if first else (),
        contents=contents,
        attestations=attestations,
        attestations_problem=problem,
        aliases=tuple(
            tag
            for tag in islice(likely, MAX_TAGS)
            if tag != image.reference and (found := registry.find(tag)) and found.digest == image.digest
        ),
    )


def inspect_local(engine: Engine, name: str, stored: StoredImage, contents: Contents) -> Inspection:
    """Describe an image in the engine. Attestations are not read: it is in registries."""
    names = next((image.names for image in engine.list_images() if image.digest == stored.digest), ())
    return Inspection(
        name=name,
        digest=stored.digest,
        labels=stored.labels,
        environment=dict(variable.partition("=")[::2] for variable in stored.config.get("Env") or ()),
        configuration=_list_start_settings(stored.config),
        platforms=(),
        layers=_describe_layers(stored.layers, stored.labels),
        contents=contents,
        aliases=tuple(other for other in names if other != name),
    )


def _describe_layers(
    layers: Sequence[Descriptor | StoredLayer], labels: Mapping[str, str], history: Sequence[str] = ()
) -> tuple[Layer, ...]:
    """Describe layers, lowest first: those of tfimg by their label, others by the history's steps."""
    stated = labels.get(recipe.LAYERS_LABEL, "").split()
    # The work directory is not a layer of its own in every engine.
    fits = len(layers) in (len(stated), len(stated) - 1) and set(stated) <= layout.LAYER_CONTENTS.keys()
    parts: Sequence[str | None] = stated if fits else [None] * len(layers)
    steps = history if len(history) == len(layers) else ["not known"] * len(layers)
    return tuple(
        Layer(digest=layer.digest, size=layer.size, part=part, holds=layout.LAYER_CONTENTS.get(part or "", step))
        for layer, part, step in zip(layers, parts, steps, strict=False)
    )


def _list_start_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    found = ((name, settings.get(name)) for name in START_FIELDS)
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found if value}


def _read_attestations(registry: Reader, digest: str, keys: Sequence[VerifyingKey]) -> Iterator[Attestation]:
    for attached in attach.collect_envelopes(registry, digest):
        try:
            document = documents.parse_document(envelopes.StatementDocument, attached.envelope.payload)
        except documents.InvalidDocument:
            continue  # not a statement about an image
        signer = None
        if attached.envelope.payload_type == envelopes.IN_TOTO and attached.envelope.find_signer(keys):
            # Raises if it is about another image.
            (statement,) = attach.verify_signatures([attached], keys, image=digest, digest=digest)
            signer = statement.signer
        yield Attestation(
            kind=document.predicate_type,
            where=attached.where,
            claims=tuple(filter(None, attached.envelope.signers)),
            signer=signer,
            predicate=document.predicate,
        )


SOURCES = {
    "unknown": "not known: it has no bill of materials",
    "inventory": "as its inventory says, which was taken in the image on this machine",
}


def summarize_image(image: Inspection, row: Mapping[str, Any] | None, now: datetime) -> dict[str, Any]:
    """Return an image in fields, without its lists; None for those that it lacks. `row` describes its matrix row.

    Dates are the matrix's where it has the image: what a label says was known when the image was built.
    """
    labels, contents, extra = image.labels, image.contents, image.extra_packages
    missing_row = f"this matrix has no {image.identifier}" if image.identifier else "the image does not say what it is"
    result = image.newest(envelopes.TEST_RESULT, "finishedOn")
    level = str(result.predicate.get("level")) if result else None
    verified = "which is verified" if contents.signer else "which is not verified"
    name = labels.get(recipe.BASE_NAME_LABEL)  # of a look-alike, with how it was made
    facts = (labels.get(label) for label in (recipe.BASE_KIND_LABEL, recipe.BASE_MADE_LABEL, recipe.BASE_DIGEST_LABEL))
    known = ", ".join(fact for fact in facts if fact)
    dates = row or {
        "released": labels.get(recipe.RELEASED_LABEL),
        "supported_until": labels.get(recipe.SUPPORTED_UNTIL_LABEL),
    }
    return {
        "image": image.name,
        "digest": image.digest,
        "title": labels.get("org.opencontainers.image.title"),
        "row": f"{image.identifier} ({row['path']} of the matrix)" if row else f"none: {missing_row}",
        "TensorFlow": labels.get(f"{recipe.LABEL_PREFIX}tensorflow") or contents.version("tensorflow"),
        "Python": labels.get(f"{recipe.LABEL_PREFIX}python"),
        "CUDA": contents.version("nvidia-cuda-runtime"),
        "cuDNN": contents.version("nvidia-cudnn"),
        "libtpu": contents.version("libtpu"),
        "driver": f"{row['driver_floor']} or newer" if row and row.get("driver_floor") else None,
        "platforms": ", ".join(image.platforms) or None,
        "size": f"{format_size(image.compressed_bytes)} in {len(image.layers)} layers, as they are sent",
        "released": dates.get("released"),
        "supported until": format_supported_until(dates.get("supported_until"), now.date()),
        "built": _describe_age(image.created, now),
        "tested": _describe_age(parse_time(str(result.predicate.get("finishedOn"))), now) if result else None,
        "level": f"{level}, as a test result says that is not verified" if result and not result.signer else level,
        "base": f"{name} ({known})" if name and known else name,
        "Debian of": labels.get(recipe.SNAPSHOT_LABEL),
        "revision": labels.get("org.opencontainers.image.revision"),
        "aliases": ", ".join(image.aliases) or None,
        "added by a user": recipe.describe_extra_packages(extra, contents.debian) if extra else None,
        "contents": SOURCES.get(contents.source, f"as its bill of materials says, {verified}"),
        "attestations": f"cannot be read: {image.attestations_problem}" if image.attestations_problem else None,
    }


def _describe_age(moment: datetime | None, now: datetime) -> str | None:
    if moment is None:
        return None
    days = (now - moment).days
    ago = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
    return f"{moment:%Y-%m-%d %H:%M} UTC, {ago if days >= 0 else 'in the future'}"

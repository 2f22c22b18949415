"""An image in a registry → what it is, what it holds, and what is said of it by whom."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import TamperedError
from tfimg.evidence.collect import CollectedEnvelope, collect_envelopes
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.signatures import verify_signatures
from tfimg.evidence.statement import CYCLONEDX, IN_TOTO, REPORT, TEST_RESULT, read_statement
from tfimg.inspect.contents import Contents, parse_bill_of_materials
from tfimg.matrix.schema import DEVICES
from tfimg.recipe.labels import IDENTIFIER_LABEL, LABEL_PREFIX
from tfimg.recipe.layout import LAYER_CONTENTS, list_layer_names
from tfimg.registry.images import PlatformImage, RegistryImage, open_image
from tfimg.registry.protocol import Registry

MAX_TAGS = 200
"""Tags that are looked up, each with a request. A release of ours has fewer than 50 beside its builds' own."""


STARTS = ("User", "WorkingDir", "Entrypoint", "Cmd", "ExposedPorts", "Volumes", "StopSignal")
"""Fields of a configuration that decide how containers start (OCI image specification 1.1, config.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A layer: the part that it is (`tensorflow`; None where that is not known) and what it holds, in words."""

    digest: str
    size: int
    part: str | None
    holds: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A statement that is attached. `claims` are the keys that it says it was signed by.

    `signer` is the key of ours that signed it; None where none did, or none was named. `predicate` is what it says.
    """

    kind: str
    where: str
    claims: tuple[str, ...]
    signer: str | None
    predicate: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """All that is known of an image. Of several platforms, `layers`, `contents` and settings are the first's.

    `evidence_problem` says why evidence could not be read, where it could not.
    """

    name: str
    digest: str
    created: datetime | None
    labels: Mapping[str, str]
    environment: Mapping[str, str]
    configuration: Mapping[str, str]
    platforms: tuple[str, ...]
    layers: tuple[Layer, ...]
    contents: Contents
    evidence: tuple[Evidence, ...]
    evidence_problem: str | None
    aliases: tuple[str, ...]

    @property
    def identifier(self) -> str | None:
        """The image of the matrix that it says it is."""
        return self.labels.get(IDENTIFIER_LABEL)

    @property
    def compressed_bytes(self) -> int:
        """Sum over the layers, as a registry sends them."""
        return sum(layer.size for layer in self.layers)

    def newest(self, kind: str, moment: str) -> Evidence | None:
        """The last of the statements of a kind, by a field that tells its time; ours before those of others."""
        found = [one for one in self.evidence if one.kind == kind]
        return max(found, key=lambda one: (one.signer is not None, str(one.predicate.get(moment))), default=None)

    @property
    def tested(self) -> Mapping[str, Any] | None:
        """What the last test result says."""
        found = self.newest(TEST_RESULT, "finishedOn")
        return found.predicate if found else None

    @property
    def report(self) -> Mapping[str, Any] | None:
        """The last validation report."""
        found = self.newest(REPORT, "date")
        return found.predicate if found else None


def inspect_image(registry: Registry, reference: str, keys: Sequence[VerifyingKey]) -> Inspection:
    """Read an image's documents and its evidence, and none of its layers.

    Judges nothing: `verify` does. Raises what a `Registry` does.
    """
    image = open_image(registry, reference)
    first = next(iter(image.platforms or image.images), None)
    evidence, problem = _evidence(registry, image.digest, keys)
    separator = "@" if reference.startswith("sha256:") else ":"
    return Inspection(
        name=f"{registry.repository}{separator}{reference}",
        digest=image.digest,
        created=first.settings.created_at if first else None,
        labels=image.labels,
        environment=environment(first) if first else {},
        configuration=configuration(first) if first else {},
        platforms=tuple(one.platform for one in image.platforms if one.platform),
        layers=named_layers(first) if first else (),
        contents=_contents(evidence),
        evidence=evidence,
        evidence_problem=problem,
        aliases=_aliases(registry, image),
    )


def named_layers(image: PlatformImage) -> tuple[Layer, ...]:
    """The layers, lowest first. Ours lie in an order of their own; of others, the history tells how each was made."""
    device = image.labels.get(f"{LABEL_PREFIX}device")
    names = next((list_layer_names(known) for known in DEVICES if known == device), ())
    # The working folder is no layer of its own everywhere.
    ours = IDENTIFIER_LABEL in image.labels and len(image.layers) in (len(names), len(names) - 1)
    steps = [step.created_by for step in image.settings.history if not step.empty_layer]
    told = steps if len(steps) == len(image.layers) else []
    return tuple(
        Layer(
            digest=layer.digest,
            size=layer.size,
            part=names[number] if ours else None,
            holds=LAYER_CONTENTS[names[number]] if ours else told[number] if told else "not known",
        )
        for number, layer in enumerate(image.layers)
    )


def environment(image: PlatformImage) -> dict[str, str]:
    """The variables that its containers start with."""
    pairs = (entry.partition("=") for entry in image.settings.config.env)
    return {name: value for name, _, value in pairs}


def configuration(image: PlatformImage) -> dict[str, str]:
    """Return how its containers start, without variables and labels."""
    settings = image.config.get("config") or {}
    found = ((name, settings.get(name)) for name in STARTS)
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found if value}


def _evidence(registry: Registry, digest: str, keys: Sequence[VerifyingKey]) -> tuple[tuple[Evidence, ...], str | None]:
    try:
        return tuple(_told(collect_envelopes(registry, digest), keys, digest)), None
    except TamperedError as error:
        return (), str(error)


def _told(found: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey], digest: str) -> Iterator[Evidence]:
    for one in found:
        try:
            document = read_statement(one.envelope.payload)
        except InvalidDocument:
            continue  # it is in an envelope, and is not a statement about an image
        signer = None
        if one.envelope.payload_type == IN_TOTO and one.envelope.find_signer(keys):
            # Raises where it is about another image.
            (genuine,) = verify_signatures([one], keys, image=digest, digest=digest)
            signer = genuine.signer
        yield Evidence(
            kind=document.predicate_type,
            where=one.where,
            claims=tuple(filter(None, one.envelope.signers)),
            signer=signer,
            predicate=document.predicate,
        )


def _contents(evidence: Sequence[Evidence]) -> Contents:
    for bill in sorted((one for one in evidence if one.kind == CYCLONEDX), key=lambda one: one.signer is None):
        with suppress(InvalidDocument):
            return parse_bill_of_materials(bill.predicate, bill.signer)
    return Contents(source="unknown")


def _aliases(registry: Registry, image: RegistryImage) -> tuple[str, ...]:
    """Return the other tags that point to it, of up to `MAX_TAGS` that may: those of its release, and `latest`."""
    release = image.labels.get(f"{LABEL_PREFIX}tensorflow", "")
    minor = ".".join(release.split(".")[:2])
    likely = (
        tag
        for tag in registry.list_tags()
        if not tag.startswith("sha256-") and (not minor or tag.startswith((minor, "latest")))
    )
    return tuple(
        tag
        for tag in islice(likely, MAX_TAGS)
        if tag != image.reference and (found := registry.find(tag)) and found.digest == image.digest
    )

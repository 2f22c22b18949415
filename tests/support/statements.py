"""An image in a registry with its attestations, for tests of who reads it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from support.memory_registry import MemoryRegistry
from support.reports import GREEN, result
from support.signing import OURS
from tfimg.attestations.attach import attach, make_referrer
from tfimg.attestations.envelopes import Statement, Subject
from tfimg.attestations.keys import SigningKey
from tfimg.attestations.predicates import RunContext, make_report_statement, make_test_result
from tfimg.attestations.promotions import Promotion, TagMove, Withdrawal, make_predicate_statement
from tfimg.core.levels import Level
from tfimg.core.text import canonical_json
from tfimg.registry.documents import OCI_MANIFEST, Manifest
from tfimg.validation.report import CheckResult, Report

IMAGE = Manifest(media_type=OCI_MANIFEST, content=b'{"schemaVersion":2,"config":{},"layers":[]}')
SUBJECT = Subject(name="registry.test:5000/team/tensorflow", digest=IMAGE.digest)
RAN = RunContext(host="gpu-runner-3", engine="Docker 26.1.5", version="0.1.0")
NOW = datetime(2026, 1, 12, tzinfo=UTC)
"""Nine days and some hours after the reports."""

SEEN = CheckResult(
    check="gpu.visible", outcome="passed", reason=None, seconds=1.0,
    measured={"gpu": ["NVIDIA H100"], "capability": ["9.0"], "driver": "535.104.05"},
)  # fmt: skip
ON_GPU = replace(
    GREEN, identifier="2.15.1-cuda12.2-py3.11", device="gpu", results=(*GREEN.results, SEEN),
    required=(*GREEN.required, "gpu.visible"),
)  # fmt: skip
LINKED = replace(GREEN, identifier="2.15.1-cuda12.2-py3.11", device="gpu", aim=Level.LINKED, unproven=("gpu.visible",))
FAILED = replace(ON_GPU, results=(*ON_GPU.results, result("gpu.matmul", "failed", "0.0 is not 108.0")))


def make_statements(report: Report, *, of: str = IMAGE.digest) -> tuple[Statement, Statement]:
    """The statements about a report on the image, or on another digest."""
    subject = replace(SUBJECT, digest=of)
    return make_test_result(report, subject=subject, ran=RAN), make_report_statement(report, subject=subject)


def published_registry(*reports: Report, key: SigningKey = OURS) -> MemoryRegistry:
    """A registry that has the image under two tags, with the attestations of these reports."""
    registry = MemoryRegistry()
    for tag in ("2.15", "2.15-gpu"):
        registry.put(tag, IMAGE)
    for report in reports:
        attach(registry, IMAGE.digest, make_statements(report), key=key)
    if reports:
        attach(registry, IMAGE.digest, [make_promotion("2.15", "2.15-gpu")], key=key)
    return registry


def put_bundle(registry: MemoryRegistry, content: bytes, *, size: int | None = None) -> None:
    """Attach bytes to the image as a bundle, with all digests right; `size` is the one that its manifest states."""
    registry.put_blob(content)
    manifest = make_referrer(Statement(predicate_type="any", content=b""), content, subject=IMAGE.descriptor)
    if size is not None:
        document = manifest.document
        document["layers"][0]["size"] = size
        manifest = replace(manifest, content=canonical_json(document))
    registry.put_referrers([manifest], subject=IMAGE.digest)


def put_envelope(registry: MemoryRegistry, envelope: bytes) -> None:
    """Attach bytes to the image as the envelope of a bundle that names no key."""
    put_bundle(registry, b'{"dsseEnvelope":%b}' % envelope)


def make_promotion(
    *tags: str, of: str = IMAGE.digest, repository: str = SUBJECT.name, cancels: Sequence[str] = ()
) -> Statement:
    """Return the promotion that gives the image tags, a second later than the withdrawals that it cancels."""
    promotion = Promotion(
        repository=repository, tags=tuple(TagMove(tag=tag, previous=None) for tag in tags),
        time=NOW + timedelta(seconds=bool(cancels)), publisher="gpu-runner-3", reason="publish",
        tfimg="0.1.0", cancels=tuple(cancels),
    )  # fmt: skip
    return make_predicate_statement(replace(SUBJECT, digest=of), promotion)


def make_withdrawal(
    *tags: str, of: str = IMAGE.digest, repository: str = SUBJECT.name, replacement: str | None = None
) -> Statement:
    """Return the withdrawal of the image for some tags, or altogether."""
    withdrawal = Withdrawal(
        repository=repository, tags=tags or None, reason="wrong cuDNN", replacement=replacement, time=NOW,
        publisher="gpu-runner-3",
    )  # fmt: skip
    return make_predicate_statement(replace(SUBJECT, digest=of), withdrawal)

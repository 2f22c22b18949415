"""Mutated attestations, policies and keys: only errors of our own come out, and no mutation adds a statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings

from support.memory_registry import MemoryRegistry
from support.mutated_documents import cases, mutations
from support.signing import OURS, PASSWORD, THEIRS
from support.statements import (
    IMAGE,
    NOW,
    ON_GPU,
    make_promotion,
    make_statements,
    make_withdrawal,
    published_registry,
    put_envelope,
)
from tfimg.attestations.attach import filter_verified, make_referrer
from tfimg.attestations.envelopes import (
    BUNDLE_MEDIA_TYPE,
    IN_TOTO,
    Statement,
    make_bundle,
    sign_envelope,
    sign_statement,
)
from tfimg.attestations.keys import read_signing_key, read_verifying_key
from tfimg.attestations.policy import Policy, parse_policy, parse_requirements
from tfimg.attestations.promotions import (
    read_image_statements,
    read_statements,
    read_withdrawals,
    require_not_withdrawn,
    walk_history,
)
from tfimg.attestations.verify import VerifiedImage, verify
from tfimg.core.errors import TfimgError
from tfimg.core.levels import Level
from tfimg.registry.documents import OCI_MANIFEST, Descriptor, Manifest

SUBJECT = Descriptor(media_type=OCI_MANIFEST, digest=IMAGE.digest, size=len(IMAGE.content))
RESULT = make_statements(ON_GPU)[0].content
DEADLINE = 20_000
"""Milliseconds that a case may take on a busy machine; 20 are usual."""


def check(registry: MemoryRegistry) -> VerifiedImage:
    return verify(registry, IMAGE.digest, [OURS.verifying_key], Policy(level=Level.BUILT), now=NOW)


@cache
def genuine_envelopes() -> tuple[bytes, ...]:
    return tuple(one.content for one in check(published_registry(ON_GPU)).statements)


def put_referrer(registry: MemoryRegistry, manifest: Manifest) -> None:
    registry.manifests[manifest.digest] = manifest
    entry = Descriptor(
        media_type=OCI_MANIFEST, digest=manifest.digest, size=len(manifest.content), artifact_type=BUNDLE_MEDIA_TYPE
    )
    registry.list_referrers = lambda _: [entry]  # type: ignore[method-assign,assignment]


def as_bundle(content: bytes) -> None:
    registry = MemoryRegistry()
    registry.put("2.15", IMAGE)
    registry.put_blob(content)
    put_referrer(registry, make_referrer(Statement(predicate_type="x", content=b""), content, subject=SUBJECT))
    assert all(one.content in genuine_envelopes() for one in check(registry).statements)


def as_referrer(content: bytes) -> None:
    registry = MemoryRegistry()
    registry.put("2.15", IMAGE)
    registry.put_blob(BUNDLE_OF_RESULT)
    put_referrer(registry, Manifest(media_type=OCI_MANIFEST, content=content))
    assert all(one.content in genuine_envelopes() for one in check(registry).statements)


def as_envelope(content: bytes) -> None:
    registry = MemoryRegistry()
    registry.put("2.15", IMAGE)
    put_envelope(registry, content)
    assert all(one.content in genuine_envelopes() for one in check(registry).statements)


def as_signed_statement(content: bytes) -> None:
    registry = MemoryRegistry()
    registry.put("2.15", IMAGE)
    put_envelope(registry, sign_envelope(content, IN_TOTO, OURS))
    assert check(registry).outcome.is_pass


def as_promotion(content: bytes) -> None:
    """A signed statement of another form is refused; one of another kind is passed over."""
    registry = MemoryRegistry()
    registry.put("2.15", IMAGE)
    put_envelope(registry, sign_envelope(content, IN_TOTO, OURS))
    found = read_image_statements(registry, IMAGE.digest, [OURS.verifying_key])
    for tag in ("2.15", None):
        require_not_withdrawn(found, image="image", repository=registry.repository, tag=tag)
    tuple(walk_history(registry.repository, "2.15", IMAGE.digest, lambda _: found, limit=20))


def as_withdrawal(content: bytes) -> None:
    as_promotion(content)


def as_withdrawals_file(content: bytes) -> None:
    found = filter_verified(read_withdrawals(content, [OURS.verifying_key]), [OURS.verifying_key], digest=IMAGE.digest)
    read_statements(found, image="image").in_force(MemoryRegistry().repository, "2.15")


def as_policy(content: bytes) -> None:
    try:
        text = content.decode()
    except UnicodeDecodeError:  # the program says so before a policy is parsed
        return
    policy = parse_policy(text, source="policy.yaml")
    verify(published_registry(ON_GPU), IMAGE.digest, [OURS.verifying_key], policy, now=NOW, tag="2.15")


def as_requirements(content: bytes) -> None:
    policy = parse_requirements(content.decode(errors="replace"), policy=Policy())
    verify(published_registry(ON_GPU), "2.15", [OURS.verifying_key], policy, now=NOW)


def as_public_key(content: bytes) -> None:
    read_verifying_key(content, source="tfimg.pub")


def as_private_key(content: bytes) -> None:
    read_signing_key(content, password=PASSWORD, source="tfimg.key")


ENVELOPE_OF_RESULT = sign_statement(make_statements(ON_GPU)[0], OURS)
BUNDLE_OF_RESULT = make_bundle(ENVELOPE_OF_RESULT, OURS.verifying_key)
POLICY = f"""\
version: 1
require: {{level: linked, gpu: sm_90, driver: ">=535,<600", max-age: 30d}}
aliases:
  "*-gpu": {{level: linked, reason: Our CI has no GPU.}}
refused-keys: ["{THEIRS.verifying_key.identifier}"]
""".encode()
DOCUMENTS: Mapping[Callable[[bytes], None], bytes] = {
    as_bundle: BUNDLE_OF_RESULT,
    as_referrer: make_referrer(make_statements(ON_GPU)[0], BUNDLE_OF_RESULT, subject=SUBJECT).content,
    as_envelope: ENVELOPE_OF_RESULT,
    as_signed_statement: RESULT,
    as_promotion: make_promotion("2.15", cancels=[IMAGE.digest]).content,
    as_withdrawal: make_withdrawal("2.16", replacement=IMAGE.digest).content,
    as_withdrawals_file: sign_statement(make_withdrawal("2.16"), OURS)
    + b"\n"
    + sign_statement(make_promotion("2.15"), OURS),
    as_policy: POLICY,
    as_requirements: b"linked,gpu=sm_90,driver>=535,driver<600,max-age=30d",
    as_public_key: OURS.verifying_key.pem,
    as_private_key: OURS.pem(PASSWORD),
}


@pytest.mark.parametrize("read", DOCUMENTS, ids=[read.__name__ for read in DOCUMENTS])
def test_the_unchanged_document_is_accepted(read: Callable[[bytes], None]) -> None:
    """Else every mutation would be refused for nothing."""
    read(DOCUMENTS[read])


@pytest.mark.parametrize("read", DOCUMENTS, ids=[read.__name__ for read in DOCUMENTS])
def test_a_mutated_document_is_refused_or_means_what_was_signed(read: Callable[[bytes], None]) -> None:
    @settings(max_examples=cases(40), deadline=DEADLINE, suppress_health_check=list(HealthCheck), database=None)
    @given(content=mutations(DOCUMENTS[read]))
    def run(content: bytes) -> None:
        with suppress(TfimgError):
            read(content)

    run()

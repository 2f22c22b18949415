"""Hostile and mutated attestations, policies and keys: each ends in a refusal of its own, never in a defect."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from packaging.specifiers import SpecifierSet

from support.cases import cases
from support.memory_registry import MemoryRegistry
from support.messages import exactly, expect_refusal
from support.mutated_documents import cases as case_count
from support.mutated_documents import mutations
from support.reports import GREEN
from support.signing import OURS, PASSWORD, THEIRS
from support.statements import (
    IMAGE,
    NOW,
    ON_GPU,
    SUBJECT,
    make_promotion,
    make_statements,
    make_withdrawal,
    published_registry,
    put_bundle,
    put_envelope,
)
from tfimg.attestations.attach import attach, collect_envelopes, filter_verified, make_referrer
from tfimg.attestations.envelopes import (
    BUNDLE_MEDIA_TYPE,
    IN_TOTO,
    TEST_RESULT,
    Bundle,
    Envelope,
    Statement,
    StatementDocument,
    canonical_json,
    make_bundle,
    make_statement,
    parse_envelope,
    sign_statement,
)
from tfimg.attestations.keys import read_signing_key, read_verifying_key
from tfimg.attestations.policy import Policy, parse_conditions, parse_policy
from tfimg.attestations.predicates import read_result
from tfimg.attestations.promotions import (
    read_image_statements,
    read_statements,
    read_withdrawals,
    require_not_withdrawn,
    walk_history,
)
from tfimg.attestations.verify import VerifiedImage, verify
from tfimg.core.documents import Document, InvalidDocument, validate_model
from tfimg.core.errors import FileError, PolicyViolation, TamperedError, TfimgError, UnsignedError
from tfimg.core.levels import Level
from tfimg.registry.documents import OCI_MANIFEST, Descriptor, Manifest

ANYTHING = Policy(level=Level.BUILT)
ENVELOPE = sign_statement(make_statements(GREEN)[0], OURS)
DEEP = b"[" * 100_000
HOSTILE = (
    b"", b"no", b"\xff", b"null", b"[]", b"7", b"1e999", b'{"a":1e999}', b'"\\ud800"', DEEP, b'{"a":' * 100_000,
    b"NaN", b"9" * 5000, b'{"payload":"","payloadType":"x","signatures":[1e999]}',
)  # fmt: skip


def put_raw_referrer(registry: MemoryRegistry, document: dict[str, Any]) -> None:
    subject = {"subject": {"mediaType": OCI_MANIFEST, "digest": IMAGE.digest, "size": len(IMAGE.content)}}
    manifest = Manifest(media_type=OCI_MANIFEST, content=canonical_json({**subject, **document}))
    registry.put(manifest.digest, manifest)


def accept(registry: MemoryRegistry, reference: str = "2.15") -> VerifiedImage:
    return verify(registry, reference, [OURS.verifying_key], ANYTHING, now=NOW)


def assert_refused(registry: MemoryRegistry, error: type[TfimgError] = TamperedError, says: str = "") -> None:
    with expect_refusal(error, says):
        accept(registry)


@pytest.mark.parametrize("content", HOSTILE)
def test_a_hostile_document_beside_genuine_attestations_are_refused(content: bytes) -> None:
    registry = published_registry(GREEN)
    put_bundle(registry, content)
    assert_refused(registry, says="cannot be read")


@cases("attestations_hostile", "a_bundle_of_wrong_types_is_refused")
def test_a_bundle_of_wrong_types_is_refused(content: str) -> None:
    registry = published_registry(GREEN)
    put_bundle(registry, content.encode())
    assert_refused(registry, says="cannot be read: invalid bundle: ")


@cases("attestations_hostile", "an_envelope_of_wrong_types_is_refused")
def test_an_envelope_of_wrong_types_is_refused(content: str) -> None:
    with expect_refusal(TamperedError, "Invalid DSSE envelope: "):
        parse_envelope(content.encode())


@pytest.mark.parametrize("payload", [7, None, "!"])
def test_a_payload_that_is_not_base64_is_refused(payload: Any) -> None:
    says = "Invalid DSSE envelope: payload: value error, it is not base64. Do not trust it."
    document = {"payload": payload, "payloadType": "x", "signatures": []}
    with pytest.raises(TamperedError, match=exactly(says)):
        parse_envelope(canonical_json(document))


def test_a_bundle_s_manifest_with_two_layers_is_refused() -> None:
    registry = published_registry(GREEN)
    layer = registry.put_blob(b"{}").to_document()
    put_raw_referrer(registry, {"artifactType": BUNDLE_MEDIA_TYPE, "layers": [layer, layer]})
    assert_refused(
        registry, says=r"cannot be read: invalid bundle: its manifest has 2 layers, and a bundle has one\. Do not use"
    )


def test_an_envelope_may_use_either_alphabet_of_base64() -> None:
    """DSSE 1.0.2, protocol.md."""
    document = json.loads(ENVELOPE)
    signature = base64.b64decode(document["signatures"][0]["sig"])
    document["signatures"][0]["sig"] = base64.urlsafe_b64encode(signature).decode()
    assert parse_envelope(canonical_json(document)).find_signer([OURS.verifying_key])


@cases("attestations_hostile", "a_bundle_s_manifest_of_another_form_is_refused")
def test_a_bundle_s_manifest_of_another_form_is_refused(layers: Any) -> None:
    registry = published_registry(GREEN)
    put_raw_referrer(registry, {"artifactType": BUNDLE_MEDIA_TYPE, "layers": layers})
    assert_refused(registry, says="cannot be read: invalid bundle: ")


def test_a_referrer_of_another_type_may_have_any_form() -> None:
    registry = published_registry(GREEN)
    put_raw_referrer(registry, {"artifactType": "application/spdx+json", "layers": 7})
    assert accept(registry)


def test_the_size_that_a_manifest_states_bounds_what_is_read() -> None:
    class Endless(MemoryRegistry):
        def get_blob(self, digest: str) -> Iterator[bytes]:  # noqa: ARG002
            yield from (b" " * 2**20 for _ in range(12))
            raise AssertionError("it was read to its end")

    registry = published_registry(GREEN)
    assert_refused(
        Endless.with_content_of(registry), says="The document sha256:[0-9a-f]{64} has more than [0-9]+ bytes"
    )
    large = published_registry()
    put_bundle(large, b"{}", size=2**40)
    assert_refused(Endless.with_content_of(large), says=f"it has {2**40} bytes, and at most [0-9]+ are read")


@pytest.mark.parametrize("artifact_type", [None, BUNDLE_MEDIA_TYPE])
def test_a_list_of_many_referrers_is_not_read_to_its_end(artifact_type: str | None) -> None:
    """A list that a client keeps may say nothing of types: each entry costs a request."""

    class Listing(MemoryRegistry):
        finds = 0

        def list_referrers(self, digest: str) -> Sequence[Descriptor]:
            return [replace(one, artifact_type=artifact_type) for one in super().list_referrers(digest)] * 2_000

        def find(self, reference: str) -> Manifest | None:
            self.finds += 1
            return super().find(reference)

    registry = Listing.with_content_of(published_registry(GREEN))
    put_raw_referrer(registry, {"artifactType": "application/spdx+json"})
    assert_refused(registry, says="too many attestations: more than 2000 documents")
    assert registry.finds <= 2_003


def test_an_envelope_of_many_signatures_is_refused() -> None:
    document = json.loads(ENVELOPE)
    document["signatures"] *= 17
    registry = published_registry(GREEN)
    put_envelope(registry, canonical_json(document))
    assert_refused(registry, says="signatures: tuple should have at most 16 items")


def signed(content: bytes, payload_type: str = IN_TOTO) -> MemoryRegistry:
    registry = published_registry(GREEN)
    put_envelope(registry, sign_statement(Statement(predicate_type="", content=content), OURS, payload_type))
    return registry


@cases("attestations_hostile", "a_signed_document_that_is_not_a_statement_is_refused")
def test_a_signed_document_that_is_not_a_statement_is_refused(content: str) -> None:
    assert_refused(signed(content.encode()), says="is not an in-toto statement: ")


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_bytes_that_the_key_signed_are_refused(content: bytes) -> None:
    assert_refused(signed(content), says="is not an in-toto statement: ")


def of(subject: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(make_statements(GREEN)[0].content)
    return {**document, "subject": subject}


OTHER = "ab" * 32
OWN = IMAGE.digest[7:]


@pytest.mark.parametrize(
    "digest",
    [
        {"sha256": OTHER}, {"sha512": OWN}, {"sha256": OWN.upper()}, {"sha256": f"{OWN} "}, {"SHA256": OWN}, {},
        {"sha256": OTHER, "sha512": OWN}, {"sha256": ""},
    ],
)  # fmt: skip
def test_a_subject_is_the_image_by_its_sha256_alone(digest: dict[str, str]) -> None:
    assert_refused(signed(canonical_json(of([{"name": "x", "digest": digest}]))), says="signed for another image")


TIMES = ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2100-01-01T00:00:00Z", "2014-12-31T23:59:59Z")


def result(**changed: Any) -> MemoryRegistry:
    predicate = json.loads(make_statements(ON_GPU)[0].content)["predicate"]
    registry = published_registry(ON_GPU)
    attach(registry, IMAGE.digest, [make_statement(SUBJECT, TEST_RESULT, {**predicate, **changed})], key=OURS)
    return registry


@pytest.mark.parametrize("field", ["startedOn", "finishedOn"])
@pytest.mark.parametrize(
    "time",
    [*TIMES, 1e300, -1, 1767323045, True, None, "", "now", "2026-01-02T03:04:05", "9" * 5000, "2026-02-30T00:00:00Z"],
)
def test_a_time_outside_of_the_calendar_or_without_a_zone_is_refused(field: str, time: Any) -> None:
    year = r"its year is not between 2015 and 2099\.|input should "
    why = year if isinstance(time, str) else r"it is not an rfc 3339 time\."
    assert_refused(result(**{field: time}), says=f"is invalid: {field}: (value error, )?({why})")


@cases("attestations_hostile", "a_test_result_of_wrong_types_is_refused")
def test_a_test_result_of_wrong_types_is_refused(field: str, value: Any, says: str) -> None:
    assert_refused(result(**{field: value}), says=f"is invalid: {says}")


RESULT_FIELDS = json.loads(make_statements(ON_GPU)[0].content)["predicate"]
EXEMPT = {"name": "a", "reason": "b"}


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("passedTests", "a"),
        ("failedTests", "a"),
        ("skippedTests", {**EXEMPT, "required": False}),
        ("waivedTests", EXEMPT),
        ("unprovenTests", EXEMPT),
        ("environment", {"name": "a", "capability": "sm_90"}),
    ],
)
def test_lists_of_a_test_result_are_bounded(field: str, entry: object) -> None:
    entries: Any = [entry] * 10_001
    if field == "environment":
        entries = {**RESULT_FIELDS["environment"], "gpus": entries}
    with pytest.raises(TamperedError, match=f" {field}.*: tuple should have at most 10000 items"):
        read_result({**RESULT_FIELDS, field: entries}, image="image")


def test_a_test_result_may_have_ten_thousand_tests() -> None:
    assert read_result({**RESULT_FIELDS, "passedTests": ["a"] * 10_000}, image="image").is_pass


@pytest.mark.parametrize("field", ["identifier", "host", "engine", "kernel", "driver"])
def test_words_of_a_test_result_are_bounded(field: str) -> None:
    def fill(length: int) -> dict[str, Any]:
        environment = {**RESULT_FIELDS["environment"], field: "x" * length}
        return {**RESULT_FIELDS, "environment": environment, "identifier": environment.get("identifier", "x")}

    assert read_result(fill(4096), image="image")
    with pytest.raises(TamperedError, match=f"{field}: string should have at most 4096 characters"):
        read_result(fill(4097), image="image")


def test_a_result_of_a_machine_without_a_driver_may_leave_it_out() -> None:
    environment = {name: RESULT_FIELDS["environment"][name] for name in ("host", "engine")}
    read = read_result({**RESULT_FIELDS, "environment": environment}, image="image").environment
    assert (read.driver, read.kernel, read.gpus, read.emulated) == (None, None, (), False)


STATEMENT: dict[str, Any] = json.loads(make_statements(ON_GPU)[0].content)
BYTES = base64.b64encode(bytes(16_384)).decode()


def sign_as(length: int, **fields: Any) -> dict[str, Any]:
    """Return an envelope of one signature, whose key has a name of this length."""
    signatures = [{"keyid": "k" * length, "sig": BYTES, **fields}]
    return {"payload": "", "payloadType": "x" * 255, "signatures": signatures}


def with_digests(count: int) -> list[dict[str, Any]]:
    return [{"digest": {f"algorithm{number}": "" for number in range(count)}}]


@pytest.mark.parametrize(
    ("model", "largest", "refused", "path"),
    [
        (Envelope, sign_as(16_384), sign_as(16_385), "signatures.0.keyid"),
        (Envelope, sign_as(0), sign_as(0, sig=base64.b64encode(bytes(16_385)).decode()), "signatures.0.sig"),
        (Envelope, sign_as(0), {**sign_as(0), "payloadType": "x" * 256}, "payloadType"),
        (StatementDocument, of([{"digest": {}}] * 100), of([{"digest": {}}] * 101), "subject"),
        (StatementDocument, of(with_digests(100)), of(with_digests(101)), "subject.0.digest"),
        (
            StatementDocument,
            {**STATEMENT, "predicateType": "x" * 255},
            {**STATEMENT, "predicateType": "x" * 256},
            "predicateType",
        ),
        (
            Bundle,
            {"verificationMaterial": {"publicKey": {"hint": "h" * 1024}}},
            {"verificationMaterial": {"publicKey": {"hint": "h" * 1025}}},
            "verificationMaterial.publicKey.hint",
        ),
    ],
)
def test_parts_of_an_envelope_are_bounded(
    model: type[Document], largest: dict[str, Any], refused: dict[str, Any], path: str
) -> None:
    assert validate_model(model, largest)
    with pytest.raises(InvalidDocument, match=f"^{path}: .* at most "):
        validate_model(model, refused)


def test_parts_of_an_envelope_that_other_programs_leave_out_are_empty() -> None:
    assert validate_model(Envelope, sign_as(0, keyid=None)).signers == ("",)
    for bundle in ({}, {"verificationMaterial": {}}, {"verificationMaterial": {"publicKey": {}}}):
        assert validate_model(Bundle, bundle).hint == ""
    older = {**STATEMENT, "_type": "https://in-toto.io/Statement/v0.1", "subject": [{"digest": {"sha256": OTHER}}]}
    assert validate_model(StatementDocument, older).digests == (f"sha256:{OTHER}",)


@pytest.mark.parametrize("count", [5, 6])
def test_at_most_five_digests_of_another_image_are_named(count: int) -> None:
    digests = [f"{number:064x}" for number in range(count)]
    named = ", ".join(f"sha256:{digest}" for digest in digests[:5])
    registry = signed(canonical_json(of([{"digest": {"sha256": digest}} for digest in digests])))
    assert_refused(registry, says=f"it is about {named}, but attached to")


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " and 1 more")])
def test_at_most_five_other_keys_are_named_in_part(count: int, more: str) -> None:
    names = [f"{number}{'k' * 99}" for number in range(count)]
    registry = published_registry()
    signatures = [{"keyid": f"{name}kk", "sig": ""} for name in names]
    put_envelope(registry, canonical_json({"payload": "", "payloadType": "x", "signatures": signatures}))
    with pytest.raises(UnsignedError, match=re.escape(f" another key signed ({', '.join(names[:5])}{more}), and none")):
        accept(registry)


@pytest.mark.parametrize("driver", ["9" * 4000, f"1.{'9' * 4000}", "not a version", "", "\x00", "=1"])
def test_a_driver_that_is_no_version_meets_no_range(driver: str) -> None:
    environment = json.loads(make_statements(ON_GPU)[0].content)["predicate"]["environment"]
    registry = result(finishedOn="2026-01-03T00:00:00Z", environment={**environment, "driver": driver})
    policy = Policy(level=Level.BUILT, driver=SpecifierSet("<1"))
    with pytest.raises(PolicyViolation, match="driver<1 is required"):
        verify(registry, "2.15", [OURS.verifying_key], policy, now=NOW)


@cases("attestations_hostile", "a_hostile_policy_is_refused")
def test_a_hostile_policy_is_refused(text: str) -> None:
    with pytest.raises(FileError, match=r"^policy\.yaml is not a valid policy:\n"):
        parse_policy(text, source="policy.yaml")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{" * 100_000, "- " * 100_000, "? " * 100_000, "version: " + "9" * 100_000, "a: &a [*a]",
             "a: &a [1,1]\nb: &b [*a,*a]\nc: &c [*b,*b]", "x" * 2**21,
             f"version: 1\naliases:\n  ? '{'[' * 60_000}'\n  : {{level: built, reason: Our CI has no GPU.}}\n"]
)  # fmt: skip
def test_a_policy_that_is_a_bomb_is_refused(text: str) -> None:
    with pytest.raises(FileError, match=r"^policy\.yaml is not a valid policy:\n"):
        parse_policy(text, source="policy.yaml")


def test_a_statement_of_an_untrusted_key_is_not_parsed() -> None:
    """Anyone may attach anything; what counts is what a trusted key signed."""
    registry = published_registry(GREEN)
    put_envelope(registry, sign_statement(Statement(predicate_type="", content=DEEP), THEIRS))
    assert accept(registry)


def test_one_statement_in_two_encodings_counts_once() -> None:
    document = json.loads(ENVELOPE)
    registry = published_registry(GREEN)
    put_bundle(registry, make_bundle(canonical_json({**document, "more": 1}), OURS.verifying_key))
    assert len(collect_envelopes(registry, IMAGE.digest)) == 3


def test_a_second_valid_form_of_a_signature_adds_no_statement() -> None:
    """Of an ECDSA signature (r, s), (r, -s) is valid too."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    registry = published_registry(GREEN)
    document = json.loads(ENVELOPE)
    r, s = decode_dss_signature(base64.b64decode(document["signatures"][0]["sig"]))
    other = base64.b64encode(encode_dss_signature(r, order - s)).decode()
    put_envelope(registry, canonical_json({**document, "signatures": [{"sig": other}]}))
    found = accept(registry)
    assert len(found.statements) == 3


def test_a_name_that_occurs_twice_cannot_replace_what_was_signed() -> None:
    """Parsers differ in which of two members counts; the signature is over the one that is read."""
    envelope = sign_statement(make_statements(ON_GPU)[0], OURS).decode()
    forged = base64.b64encode(make_statements(ON_GPU)[0].content.replace(b"2.15.1", b"2.21.0")).decode()
    for text in (f'{{"payload":"{forged}",{envelope[1:]}', f'{envelope[:-1]},"payload":"{forged}"}}'):
        registry = published_registry()
        put_envelope(registry, text.encode())
        try:
            found = accept(registry, IMAGE.digest)
        except TamperedError:
            continue
        assert found.outcome.identifier == ON_GPU.identifier


@pytest.mark.parametrize("payload_type", ["application/vnd.in-toto+json ", "APPLICATION/vnd.in-toto+json", "", "x"])
def test_the_payload_type_is_part_of_what_is_signed(payload_type: str) -> None:
    document = json.loads(ENVELOPE)
    registry = published_registry()
    put_envelope(registry, canonical_json({**document, "payloadType": payload_type}))
    assert_refused(registry, says="that key did not sign it")
    other = published_registry()
    put_envelope(other, sign_statement(make_statements(GREEN)[0], OURS, payload_type))
    assert_refused(other, PolicyViolation, "but no test result")


@pytest.mark.parametrize("signatures", [[], [{"sig": ""}], [{"sig": "MAYCAQACAQA="}], [{"sig": "MAYCAQECAQE="}] * 16])
def test_signatures_of_nothing_prove_nothing(signatures: list[dict[str, str]]) -> None:
    """None, an empty one, and r and s of zero or one."""
    document = json.loads(ENVELOPE)
    registry = published_registry()
    put_envelope(registry, canonical_json({**document, "signatures": signatures}))
    assert_refused(registry, UnsignedError, "none that .* signed")


def test_a_genuine_statement_of_one_key_gives_another_key_s_no_weight() -> None:
    """Only a trusted key's result counts, whatever else is in the same envelope."""
    registry = published_registry()
    attach(registry, IMAGE.digest, [make_statements(ON_GPU)[1]], key=OURS)  # ours is only a report
    attach(registry, IMAGE.digest, make_statements(ON_GPU), key=THEIRS)
    assert_refused(registry, PolicyViolation, "but no test result")
    both = [json.loads(sign_statement(make_statements(ON_GPU)[0], key))["signatures"][0] for key in (THEIRS, OURS)]
    document = json.loads(sign_statement(make_statements(ON_GPU)[0], OURS))
    put_envelope(registry, canonical_json({**document, "signatures": both}))
    assert accept(registry, IMAGE.digest).signer == OURS.verifying_key.identifier


def test_a_key_has_one_fingerprint_in_all_its_forms() -> None:
    """Else a refused key would come back in another form."""
    point = OURS.verifying_key.public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    compressed = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200") + point
    body = base64.encodebytes(compressed).decode()
    pem = f"-----BEGIN PUBLIC KEY-----\r\n{body}-----END PUBLIC KEY-----".encode()
    assert read_verifying_key(pem, source="").identifier == OURS.verifying_key.identifier


IMAGE_DESCRIPTOR = Descriptor(media_type=OCI_MANIFEST, digest=IMAGE.digest, size=len(IMAGE.content))
RESULT = make_statements(ON_GPU)[0].content
DEADLINE = 20_000
"""Milliseconds that a case may take on a busy machine; 20 are usual."""


@cache
def genuine_envelopes() -> tuple[bytes, ...]:
    return tuple(one.content for one in accept(published_registry(ON_GPU), IMAGE.digest).statements)


def put_referrer(registry: MemoryRegistry, manifest: Manifest) -> None:
    registry.manifests[manifest.digest] = manifest
    entry = Descriptor(
        media_type=OCI_MANIFEST, digest=manifest.digest, size=len(manifest.content), artifact_type=BUNDLE_MEDIA_TYPE
    )
    registry.list_referrers = lambda _: [entry]  # type: ignore[method-assign,assignment]


def as_bundle(content: bytes) -> None:
    registry = published_registry()
    registry.put_blob(content)
    put_referrer(registry, make_referrer(Statement(predicate_type="x", content=b""), content, subject=IMAGE_DESCRIPTOR))
    assert all(one.content in genuine_envelopes() for one in accept(registry, IMAGE.digest).statements)


def as_referrer(content: bytes) -> None:
    registry = published_registry()
    registry.put_blob(BUNDLE_OF_RESULT)
    put_referrer(registry, Manifest(media_type=OCI_MANIFEST, content=content))
    assert all(one.content in genuine_envelopes() for one in accept(registry, IMAGE.digest).statements)


def as_envelope(content: bytes) -> None:
    registry = published_registry()
    put_envelope(registry, content)
    assert all(one.content in genuine_envelopes() for one in accept(registry, IMAGE.digest).statements)


def as_signed_statement(content: bytes) -> None:
    registry = published_registry()
    put_envelope(registry, sign_statement(Statement(predicate_type="", content=content), OURS))
    assert accept(registry, IMAGE.digest).outcome.is_pass


def as_promotion(content: bytes) -> None:
    """A signed statement of another form is refused; one of another kind is passed over."""
    registry = published_registry()
    put_envelope(registry, sign_statement(Statement(predicate_type="", content=content), OURS))
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
    policy = parse_conditions(content.decode(errors="replace"), policy=Policy())
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
    as_referrer: make_referrer(make_statements(ON_GPU)[0], BUNDLE_OF_RESULT, subject=IMAGE_DESCRIPTOR).content,
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
    @settings(max_examples=case_count(40), deadline=DEADLINE, suppress_health_check=list(HealthCheck), database=None)
    @given(content=mutations(DOCUMENTS[read]))
    def run(content: bytes) -> None:
        with suppress(TfimgError):
            read(content)

    run()

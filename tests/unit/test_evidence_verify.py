"""Verifying believes what a key signed about these bytes, and refuses everything else in a sentence of its own."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from support.cases import cases
from support.memory_registry import MemoryRegistry
from support.reports import GREEN, PARTIAL, result
from support.signing import OURS, THEIRS
from support.statements import FAILED, IMAGE, LINKED, NOW, ON_GPU, SUBJECT, promoted, published, said
from tfimg.errors import (
    NetworkError,
    NotInRegistry,
    PolicyUnmet,
    StaleEvidence,
    TamperedError,
    TfimgError,
    UnsignedError,
)
from tfimg.evidence.attach import attach, mend, referrer
from tfimg.evidence.bundle import BUNDLE, bundle, seal
from tfimg.evidence.cosign_tags import ATTESTATIONS, add, attestation, tag_of
from tfimg.evidence.dsse import sealed as dsse_sealed
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.policy import Policy, Promise, parse_requirements
from tfimg.evidence.promotions import PROMOTION
from tfimg.evidence.statement import Statement, compact, statement
from tfimg.evidence.verify import Verified, verify
from tfimg.registry.protocol import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest
from tfimg.validation.report import Report

ANYTHING = Policy(level="built")
ATT = tag_of(IMAGE.digest, "att")


def verified(
    registry: MemoryRegistry,
    reference: str = "2.15",
    *,
    require: str = "",
    policy: Policy | None = None,
    now: datetime = NOW,
) -> Verified:
    asked = parse_requirements(require, policy=Policy()) if require else policy or Policy()
    return verify(registry, reference, [OURS.verifying], asked, now=now)


def refused(registry: MemoryRegistry, error: type[TfimgError], says: str, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error, match=says) as caught:
        verified(registry, *args, **kwargs)
    assert type(caught.value) is error
    assert caught.value.next_step


def test_what_our_key_signed_about_these_bytes_is_believed() -> None:
    found = verified(published(ON_GPU), "2.15-gpu", require="validated,gpu=sm_90,driver>=535,max-age=30d")
    assert (found.digest, found.signer) == (IMAGE.digest, OURS.verifying.identifier)
    assert found.image == "registry.test:5000/team/tensorflow:2.15-gpu"
    assert (found.outcome.level, found.outcome.environment.driver) == ("validated", "535.104.05")
    assert {one.predicate_type for one in found.statements} == {
        PROMOTION, *(one.predicate_type for one in said(ON_GPU)),
    }  # fmt: skip
    by_digest = verified(published(GREEN), IMAGE.digest)
    assert by_digest.image == f"registry.test:5000/team/tensorflow@{IMAGE.digest}"


def test_evidence_is_found_wherever_it_lies() -> None:
    """Bundles in one registry, cosign's tag in another that has lost the bundles."""
    only_bundles, only_tag = published(GREEN), published(GREEN)
    only_bundles.untag(ATT)
    only_tag.manifests = {
        digest: one for digest, one in only_tag.manifests.items() if "subject" not in one.document
    }
    assert only_tag.referrers(IMAGE.digest) == []
    assert verified(only_bundles).statements == verified(only_tag).statements


def test_one_of_several_keys_is_enough() -> None:
    found = verify(published(GREEN), "2.15", [THEIRS.verifying, OURS.verifying], ANYTHING, now=NOW)
    assert found.signer == OURS.verifying.identifier


def test_what_others_signed_is_passed_over() -> None:
    registry = published(GREEN)
    attach(registry, IMAGE.digest, said(FAILED), key=THEIRS)
    assert len(verified(registry).statements) == 3


def test_an_image_without_evidence_is_unsigned() -> None:
    refused(published(), UnsignedError, "has no evidence attached")


def test_an_image_with_evidence_of_another_key_is_unsigned_and_the_key_is_named() -> None:
    theirs, ours = (re.escape(key.verifying.identifier) for key in (THEIRS, OURS))
    says = rf"another key signed \({theirs}\), and none that {ours} signed"
    refused(published(GREEN, key=THEIRS), UnsignedError, says)


def test_an_image_that_is_not_there_is_told() -> None:
    refused(published(GREEN), NotInRegistry, r"There is no \S+:9\.99", "9.99")
    refused(published(GREEN), NotInRegistry, r"There is no \S+@sha256:0", f"sha256:{'0' * 64}")


def test_signed_evidence_without_a_test_result_is_not_enough() -> None:
    registry = published()
    attach(registry, IMAGE.digest, [statement(SUBJECT, "https://cyclonedx.org/bom", {})], key=OURS)
    refused(registry, PolicyUnmet, "no test result is among it")


def sealed(statement: Statement, key: SigningKey = OURS) -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(seal(statement, key))
    return envelope


Change = Callable[[dict[str, Any]], dict[str, Any]]


def changed_words(envelope: dict[str, Any]) -> dict[str, Any]:
    words = base64.b64decode(envelope["payload"]).replace(b'"FAILED"', b'"PASSED"')
    words = words.replace(b"0.0 is not", b"it is")
    return {**envelope, "payload": base64.b64encode(words).decode()}


def changed_signature(envelope: dict[str, Any]) -> dict[str, Any]:
    other = sealed(said(GREEN)[1])["signatures"][0]["sig"]
    return {**envelope, "signatures": [{**envelope["signatures"][0], "sig": other}]}


def resigned(envelope: dict[str, Any]) -> dict[str, Any]:
    """With another key, in our name."""
    theirs = sealed(Statement(predicate_type="", content=base64.b64decode(envelope["payload"])), THEIRS)
    return {**envelope, "signatures": [{**theirs["signatures"][0], "keyid": OURS.verifying.identifier}]}


def no_signature(envelope: dict[str, Any]) -> dict[str, Any]:
    return {**envelope, "signatures": [{"keyid": OURS.verifying.identifier, "sig": ""}]}


def put_bundle(registry: MemoryRegistry, content: bytes) -> None:
    registry.put_blob(content)
    subject = Descriptor(media_type=OCI_MANIFEST, digest=IMAGE.digest, size=len(IMAGE.content))
    manifest = referrer(Statement(predicate_type="any", content=b""), content, subject=subject)
    registry.refer(manifest, subject=IMAGE.digest, artifact_type=BUNDLE)


def with_envelopes(registry: MemoryRegistry, envelopes: Sequence[dict[str, Any]]) -> None:
    """What an attacker who may write to the registry puts there, with all digests right."""
    for envelope in envelopes:
        put_bundle(registry, bundle(compact(envelope), OURS.verifying))


def under_the_tag(registry: MemoryRegistry, envelopes: Sequence[dict[str, Any]]) -> None:
    put_under_the_tag(registry, [compact(envelope) for envelope in envelopes])


def put_under_the_tag(registry: MemoryRegistry, contents: Sequence[bytes]) -> None:
    layers = []
    for content in contents:
        described = registry.put_blob(content)
        layers.append({**described.document(), "mediaType": "application/vnd.dsse.envelope.v1+json"})
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": {}, "layers": layers}
    registry.put(ATT, Manifest(media_type=OCI_MANIFEST, content=compact(document)))


@pytest.mark.parametrize("place", [with_envelopes, under_the_tag])
@pytest.mark.parametrize("change", [changed_words, changed_signature, resigned, no_signature])
def test_changed_evidence_in_our_name_is_refused_wherever_it_lies_and_beside_true_evidence_too(
    change: Change, place: Callable[[MemoryRegistry, Sequence[dict[str, Any]]], None]
) -> None:
    for registry in (published(), published(GREEN)):
        place(registry, [change(sealed(one)) for one in said(FAILED)])
        refused(registry, TamperedError, "that key did not sign this", policy=ANYTHING)


def test_where_the_true_half_is_attached_too_it_is_told_which_half_was_changed() -> None:
    replaced, rewritten = published(GREEN), published(FAILED)
    with_envelopes(replaced, [resigned(sealed(said(GREEN)[0]))])
    refused(replaced, TamperedError, "its signature was replaced: the same words are attached")
    with_envelopes(rewritten, [changed_words(sealed(said(FAILED)[0]))])
    refused(rewritten, TamperedError, "its content was changed: the signature belongs to other words")


def test_evidence_of_another_image_is_refused() -> None:
    registry = published()
    attach(registry, IMAGE.digest, said(GREEN, of=f"sha256:{'ab' * 32}"), key=OURS)
    says = rf"signed for another image: it is about sha256:abab\w+, and is attached to {IMAGE.digest}"
    refused(registry, TamperedError, says)


def with_attestation(envelope: dict[str, Any]) -> MemoryRegistry:
    registry = published()
    add(registry, IMAGE.digest, ATTESTATIONS, [attestation(json.dumps(envelope).encode(), "x")])
    return registry


def test_an_envelope_of_a_kind_that_no_text_names_is_refused() -> None:
    registry = with_attestation({"payload": "", "payloadType": "\ud800", "signatures": [{"sig": ""}]})
    refused(registry, TamperedError, "it is no envelope")


def test_whoever_names_his_key_cannot_write_on_the_terminal() -> None:
    signatures = [{"keyid": "\x1b[2K\nverified", "sig": ""}]
    registry = with_attestation({"payload": "", "payloadType": "x", "signatures": signatures})
    refused(registry, UnsignedError, r"another key signed \(verified\), and none")


def test_a_bundle_in_our_name_is_ours_to_refuse_also_where_its_envelope_names_nobody() -> None:
    registry = published(GREEN)
    nameless = {**sealed(said(FAILED)[0]), "signatures": [{"keyid": "", "sig": "MAA="}]}
    with_envelopes(registry, [nameless])
    refused(registry, TamperedError, "that key did not sign this")


def test_what_we_signed_as_something_else_is_no_statement() -> None:
    """A ledger's entry or a name on an invoice: the same key, another kind of words."""
    registry = published()
    words = said(ON_GPU)[0].content
    put_under_the_tag(registry, [dsse_sealed(words, "application/vnd.test.other+json", OURS)])
    refused(registry, PolicyUnmet, "no test result is among it", policy=ANYTHING)


def test_a_statement_about_nothing_is_refused() -> None:
    for content in (b"[]", b"{}", b"no", b'{"subject":[],"predicateType":"x","predicate":{}}'):
        registry = published()
        attach(registry, IMAGE.digest, [Statement(predicate_type="x", content=content)], key=OURS)
        refused(registry, TamperedError, "no statement about an image|signed for another image")


@settings(max_examples=60, deadline=None)
@given(data=strategies.data())
def test_no_changed_byte_makes_anybody_believe_anything_else(data: strategies.DataObject) -> None:
    """Whoever may write to the registry changes one byte of an envelope; all digests are right."""
    true = verified(published(ON_GPU)).statements
    contents = [seal(one, OURS) for one in said(ON_GPU)]
    number = data.draw(strategies.integers(0, len(contents) - 1))
    changed = bytearray(contents[number])
    changed[data.draw(strategies.integers(0, len(changed) - 1))] = data.draw(strategies.integers(0, 255))
    contents[number] = bytes(changed)
    registry = published()
    put_under_the_tag(registry, contents)
    try:
        found = verified(registry)
    except (TamperedError, UnsignedError, PolicyUnmet):
        return
    assert all(one in true for one in found.statements)


def test_a_blob_with_other_bytes_is_refused() -> None:
    registry = published(GREEN)
    registry.blobs = {digest: content[::-1] for digest, content in registry.blobs.items()}
    refused(registry, TamperedError, "has other bytes")


@pytest.mark.parametrize(
    "content",
    [b"no", b"[]", b'{"dsseEnvelope":{}}', b'{"verificationMaterial":{},"dsseEnvelope":{"payload":1}}'],
)
def test_a_bundle_that_is_none_is_refused(content: bytes) -> None:
    registry = published(GREEN)
    put_bundle(registry, content)
    refused(registry, TamperedError, "cannot be read")


def test_a_bundle_of_another_kind_is_passed_over() -> None:
    """A bundle may hold a signature of bytes, which says nothing of tests."""
    registry = published(GREEN)
    put_bundle(registry, b"{}")
    assert verified(registry)


@dataclass(kw_only=True)
class Lying(MemoryRegistry):
    """It lists a referrer, and has another manifest in its place, or none."""

    instead: Manifest | None = None

    def find(self, reference: str) -> Manifest | None:
        found = super().find(reference)
        return self.instead if found and "subject" in found.document else found


@pytest.mark.parametrize("instead", [None, IMAGE])
def test_a_listed_bundle_that_is_not_there_is_refused(instead: Manifest | None) -> None:
    lying = Lying.with_content_of(published(GREEN), instead=instead)
    refused(lying, TamperedError, "it is listed, and is not what the list says")


def test_a_registry_that_answers_a_digest_with_other_bytes_is_refused() -> None:
    registry = published(GREEN)
    registry.manifests[IMAGE.digest] = Manifest(media_type=OCI_INDEX, content=b"{}")
    refused(registry, TamperedError, "The registry's answer", IMAGE.digest)


def test_evidence_without_end_is_not_read_to_its_end() -> None:
    class Endless(MemoryRegistry):
        def blob(self, digest: str) -> Iterator[bytes]:  # noqa: ARG002
            # Two pieces more than are read: where nobody stops it, the test fails, and not the machine.
            yield from (b" " * 2**20 for _ in range(66))
            raise AssertionError("it was read to its end")

    refused(Endless.with_content_of(published(GREEN)), TamperedError, "more than 64 MiB")


def test_a_registry_that_cannot_be_reached_is_no_reason_to_believe() -> None:
    class Gone(MemoryRegistry):
        def blob(self, digest: str) -> Iterator[bytes]:  # noqa: ARG002
            raise NetworkError("registry.test does not answer.", next_step="Try again.")

    refused(Gone.with_content_of(published(GREEN)), NetworkError, "does not answer")


def test_a_failure_is_told_by_name() -> None:
    refused(published(FAILED), PolicyUnmet, r"failed its tests on 2026-01-02: gpu\.matmul", policy=ANYTHING)
    broken = replace(GREEN, problem="the suite did not start", required=(), results=())
    says = "failed its tests .*: the suite did not reach its end"
    refused(published(broken), PolicyUnmet, says, policy=ANYTHING)


@cases("evidence_verify", "a_level_that_is_too_low_is_told_with_the_demand")
def test_a_level_that_is_too_low_is_told_with_the_demand(reference: str, require: str, says: str) -> None:
    refused(published(LINKED), PolicyUnmet, says, reference, require=require)
    assert verified(published(LINKED), "2.15").outcome.level == "linked"
    assert verified(published(LINKED), "2.15-gpu", require="linked")


@pytest.mark.parametrize("tag", ["2.15-gpu", "2.15-gpu-py3.11", "latest-gpu-arm64", "2.15-tpu"])
@pytest.mark.parametrize("require", ["", "validated"])
def test_a_tag_that_names_a_device_is_not_kept_by_an_image_for_another(tag: str, require: str) -> None:
    registry = published(GREEN)
    registry.put(tag, IMAGE)
    device = tag.split("-")[1]
    says = rf"{tag} is 2\.15\.1-cpu-py3\.11, which is for a CPU, and its name says {device.upper()}"
    refused(registry, PolicyUnmet, says, tag, require=require)
    assert verified(registry, IMAGE.digest, require=require)


def test_a_tag_beside_a_digest_is_kept_to_what_it_promises() -> None:
    registry = published(LINKED)
    with pytest.raises(PolicyUnmet, match="is linked, and has to be validated: the name promises it"):
        verify(registry, IMAGE.digest, [OURS.verifying], Policy(), now=NOW, tag="2.15-gpu")
    assert verify(registry, IMAGE.digest, [OURS.verifying], Policy(), now=NOW, tag="2.15")
    less = Policy(promises=(Promise(tags="*-gpu", level="linked", reason="Our CI has no GPU."),))
    assert verified(registry, "2.15-gpu", policy=less), "a file may let an alias promise less"


ENDED = datetime.fromisoformat(GREEN.date)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("require", "age"), [("max-age=2d", timedelta(days=2)), ("max-age=36h", timedelta(hours=36))]
)
def test_evidence_may_be_as_old_as_allowed_and_not_a_second_older(require: str, age: timedelta) -> None:
    assert verified(published(GREEN), require=require, now=ENDED + age)
    refused(published(GREEN), StaleEvidence, "last tested on", require=require, now=ENDED + age + SECOND)


@cases("evidence_verify", "an_age_of_two_days_or_more_is_told_in_days")
def test_an_age_of_two_days_or_more_is_told_in_days(require: str, age: int, says: str) -> None:
    now = ENDED + timedelta(hours=age)
    refused(published(GREEN), StaleEvidence, says, require=require, now=now)


def test_clocks_may_be_ten_minutes_apart_and_not_a_second_more() -> None:
    ahead = timedelta(minutes=10)
    assert verified(published(GREEN), require="max-age=1d", now=ENDED - ahead)
    earlier = ENDED - ahead - SECOND
    refused(published(GREEN), StaleEvidence, "in the future", require="max-age=1d", now=earlier)
    assert verified(published(GREEN), now=earlier), "no age is asked for"


@pytest.mark.parametrize("late", [False, True])
def test_a_pass_hides_an_earlier_failure_when_its_clock_is_at_most_ten_minutes_ahead(late: bool) -> None:
    """The failure is older than the pass in both cases."""
    failed = replace(FAILED, date=(ENDED - timedelta(hours=1)).isoformat())
    registry, now = published(ON_GPU, failed), ENDED - timedelta(minutes=10)
    if late:
        refused(registry, PolicyUnmet, "failed its tests", policy=ANYTHING, now=now - SECOND)
    else:
        assert verified(registry, policy=ANYTHING, now=now)


NAMELESS = replace(ON_GPU, results=GREEN.results, required=GREEN.required)
ODD = replace(ON_GPU.results[-1], evidence={**ON_GPU.results[-1].evidence, "driver": "unknown!"})
ODD_DRIVER = replace(ON_GPU, results=(*ON_GPU.results[:-1], ODD))


@pytest.mark.parametrize(
    ("report", "require", "says"),
    [
        (ON_GPU, "gpu=sm_80", r"was tested on NVIDIA H100 \(sm_90\), and a GPU of sm_80 is required"),
        (GREEN, "gpu=sm_80", "was tested on no GPU at all, and a GPU of sm_80"),
        (NAMELESS, "validated", "is linked, and has to be validated"),
        (ON_GPU, "driver>=550", r"was tested with driver 535\.104\.05, and driver>=550 is required"),
        (GREEN, "driver>=550", "was tested with no GPU driver, and driver>=550"),
        (ODD_DRIVER, "driver>=1", "driver unknown!, and"),
    ],
)
def test_another_gpu_or_driver_than_required_is_told(report: Report, require: str, says: str) -> None:
    refused(published(report), PolicyUnmet, says, require=require)


@cases("evidence_verify", "a_driver_on_the_bound_of_a_range_is_within_it_or_not")
def test_a_driver_on_the_bound_of_a_range_is_within_it_or_not(require: str, fits: bool) -> None:
    if fits:
        assert verified(published(ON_GPU), require=require)
    else:
        refused(published(ON_GPU), PolicyUnmet, "was tested with driver 535", require=require)


def on(day: str, report: Report) -> Report:
    return replace(report, date=f"{day}T00:00:00+00:00")


def test_the_newest_result_that_is_enough_counts() -> None:
    later = on("2026-01-10", LINKED)
    registry = published(ON_GPU, later)
    assert verified(registry, "2.15").outcome.ended == datetime(2026, 1, 10, tzinfo=UTC)
    assert verified(registry, "2.15-gpu").outcome.ended == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_test_result_of_another_form_is_refused() -> None:
    registry = published()
    kind = said(GREEN)[0].predicate_type
    for predicate in ({}, {**json.loads(said(GREEN)[0].content)["predicate"], "level": "perfect"}):
        attach(registry, IMAGE.digest, [statement(SUBJECT, kind, predicate)], key=OURS)
        refused(registry, TamperedError, "another form than tfimg gives it")


@cases("evidence_verify", "a_failure_counts_unless_what_passed_is_newer")
def test_a_failure_counts_unless_what_passed_is_newer(passed: str, failed: str, counts: bool) -> None:
    reports = (on(passed, ON_GPU), on(failed, FAILED))
    for registry in (published(*reports), published(*reversed(reports))):
        if counts:
            refused(registry, PolicyUnmet, f"failed its tests on {failed}")
        else:
            assert verified(registry)


SKIPPED = result("gpu.matmul", "skipped", "there is no GPU")
WITH_SKIPPED = replace(ON_GPU, results=(*ON_GPU.results, SKIPPED), required=(*ON_GPU.required, "gpu.matmul"))


def test_a_required_check_that_was_skipped_is_told_by_name() -> None:
    says = r"no proof of gpu\.matmul, which it needs: the check was skipped on 2026-01-02 \(there is no GPU\)"
    refused(published(WITH_SKIPPED), PolicyUnmet, says, policy=ANYTHING)
    says = r"the check was skipped .*\(it was left out\), and \d+ more"
    refused(published(PARTIAL), PolicyUnmet, says, policy=ANYTHING)


def test_a_newer_run_that_skipped_a_check_leaves_an_earlier_pass() -> None:
    """It is no pass, and no check failed in it."""
    later = on("2026-01-10", WITH_SKIPPED)
    assert verified(published(ON_GPU, later), policy=ANYTHING).outcome.ended == ENDED


def test_of_several_results_that_are_not_enough_the_newest_gives_the_reason() -> None:
    later = on("2026-01-10", LINKED)
    says = "is linked, and has to be validated"
    refused(published(ON_GPU, later), PolicyUnmet, says, require="validated,gpu=sm_80")


def test_a_check_that_is_not_required_may_be_skipped() -> None:
    assert verified(published(replace(ON_GPU, results=(*ON_GPU.results, SKIPPED))), "2.15-gpu")


def test_the_first_three_failures_are_named() -> None:
    failed = [result(f"gpu.{name}", "failed", "wrong") for name in "abcd"]
    report = replace(ON_GPU, results=(*ON_GPU.results, *failed))
    refused(published(report), PolicyUnmet, r": gpu\.a, gpu\.b, gpu\.c\. ", policy=ANYTHING)


def test_an_image_for_another_device_is_told_before_its_failures() -> None:
    failed = replace(GREEN, results=(*GREEN.results, result("input.other", "failed", "wrong")))
    refused(published(failed), PolicyUnmet, "which is for a CPU, and its name says GPU", "2.15-gpu")


def test_a_digest_has_no_name_that_promises_anything() -> None:
    everything = Policy(promises=(Promise(tags="*", level="validated", reason="We have every GPU."),))
    refused(published(LINKED), PolicyUnmet, "validated: the name promises it", policy=everything)
    refused(published(LINKED), PolicyUnmet, "validated: less is no proof", IMAGE.digest, policy=everything)


def test_referrers_that_are_listed_without_a_type_are_read() -> None:
    """A client keeps the list where the registry has no referrers API, and may leave the type out."""

    class Untyped(MemoryRegistry):
        def referrers(self, digest: str) -> Sequence[Descriptor]:
            return [replace(one, artifact_type=None) for one in super().referrers(digest)]

    true = published(GREEN)
    true.untag(ATT)
    content = b"a bill of materials"
    document = {
        "artifactType": "application/spdx+json",
        "layers": [{"digest": true.put_blob(content).digest}],
        "subject": {"digest": IMAGE.digest},
    }
    other = Manifest(media_type=OCI_MANIFEST, content=compact(document))
    true.put(other.digest, other)
    assert verified(Untyped.with_content_of(true))


def test_a_subject_may_have_a_second_digest() -> None:
    registry = published()
    for one in said(GREEN):
        document = json.loads(one.content)
        document["subject"][0]["digest"]["sha512"] = "0" * 128
        attach(registry, IMAGE.digest, [replace(one, content=compact(document))], key=OURS)
    attach(registry, IMAGE.digest, [promoted("2.15")], key=OURS)
    assert verified(registry)


def test_mending_signs_nothing_that_another_key_signed() -> None:
    registry = published(GREEN, key=THEIRS)
    mend(registry, IMAGE.digest, key=OURS)
    refused(registry, UnsignedError, "another key signed")

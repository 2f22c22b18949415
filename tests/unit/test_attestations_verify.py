"""Verifying accepts what a key signed about these bytes, and refuses everything else with a message of its own."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.cases import cases
from support.memory_registry import MemoryRegistry
from support.messages import assert_message, exactly
from support.reports import GREEN, PARTIAL, result
from support.signing import OURS, THEIRS
from support.statements import (
    FAILED,
    IMAGE,
    LINKED,
    NOW,
    ON_GPU,
    SUBJECT,
    make_promotion,
    make_statements,
    published_registry,
    put_bundle,
    put_envelope,
)
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import (
    IN_TOTO,
    PROMOTION,
    TEST_RESULT,
    Statement,
    canonical_json,
    make_bundle,
    make_statement,
    sign_statement,
)
from tfimg.attestations.keys import SigningKey
from tfimg.attestations.policy import Policy, TagPromise, parse_conditions
from tfimg.attestations.verify import VerifiedImage, verify
from tfimg.core.errors import (
    InvalidKey,
    NetworkError,
    NotInRegistry,
    PolicyViolation,
    StaleAttestations,
    TamperedError,
    TfimgError,
    UnsignedError,
)
from tfimg.core.levels import Level
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.support_ends import SupportEnd
from tfimg.recipe.tags import find_contradiction, list_aliases, make_build_tag
from tfimg.registry.documents import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest
from tfimg.validation.report import Report

ANYTHING = Policy(level=Level.BUILT)


def verified(
    registry: MemoryRegistry,
    reference: str = "2.15",
    *,
    require: str = "",
    policy: Policy | None = None,
    now: datetime = NOW,
) -> VerifiedImage:
    chosen = parse_conditions(require, policy=Policy()) if require else policy or Policy()
    return verify(registry, reference, [OURS.verifying_key], chosen, now=now)


def expect_refusal(registry: MemoryRegistry, error: type[TfimgError], says: str, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error, match=says) as caught:
        verified(registry, *args, **kwargs)
    assert type(caught.value) is error
    assert_message(caught.value)


def test_attestations_that_our_key_signed_for_this_digest_are_accepted() -> None:
    found = verified(published_registry(ON_GPU), "2.15-gpu", require="validated,gpu=sm_90,driver>=535,max-age=30d")
    assert (found.digest, found.signer) == (IMAGE.digest, OURS.verifying_key.identifier)
    assert found.image == "registry.test:5000/team/tensorflow:2.15-gpu"
    assert (found.outcome.level, found.outcome.environment.driver) == ("validated", "535.104.05")
    assert {one.predicate_type for one in found.statements} == {
        PROMOTION, *(one.predicate_type for one in make_statements(ON_GPU)),
    }  # fmt: skip
    by_digest = verified(published_registry(GREEN), IMAGE.digest)
    assert by_digest.image == f"registry.test:5000/team/tensorflow@{IMAGE.digest}"


def test_what_others_signed_is_passed_over() -> None:
    registry = published_registry(GREEN)
    attach(registry, IMAGE.digest, make_statements(FAILED), key=THEIRS)
    assert len(verified(registry).statements) == 3


def test_an_image_without_attestations_are_unsigned() -> None:
    expect_refusal(published_registry(), UnsignedError, "has no attestations attached")


def test_an_unsigned_statement_is_not_attestations() -> None:
    registry = published_registry()
    layers = [{**registry.put_blob(one.content).to_document(), "mediaType": IN_TOTO} for one in make_statements(ON_GPU)]
    subject = {"mediaType": OCI_MANIFEST, "digest": IMAGE.digest, "size": len(IMAGE.content)}
    document = {
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "artifactType": IN_TOTO, "layers": layers, "subject": subject,
    }  # fmt: skip
    manifest = Manifest(media_type=OCI_MANIFEST, content=canonical_json(document))
    registry.put_referrers([manifest], subject=IMAGE.digest)
    expect_refusal(registry, UnsignedError, "has no attestations attached")
    attach(registry, IMAGE.digest, make_statements(LINKED), key=OURS)
    assert verified(registry, IMAGE.digest).outcome.proven_level == "linked"


def test_an_image_with_attestations_of_another_key_is_unsigned_and_the_key_is_named() -> None:
    theirs, ours = (re.escape(key.verifying_key.identifier) for key in (THEIRS, OURS))
    says = rf"another key signed \({theirs}\), and none that {ours} signed"
    expect_refusal(published_registry(GREEN, key=THEIRS), UnsignedError, says)


def test_a_missing_image_is_an_error() -> None:
    expect_refusal(published_registry(GREEN), NotInRegistry, r"The registry has no \S+:9\.99", "9.99")
    expect_refusal(published_registry(GREEN), NotInRegistry, r"The registry has no \S+@sha256:0", f"sha256:{'0' * 64}")


def test_signed_attestations_without_a_test_result_are_not_enough() -> None:
    registry = published_registry()
    attach(registry, IMAGE.digest, [make_statement(SUBJECT, "https://cyclonedx.org/bom", {})], key=OURS)
    expect_refusal(registry, PolicyViolation, "but no test result")


def sign_envelope(statement: Statement, key: SigningKey = OURS) -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(sign_statement(statement, key))
    return envelope


Change = Callable[[dict[str, Any]], dict[str, Any]]


def changed_words(envelope: dict[str, Any]) -> dict[str, Any]:
    words = base64.b64decode(envelope["payload"]).replace(b'"FAILED"', b'"PASSED"')
    words = words.replace(b"0.0 is not", b"it is")
    return {**envelope, "payload": base64.b64encode(words).decode()}


def changed_signature(envelope: dict[str, Any]) -> dict[str, Any]:
    other = sign_envelope(make_statements(GREEN)[1])["signatures"][0]["sig"]
    return {**envelope, "signatures": [{**envelope["signatures"][0], "sig": other}]}


def sign_with_other_key(envelope: dict[str, Any]) -> dict[str, Any]:
    """With another key, in our name."""
    theirs = sign_envelope(Statement(predicate_type="", content=base64.b64decode(envelope["payload"])), THEIRS)
    return {**envelope, "signatures": [{**theirs["signatures"][0], "keyid": OURS.verifying_key.identifier}]}


def no_signature(envelope: dict[str, Any]) -> dict[str, Any]:
    return {**envelope, "signatures": [{"keyid": OURS.verifying_key.identifier, "sig": ""}]}


def with_envelopes(registry: MemoryRegistry, envelopes: Sequence[dict[str, Any]]) -> None:
    """What an attacker who may write to the registry puts there, with all digests right."""
    for envelope in envelopes:
        put_bundle(registry, make_bundle(canonical_json(envelope), OURS.verifying_key))


@pytest.mark.parametrize("change", [changed_words, changed_signature, sign_with_other_key, no_signature])
def test_changed_attestations_of_our_key_are_refused_also_beside_genuine_attestations(change: Change) -> None:
    for registry in (published_registry(), published_registry(GREEN)):
        with_envelopes(registry, [change(sign_envelope(one)) for one in make_statements(FAILED)])
        expect_refusal(registry, TamperedError, "that key did not sign it", policy=ANYTHING)


def test_with_the_original_half_attached_the_changed_half_is_named() -> None:
    replaced, rewritten = published_registry(GREEN), published_registry(FAILED)
    with_envelopes(replaced, [sign_with_other_key(sign_envelope(make_statements(GREEN)[0]))])
    expect_refusal(replaced, TamperedError, "its signature was replaced: the same content is attached")
    with_envelopes(rewritten, [changed_words(sign_envelope(make_statements(FAILED)[0]))])
    expect_refusal(rewritten, TamperedError, "its content was changed: the signature belongs to other content")


def test_attestations_of_another_image_are_refused() -> None:
    registry = published_registry()
    attach(registry, IMAGE.digest, make_statements(GREEN, of=f"sha256:{'ab' * 32}"), key=OURS)
    says = rf"signed for another image: it is about sha256:abab\w+, but attached to {IMAGE.digest}"
    expect_refusal(registry, TamperedError, says)


def with_attestation(envelope: dict[str, Any]) -> MemoryRegistry:
    registry = published_registry()
    put_envelope(registry, json.dumps(envelope).encode())
    return registry


def test_the_name_of_a_key_is_escaped_on_the_terminal() -> None:
    signatures = [{"keyid": "\x1b[2K\nverified", "sig": ""}]
    registry = with_attestation({"payload": "", "payloadType": "x", "signatures": signatures})
    expect_refusal(registry, UnsignedError, r"another key signed \(verified\), and none")


def test_a_bundle_that_names_our_key_is_verified_though_its_envelope_names_none() -> None:
    registry = published_registry(GREEN)
    nameless = {**sign_envelope(make_statements(FAILED)[0]), "signatures": [{"keyid": "", "sig": "MAA="}]}
    with_envelopes(registry, [nameless])
    expect_refusal(registry, TamperedError, "that key did not sign it")


def test_a_blob_with_other_bytes_is_refused() -> None:
    registry = published_registry(GREEN)
    registry.blobs = {digest: content[::-1] for digest, content in registry.blobs.items()}
    expect_refusal(registry, TamperedError, "has other bytes")


def test_a_bundle_of_another_kind_is_passed_over() -> None:
    """A bundle may hold a signature of bytes, which says nothing of tests."""
    registry = published_registry(GREEN)
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
    lying = Lying.with_content_of(published_registry(GREEN), instead=instead)
    expect_refusal(lying, TamperedError, "has other bytes or none under its digest")


def test_a_registry_that_answers_a_digest_with_other_bytes_is_refused() -> None:
    registry = published_registry(GREEN)
    registry.manifests[IMAGE.digest] = Manifest(media_type=OCI_INDEX, content=b"{}")
    expect_refusal(registry, TamperedError, "The registry's answer", IMAGE.digest)


def test_an_unreachable_registry_verifies_nothing() -> None:
    class Gone(MemoryRegistry):
        def get_blob(self, digest: str) -> Iterator[bytes]:  # noqa: ARG002
            raise NetworkError("registry.test does not answer.", next_step="Try again.")

    expect_refusal(Gone.with_content_of(published_registry(GREEN)), NetworkError, "does not answer")


def test_a_failure_is_reported_by_name() -> None:
    expect_refusal(
        published_registry(FAILED), PolicyViolation, r"failed its tests on 2026-01-02: gpu\.matmul", policy=ANYTHING
    )
    broken = replace(GREEN, problem="the suite did not start", required=(), results=())
    says = "failed its tests .*: the suite did not finish"
    expect_refusal(published_registry(broken), PolicyViolation, says, policy=ANYTHING)


@cases("attestations_verify", "a_level_that_is_too_low_is_named_with_the_required_one")
def test_a_level_that_is_too_low_is_named_with_the_required_one(reference: str, require: str, says: str) -> None:
    expect_refusal(published_registry(LINKED), PolicyViolation, says, reference, require=require)
    assert verified(published_registry(LINKED), "2.15").outcome.level == "linked"
    assert verified(published_registry(LINKED), "2.15-gpu", require="linked")


def test_a_tag_beside_a_digest_is_kept_to_what_it_promises() -> None:
    registry = published_registry(LINKED)
    says = (
        r"has level linked, but level validated is required: its tag promises it \(it has been validated on a GPU\)\. "
        "Validate"
    )
    with pytest.raises(PolicyViolation, match=says):
        verify(registry, IMAGE.digest, [OURS.verifying_key], Policy(), now=NOW, tag="2.15-gpu")
    assert verify(registry, IMAGE.digest, [OURS.verifying_key], Policy(), now=NOW, tag="2.15")
    less = Policy(promises=(TagPromise(tags="*-gpu", level=Level.LINKED, reason="Our CI has no GPU."),))
    assert verified(registry, "2.15-gpu", policy=less), "a file may let an alias promise less"


ENDED = datetime.fromisoformat(GREEN.date)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("require", "age"), [("max-age=2d", timedelta(days=2)), ("max-age=36h", timedelta(hours=36))])
def test_attestations_may_be_as_old_as_allowed_and_not_a_second_older(require: str, age: timedelta) -> None:
    assert verified(published_registry(GREEN), require=require, now=ENDED + age)
    expect_refusal(
        published_registry(GREEN), StaleAttestations, "last tested on", require=require, now=ENDED + age + SECOND
    )


def test_without_another_policy_attestations_may_be_90_days_old() -> None:
    limit = ENDED + timedelta(days=90)
    for policy in (Policy(), Policy(level=Level.BUILT), parse_conditions("linked", policy=Policy())):
        assert verified(published_registry(GREEN), policy=policy, now=limit)
        expect_refusal(
            published_registry(GREEN), StaleAttestations, "at most 90 days", policy=policy, now=limit + SECOND
        )
    assert verified(published_registry(GREEN), require="max-age=unlimited", now=limit + timedelta(days=9999))


REFUSE_OURS = Policy(level=Level.BUILT, refused_keys=frozenset({OURS.verifying_key.identifier}))
BOTH = (OURS.verifying_key, THEIRS.verifying_key)


def test_what_a_refused_key_signed_counts_no_more_though_the_key_is_trusted() -> None:
    registry = published_registry(GREEN)
    with pytest.raises(UnsignedError, match=f"none that {re.escape(THEIRS.verifying_key.identifier)} signed"):
        verify(registry, "2.15", BOTH, REFUSE_OURS, now=NOW)
    attach(registry, IMAGE.digest, [*make_statements(GREEN), make_promotion("2.15")], key=THEIRS)
    found = verify(registry, "2.15", BOTH, REFUSE_OURS, now=NOW)
    assert found.signer == THEIRS.verifying_key.identifier
    assert {one.signer for one in found.statements} == {THEIRS.verifying_key.identifier}


def test_a_failure_that_a_refused_key_signed_blocks_nothing() -> None:
    registry = published_registry(GREEN, key=THEIRS)
    attach(registry, IMAGE.digest, make_statements(on("2026-01-10", BROKEN)), key=OURS)
    assert verify(registry, "2.15", BOTH, REFUSE_OURS, now=NOW)


def test_a_forged_statement_in_the_name_of_a_refused_key_is_passed_over() -> None:
    registry = published_registry(GREEN, key=THEIRS)
    with_envelopes(registry, [no_signature(sign_envelope(make_statements(FAILED)[0]))])
    assert verify(registry, "2.15", BOTH, REFUSE_OURS, now=NOW)


def test_where_every_trusted_key_is_refused_nothing_can_be_verified() -> None:
    says = (
        f"Nothing can be verified: the policy refuses {OURS.verifying_key.identifier}, and no other key is trusted. "
        "Name the publisher's new public key with --public-key."
    )
    with pytest.raises(InvalidKey, match=exactly(says)):
        verify(published_registry(GREEN), "2.15", [OURS.verifying_key], REFUSE_OURS, now=NOW)


def test_a_key_is_rotated_without_a_gap() -> None:
    """Users trust both keys, the publisher signs with the new one, users refuse the old one."""
    registry = published_registry(GREEN)
    assert verify(registry, "2.15", BOTH, ANYTHING, now=NOW)
    attach(registry, IMAGE.digest, [*make_statements(on("2026-01-10", GREEN)), make_promotion("2.15")], key=THEIRS)
    assert verify(registry, "2.15", BOTH, ANYTHING, now=NOW).signer == THEIRS.verifying_key.identifier
    assert verify(registry, "2.15", [THEIRS.verifying_key], REFUSE_OURS, now=NOW)


@cases("attestations_verify", "an_age_of_two_days_or_more_is_reported_in_days")
def test_an_age_of_two_days_or_more_is_reported_in_days(require: str, age: int, says: str) -> None:
    now = ENDED + timedelta(hours=age)
    expect_refusal(published_registry(GREEN), StaleAttestations, says, require=require, now=now)


def test_clocks_may_be_ten_minutes_apart_and_not_a_second_more() -> None:
    ahead = timedelta(minutes=10)
    assert verified(published_registry(GREEN), require="max-age=1d", now=ENDED - ahead)
    earlier = ENDED - ahead - SECOND
    expect_refusal(published_registry(GREEN), StaleAttestations, "in the future", require="max-age=1d", now=earlier)
    expect_refusal(published_registry(GREEN), StaleAttestations, "in the future", now=earlier)


@pytest.mark.parametrize("late", [False, True])
def test_a_pass_hides_an_earlier_failure_when_its_clock_is_at_most_ten_minutes_ahead(late: bool) -> None:
    """The failure is older than the pass in both cases."""
    failed = replace(FAILED, date=(ENDED - timedelta(hours=1)).isoformat())
    registry, now = published_registry(ON_GPU, failed), ENDED - timedelta(minutes=10)
    if late:
        expect_refusal(registry, PolicyViolation, "failed its tests", policy=ANYTHING, now=now - SECOND)
    else:
        assert verified(registry, policy=ANYTHING, now=now)


NAMELESS = replace(ON_GPU, results=GREEN.results, required=GREEN.required)
ODD = replace(ON_GPU.results[-1], measured={**ON_GPU.results[-1].measured, "driver": "unknown!"})
ODD_DRIVER = replace(ON_GPU, results=(*ON_GPU.results[:-1], ODD))


@pytest.mark.parametrize(
    ("report", "require", "says"),
    [
        (ON_GPU, "gpu=sm_80", r"was tested on NVIDIA H100 \(sm_90\), and a GPU of sm_80 is required"),
        (GREEN, "gpu=sm_80", "was tested on no GPU at all, and a GPU of sm_80"),
        (NAMELESS, "validated", "has level linked, but level validated is required"),
        (ON_GPU, "driver>=550", r"was tested with driver 535\.104\.05, and driver>=550 is required"),
        (GREEN, "driver>=550", "was tested with no GPU driver, and driver>=550"),
        (ODD_DRIVER, "driver>=1", "driver unknown!, and"),
    ],
)
def test_another_gpu_or_driver_than_required_is_reported(report: Report, require: str, says: str) -> None:
    expect_refusal(published_registry(report), PolicyViolation, says, require=require)


@cases("attestations_verify", "a_driver_on_the_bound_of_a_range_is_within_it_or_not")
def test_a_driver_on_the_bound_of_a_range_is_within_it_or_not(require: str, fits: bool) -> None:
    if fits:
        assert verified(published_registry(ON_GPU), require=require)
    else:
        expect_refusal(published_registry(ON_GPU), PolicyViolation, "was tested with driver 535", require=require)


def on(day: str, report: Report) -> Report:
    return replace(report, date=f"{day}T00:00:00+00:00")


def test_the_newest_result_that_is_enough_counts() -> None:
    later = on("2026-01-10", LINKED)
    registry = published_registry(ON_GPU, later)
    assert verified(registry, "2.15").outcome.ended == datetime(2026, 1, 10, tzinfo=UTC)
    assert verified(registry, "2.15-gpu").outcome.ended == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@cases("attestations_verify", "a_failure_counts_unless_what_passed_is_newer")
def test_a_failure_counts_unless_what_passed_is_newer(passed: str, failed: str, counts: bool) -> None:
    reports = (on(passed, ON_GPU), on(failed, FAILED))
    for registry in (published_registry(*reports), published_registry(*reversed(reports))):
        if counts:
            expect_refusal(registry, PolicyViolation, f"failed its tests on {failed}")
        else:
            assert verified(registry)


SKIPPED = result("gpu.matmul", "skipped", "there is no GPU")
WITH_SKIPPED = replace(ON_GPU, results=(*ON_GPU.results, SKIPPED), required=(*ON_GPU.required, "gpu.matmul"))


BROKEN = replace(ON_GPU, problem="the suite was killed", results=())
"""Signed as FAILED, with no failed test named."""
LEFT_OUT = replace(PARTIAL, identifier=ON_GPU.identifier, device="gpu")
"""Signed as WARNED: a required check was left out, and none failed."""


@pytest.mark.parametrize("newer", [FAILED, BROKEN, WITH_SKIPPED, LEFT_OUT])
@pytest.mark.parametrize("key", [OURS, THEIRS])
def test_a_newer_result_that_is_no_pass_blocks_every_older_pass(newer: Report, key: SigningKey) -> None:
    registry = published_registry(on("2025-12-24", ON_GPU), ON_GPU)
    attach(registry, IMAGE.digest, make_statements(on("2026-01-10", newer)), key=key)
    with pytest.raises(PolicyViolation, match="2026-01-10"):
        verify(registry, "2.15-gpu", [OURS.verifying_key, THEIRS.verifying_key], ANYTHING, now=NOW)
    attach(registry, IMAGE.digest, make_statements(on("2026-01-11", ON_GPU)), key=OURS)
    assert verify(registry, "2.15-gpu", [OURS.verifying_key, THEIRS.verifying_key], ANYTHING, now=NOW)


@pytest.mark.parametrize("other", [BROKEN, WITH_SKIPPED, LEFT_OUT])
@pytest.mark.parametrize("key", [OURS, THEIRS])
def test_of_two_results_of_one_second_the_one_that_is_no_pass_counts(other: Report, key: SigningKey) -> None:
    for first, second in ((ON_GPU, other), (other, ON_GPU)):
        registry = published_registry(first)
        attach(registry, IMAGE.digest, make_statements(second), key=key)
        with pytest.raises(PolicyViolation):
            verify(registry, "2.15-gpu", [OURS.verifying_key, THEIRS.verifying_key], ANYTHING, now=NOW)


def predicate_of(report: Report, **changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(make_statements(report)[0].content)["predicate"]
    return {**found, **changed}


def with_result(registry: MemoryRegistry, predicate: dict[str, Any]) -> MemoryRegistry:
    attach(registry, IMAGE.digest, [make_statement(SUBJECT, TEST_RESULT, predicate)], key=OURS)
    return registry


@pytest.mark.parametrize("result", ["ERRORED", "passed", "", None, 1, ["PASSED"], {}])
def test_a_newer_result_of_an_unknown_kind_blocks_an_older_pass(result: Any) -> None:
    registry = with_result(published_registry(ON_GPU), predicate_of(on("2026-01-10", ON_GPU), result=result))
    expect_refusal(registry, TamperedError, "test result of .* is invalid: result:", policy=ANYTHING)


@pytest.mark.parametrize(
    "changed",
    [
        {"failedTests": ["gpu.matmul"]},
        {"passedTests": []},
        {"result": "FAILED"},
        {"skippedTests": [{"name": "a", "reason": None, "required": True}]},
    ],
)
def test_a_result_that_contradicts_itself_proves_nothing(changed: dict[str, Any]) -> None:
    """A pass with a failed, missing or no test at all."""
    registry = with_result(published_registry(ON_GPU), predicate_of(on("2026-01-10", ON_GPU), **changed))
    expect_refusal(registry, PolicyViolation, "2026-01-10", policy=ANYTHING)


@pytest.mark.parametrize("without", ["gpus", "seen"])
def test_a_level_that_the_tests_do_not_show_is_rejected(without: str) -> None:
    predicate = predicate_of(ON_GPU)
    if without == "gpus":
        predicate["environment"]["gpus"] = []
    else:
        predicate["passedTests"].remove("gpu.visible")
    says = "has level linked, but level validated is required"
    expect_refusal(with_result(published_registry(), predicate), PolicyViolation, says, "2.15-gpu")


@pytest.mark.parametrize("require", ["built", "built,max-age=30d"])
def test_a_result_from_the_future_is_refused_with_or_without_an_age(require: str) -> None:
    registry = published_registry(on("2026-01-13", ON_GPU))
    expect_refusal(registry, StaleAttestations, "in the future", require=require)
    attach(registry, IMAGE.digest, make_statements(ON_GPU), key=OURS)
    assert verified(registry, require=require).outcome.ended == ENDED, "an older one counts"


def test_of_several_results_that_are_not_enough_the_newest_gives_the_reason() -> None:
    later = on("2026-01-10", LINKED)
    says = "has level linked, but level validated is required"
    expect_refusal(published_registry(ON_GPU, later), PolicyViolation, says, require="validated,gpu=sm_80")


def test_a_check_that_is_not_required_may_be_skipped() -> None:
    assert verified(published_registry(replace(ON_GPU, results=(*ON_GPU.results, SKIPPED))), "2.15-gpu")


def test_an_image_for_another_device_is_reported_before_its_failures() -> None:
    failed = replace(GREEN, results=(*GREEN.results, result("input.other", "failed", "wrong")))
    expect_refusal(published_registry(failed), PolicyViolation, "its tag 2.15-gpu states GPU", "2.15-gpu")


def test_a_policy_may_refuse_what_gets_no_more_security_fixes() -> None:
    ends = [
        SupportEnd(subject=subject, ends=NOW.date() - timedelta(days=days), source="")
        for subject, days in (("Python 3.11", 2), ("Debian bookworm", 1), ("TensorFlow 2.15", 0))
    ]
    policy = Policy(refuse_end_of_life=True, find_support_ends={GREEN.identifier: ends}.get)
    name = f"{SUBJECT.name}:2.15"
    says = (
        f"{name} gets no more security fixes: Python 3.11 ended 2026-01-10, Debian bookworm ended 2026-01-11. Use an "
        "image of newer versions (`tfimg list` shows them), or a policy that does not refuse it."
    )
    with pytest.raises(PolicyViolation, match=exactly(says)):
        verified(published_registry(GREEN), policy=policy)
    assert verified(published_registry(GREEN), policy=replace(policy, refuse_end_of_life=False))
    del ends[:2]
    assert verified(published_registry(GREEN), policy=policy), "today it still gets them"
    says = (
        f"{name} is {GREEN.identifier}, of which the matrix does not know whether it gets security fixes. The policy "
        "refuses what gets none: verify it with the matrix that it was built from."
    )
    with pytest.raises(PolicyViolation, match=exactly(says)):
        verified(published_registry(GREEN), policy=Policy(refuse_end_of_life=True))


def test_a_digest_has_no_name_that_promises_anything() -> None:
    everything = Policy(promises=(TagPromise(tags="*", level=Level.VALIDATED, reason="We have every GPU."),))
    expect_refusal(
        published_registry(LINKED), PolicyViolation, "validated is required: its tag promises it", policy=everything
    )
    expect_refusal(
        published_registry(LINKED),
        PolicyViolation,
        "validated is required: a lower level is not a proof",
        IMAGE.digest,
        policy=everything,
    )


@pytest.mark.parametrize("kind", ["https://spdx.dev/Document", "urn:unknown:statement"])
def test_a_statement_of_an_unknown_type_changes_nothing(kind: str) -> None:
    """Images that were published with SPDX stay verifiable."""
    registry = published_registry(GREEN)
    plain = verified(registry)
    spdx = {"spdxVersion": "SPDX-2.3", "packages": [{"name": "numpy", "versionInfo": "0.0.1"}]}
    attach(registry, IMAGE.digest, [make_statement(SUBJECT, kind, spdx)], key=OURS)
    found = verified(registry)
    assert (found.outcome, found.signer) == (plain.outcome, plain.signer)
    assert {one.predicate_type for one in found.statements} == {
        kind, *(one.predicate_type for one in plain.statements)
    }  # fmt: skip


def test_referrers_that_are_listed_without_a_type_are_read() -> None:
    """A client keeps the list where the registry has no referrers API, and may leave the type out."""

    class Untyped(MemoryRegistry):
        def list_referrers(self, digest: str) -> Sequence[Descriptor]:
            return [replace(one, artifact_type=None) for one in super().list_referrers(digest)]

    true = published_registry(GREEN)
    content = b"a bill of materials"
    document = {
        "artifactType": "application/spdx+json",
        "layers": [{"digest": true.put_blob(content).digest}],
        "subject": {"digest": IMAGE.digest},
    }
    other = Manifest(media_type=OCI_MANIFEST, content=canonical_json(document))
    true.put(other.digest, other)
    assert verified(Untyped.with_content_of(true))


def test_a_subject_may_have_a_second_digest() -> None:
    registry = published_registry()
    for one in make_statements(GREEN):
        document = json.loads(one.content)
        document["subject"][0]["digest"]["sha512"] = "0" * 128
        attach(registry, IMAGE.digest, [replace(one, content=canonical_json(document))], key=OURS)
    attach(registry, IMAGE.digest, [make_promotion("2.15")], key=OURS)
    assert verified(registry)


def device_of(identifier: str) -> Device:
    if "-cuda" in identifier:
        return "gpu"
    return "tpu" if "-tpu" in identifier else "cpu"


def verify_tag(tag: str, identifier: str) -> None:
    report = replace(
        ON_GPU if device_of(identifier) == "gpu" else GREEN, identifier=identifier, device=device_of(identifier)
    )
    registry = published_registry(report)
    registry.put(tag, IMAGE)
    attach(registry, IMAGE.digest, [make_promotion(tag)], key=OURS)
    verify(registry, tag, [OURS.verifying_key], ANYTHING, now=NOW)
    verify(registry, IMAGE.digest, [OURS.verifying_key], ANYTHING, now=NOW, tag=tag)


@cases("attestations_verify", "a_tag_that_states_another_image_than_was_signed_is_refused")
def test_a_tag_that_states_another_image_than_was_signed_is_refused(tag: str, identifier: str, states: str) -> None:
    with pytest.raises(PolicyViolation) as caught:
        verify_tag(tag, identifier)
    assert identifier in caught.value.what
    assert caught.value.what.endswith(f"but its tag {tag} states {states}.")
    assert_message(caught.value)


@cases("attestations_verify", "a_tag_that_agrees_or_leaves_it_open_is_accepted")
def test_a_tag_that_agrees_or_leaves_it_open_is_accepted(tag: str, identifier: str) -> None:
    verify_tag(tag, identifier)


def test_a_build_s_tag_begins_like_its_digest() -> None:
    identifier = "2.15.1-cpu-py3.11"
    verify_tag(make_build_tag(identifier, IMAGE.digest), identifier)
    with pytest.raises(PolicyViolation, match="states build 000000000000"):
        verify_tag(f"{identifier}-000000000000", identifier)


def test_no_tag_of_an_image_contradicts_it(specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        for tag in (spec.identifier, make_build_tag(spec.identifier, IMAGE.digest), *list_aliases(spec)):
            assert find_contradiction(tag, identifier=spec.identifier, digest=IMAGE.digest) is None


def test_every_exact_tag_contradicts_every_other_image(specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        for other in specs:
            found = find_contradiction(spec.identifier, identifier=other.identifier, digest=IMAGE.digest)
            assert (found is None) == (spec is other)


@pytest.mark.parametrize(("count", "named"), [(1, "a.0"), (3, "a.0, a.1, a.2"), (4, "a.0, a.1, a.2")])
def test_at_most_three_failures_are_named(count: int, named: str) -> None:
    failed = tuple(result(f"a.{number}", "failed", "no") for number in range(count))
    registry = published_registry(replace(GREEN, results=failed))
    expect_refusal(registry, PolicyViolation, f"tests on 2026-01-02: {named}\\. Do not use it", policy=ANYTHING)


@pytest.mark.parametrize(("count", "more"), [(1, ""), (2, ", and 1 more")])
def test_the_first_skipped_check_is_named_and_the_others_are_counted(count: int, more: str) -> None:
    skipped = tuple(result(f"gpu.{number}", "skipped", "no GPU") for number in range(count))
    required = (*ON_GPU.required, *(one.check for one in skipped))
    report = replace(ON_GPU, results=(*ON_GPU.results, *skipped), required=required)
    says = rf"did not pass gpu\.0, which is required: the check was skipped on 2026-01-02 \(no GPU\){more}\. "
    expect_refusal(published_registry(report), PolicyViolation, says, policy=ANYTHING)
    says = r"the check was skipped .*\(it was left out\), and \d+ more"
    expect_refusal(published_registry(PARTIAL), PolicyViolation, says, policy=ANYTHING)

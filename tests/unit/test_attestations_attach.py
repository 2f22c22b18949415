"""Attestations are put where others look for it, once, beside what others have put there."""

import base64
import json
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from support.memory_registry import MemoryRegistry
from support.messages import exactly, expect_refusal
from support.published_images import Call, Killed, Line
from support.reports import GREEN
from support.signing import OURS, THEIRS
from support.statements import IMAGE, SUBJECT, make_statements, published_registry
from tfimg.attestations import attach as attach_module
from tfimg.attestations.attach import attach, collect_envelopes
from tfimg.attestations.envelopes import canonical_json, make_statement
from tfimg.core.errors import NotInRegistry, TamperedError
from tfimg.registry.documents import OCI_MANIFEST, Descriptor

ONE = make_statement(SUBJECT, "https://slsa.dev/provenance/v1", {"of": "ß"})
OTHER = make_statement(SUBJECT, "https://cyclonedx.org/bom", {"components": []})


@pytest.fixture
def registry() -> MemoryRegistry:
    """It has the image under a tag."""
    made = published_registry()
    made.sent.clear()
    return made


def bundle(registry: MemoryRegistry, manifest: dict[str, Any]) -> dict[str, Any]:
    (layer,) = manifest["layers"]
    content: dict[str, Any] = json.loads(registry.blobs[layer["digest"]])
    return content


def test_each_statement_is_a_bundle_that_refers_to_the_image(registry: MemoryRegistry) -> None:
    """As cosign's BUNDLE_SPEC.md says."""
    attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    for said, referrer in zip((ONE, OTHER), registry.list_referrers(IMAGE.digest), strict=True):
        manifest = registry.manifests[referrer.digest].document
        assert manifest["artifactType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
        assert manifest["subject"] == {
            "mediaType": OCI_MANIFEST, "digest": IMAGE.digest, "size": len(IMAGE.content)
        }  # fmt: skip
        assert manifest["mediaType"] == OCI_MANIFEST
        assert manifest["annotations"] == {
            "dev.sigstore.bundle.content": "dsse-envelope",
            "dev.sigstore.bundle.predicateType": said.predicate_type,
        }
        assert manifest["schemaVersion"] == 2
        (layer,) = manifest["layers"]
        assert layer["mediaType"] == manifest["artifactType"]
        name = f"{layer['digest'].replace(':', '-')}.sigstore.json"
        assert layer["annotations"] == {"org.opencontainers.image.title": name}
        for blob in (manifest["config"], layer):
            assert len(registry.blobs[blob["digest"]]) == blob["size"]
        assert registry.blobs[manifest["config"]["digest"]] == b"{}"
        assert manifest["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
        content = bundle(registry, manifest)
        assert content["mediaType"] == manifest["artifactType"]
        assert base64.b64decode(content["dsseEnvelope"]["payload"]) == said.content
        assert content["verificationMaterial"] == {"publicKey": {"hint": OURS.verifying_key.hint}}
    assert set(registry.named) == {"2.15", "2.15-gpu"}, "no tag of another form is written"


def test_in_toto_s_own_library_verifies_what_is_in_a_bundle(registry: MemoryRegistry) -> None:
    attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    key = SSlibKey.from_crypto(OURS.verifying_key.public, keyid=OURS.verifying_key.identifier)
    for said, referrer in zip((ONE, OTHER), registry.list_referrers(IMAGE.digest), strict=True):
        envelope = Envelope.from_dict(bundle(registry, registry.manifests[referrer.digest].document)["dsseEnvelope"])
        assert envelope.verify([key], 1)
        assert (envelope.payload, envelope.payload_type) == (said.content, "application/vnd.in-toto+json")


def test_what_is_there_is_not_sent_again(registry: MemoryRegistry) -> None:
    attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    line = Line(registry)
    attach(line, IMAGE.digest, [ONE, OTHER], key=OURS)
    assert line.calls == [("find", IMAGE.digest), ("referrers", IMAGE.digest)]


def test_a_later_statement_and_another_signer_leave_what_is_there(registry: MemoryRegistry) -> None:
    attach(registry, IMAGE.digest, [ONE], key=OURS)
    before = registry.list_referrers(IMAGE.digest)
    attach(registry, IMAGE.digest, [OTHER], key=THEIRS)
    attach(registry, IMAGE.digest, [OTHER, ONE], key=OURS)
    after = registry.list_referrers(IMAGE.digest)
    assert (len(after), after[:1]) == (3, before)


@pytest.mark.parametrize("left", range(5))
def test_killed_at_any_step_it_is_called_again_and_all_is_there(registry: MemoryRegistry, left: int) -> None:
    def kill(call: Call) -> None:
        if sum(name in ("put_blob", "refer") for name, _ in [*line.calls, call]) > left:
            raise Killed

    line = Line(registry, before=kill)
    if left < 4:
        with pytest.raises(Killed):
            attach(line, IMAGE.digest, [ONE, OTHER], key=OURS)
        assert registry.list_referrers(IMAGE.digest) == [], "all are listed at once"
    attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    assert len(registry.list_referrers(IMAGE.digest)) == 2
    assert len(registry.sent) == len(set(registry.sent))


def test_attestations_are_not_attached_to_a_missing_image(registry: MemoryRegistry) -> None:
    says = f"The registry has no {registry.repository}@sha256:{'0' * 64}. Push the image first."
    with pytest.raises(NotInRegistry, match=exactly(says)):
        attach(registry, f"sha256:{'0' * 64}", [ONE], key=OURS)
    assert registry.sent == []


def with_one_statement() -> tuple[MemoryRegistry, Descriptor, Descriptor]:
    """Return a registry with an image, the only bundle about it and the bundle's layer."""
    registry = published_registry()
    attach(registry, IMAGE.digest, make_statements(GREEN)[:1], key=OURS)
    (bundle,) = registry.list_referrers(IMAGE.digest)
    return registry, bundle, registry.manifests[bundle.digest].image.layers[0]


def test_attestations_are_read_until_the_limit_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, bundle, layer = with_one_statement()
    attach(registry, IMAGE.digest, make_statements(GREEN)[1:], key=OURS)
    for name, limit, documents, mib in (
        ("MAX_TOTAL_BYTES", bundle.size + layer.size, 2000, 0),
        ("MAX_DOCUMENTS", 2, 2, 128),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(attach_module, name, limit + 1)
            assert len(collect_envelopes(registry, IMAGE.digest)) == 2
            patch.setattr(attach_module, name, limit)
            with expect_refusal(TamperedError, rf"too many attestations: more than {documents} documents or {mib} MiB"):
                collect_envelopes(registry, IMAGE.digest)


def test_a_bundle_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, _, layer = with_one_statement()
    monkeypatch.setattr(attach_module, "MAX_BYTES", layer.size)
    assert len(collect_envelopes(registry, IMAGE.digest)) == 1
    monkeypatch.setattr(attach_module, "MAX_BYTES", layer.size - 1)
    with expect_refusal(TamperedError, f"it has {layer.size} bytes, and at most {layer.size - 1} are read"):
        collect_envelopes(registry, IMAGE.digest)


def test_signed_json_has_one_form() -> None:
    assert canonical_json({"b": [1, 2], "a": "ß"}) == '{"a":"ß","b":[1,2]}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})

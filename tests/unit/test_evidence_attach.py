"""Evidence is put where others look for it, once, beside what others have put there."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from support.memory_registry import MemoryRegistry
from support.messages import exactly, expect_refusal
from support.published_images import Call, Killed, Line
from support.signing import OURS, THEIRS
from support.statements import IMAGE, SUBJECT
from tfimg.core.errors import NotInRegistry, TagConflict, TamperedError
from tfimg.evidence.attach import attach, repair
from tfimg.evidence.statement import make_statement
from tfimg.registry.protocol import OCI_MANIFEST, Descriptor, Manifest

TAG = IMAGE.digest.replace(":", "-")
ONE = make_statement(SUBJECT, "https://slsa.dev/provenance/v1", {"of": "ß"})
OTHER = make_statement(SUBJECT, "https://cyclonedx.org/bom", {"components": []})


@pytest.fixture
def registry() -> MemoryRegistry:
    """It has the image under a tag."""
    made = MemoryRegistry()
    made.put("2.15", IMAGE)
    made.sent.clear()
    return made


def layers(registry: MemoryRegistry, tag: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = registry.manifests[registry.named[tag]].document["layers"]
    return found


def sealed(registry: MemoryRegistry, digest: str) -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(registry.blobs[digest])
    return envelope


def test_each_statement_is_a_bundle_that_refers_to_the_image(registry: MemoryRegistry) -> None:
    attached = attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    listed = registry.list_referrers(IMAGE.digest)
    assert [one.digest for one in attached] == [one.digest for one in listed]
    for said, referrer in zip((ONE, OTHER), attached, strict=True):
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
        assert manifest["config"]["digest"] in registry.blobs
        assert manifest["schemaVersion"] == 2
        (layer,) = manifest["layers"]
        assert layer["mediaType"] == manifest["artifactType"]
        name = f"{layer['digest'].replace(':', '-')}.sigstore.json"
        assert layer["annotations"] == {"org.opencontainers.image.title": name}
        bundle = sealed(registry, layer["digest"])
        assert base64.b64decode(bundle["dsseEnvelope"]["payload"]) == said.content
        assert bundle["verificationMaterial"] == {"publicKey": {"hint": OURS.verifying_key.hint}}


def test_in_toto_s_own_library_verifies_what_is_under_cosign_s_tag(registry: MemoryRegistry) -> None:
    attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    key = SSlibKey.from_crypto(OURS.verifying_key.public, keyid=OURS.verifying_key.identifier)
    for said, layer in zip((ONE, OTHER), layers(registry, f"{TAG}.att"), strict=True):
        assert layer["annotations"] == {
            "dev.cosignproject.cosign/signature": "", "predicateType": said.predicate_type
        }  # fmt: skip
        envelope = Envelope.from_dict(sealed(registry, layer["digest"]))
        assert envelope.verify([key], 1)
        assert (envelope.payload, envelope.payload_type) == (said.content, "application/vnd.in-toto+json")


def test_the_image_itself_is_signed_as_cosign_signs(registry: MemoryRegistry) -> None:
    attach(registry, IMAGE.digest, [], key=OURS)
    (layer,) = layers(registry, f"{TAG}.sig")
    payload = registry.blobs[layer["digest"]]
    signature = base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"])
    assert OURS.verifying_key.has_signed(signature, payload)
    assert json.loads(payload)["critical"] == {
        "identity": {"docker-reference": "registry.test:5000/team/tensorflow"},
        "image": {"docker-manifest-digest": IMAGE.digest},
        "type": "cosign container image signature",
    }


def test_what_is_there_is_not_sent_again(registry: MemoryRegistry) -> None:
    first = attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    assert registry.sent
    registry.sent.clear()
    again = attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    assert [one.digest for one in again] == [one.digest for one in first]
    assert registry.sent == []


def test_a_bundle_that_is_listed_is_not_referred_to_again(registry: MemoryRegistry) -> None:
    attach(registry, IMAGE.digest, [ONE], key=OURS)

    class Listed(MemoryRegistry):
        def put_referrer(self, manifest: Manifest, *, subject: str, artifact_type: str) -> Descriptor:
            raise AssertionError((manifest, subject, artifact_type))

    again = Listed.with_content_of(registry)
    assert attach(again, IMAGE.digest, [ONE], key=OURS) == tuple(again.list_referrers(IMAGE.digest))


def test_a_later_statement_and_another_signer_leave_what_is_there(registry: MemoryRegistry) -> None:
    attach(registry, IMAGE.digest, [ONE], key=OURS)
    attach(registry, IMAGE.digest, [OTHER], key=THEIRS)
    attach(registry, IMAGE.digest, [ONE], key=OURS)
    assert [one["annotations"]["predicateType"] for one in layers(registry, f"{TAG}.att")] == [
        ONE.predicate_type, OTHER.predicate_type
    ]  # fmt: skip
    assert len(layers(registry, f"{TAG}.sig")) == 2
    assert len(registry.list_referrers(IMAGE.digest)) == 2


def test_every_blob_that_a_manifest_names_is_there(registry: MemoryRegistry) -> None:
    attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    written = [one.document for one in registry.manifests.values() if one.digest != IMAGE.digest]
    assert len(written) == 4
    for document in written:
        for one in (document["config"], *document["layers"]):
            assert len(registry.blobs[one["digest"]]) == one["size"]


@pytest.mark.parametrize("left", range(12))
def test_killed_at_any_step_it_is_called_again_and_all_is_there(registry: MemoryRegistry, left: int) -> None:
    def kill(call: Call) -> None:
        if sum(name in ("put", "put_blob", "refer") for name, _ in [*line.calls, call]) > left:
            raise Killed

    line = Line(registry, before=kill)
    with pytest.raises(Killed):
        attach(line, IMAGE.digest, [ONE, OTHER], key=OURS)
    attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    assert len(registry.list_referrers(IMAGE.digest)) == 2
    assert len(layers(registry, f"{TAG}.att")) == 2
    assert len(layers(registry, f"{TAG}.sig")) == 1
    once = [digest for digest in registry.sent if digest in registry.blobs]
    assert len(once) == len(set(once))


@pytest.mark.parametrize("lost", [("att",), ("sig",), ("sig", "bundles")])
def test_what_a_kill_left_out_is_put_there_from_what_is(registry: MemoryRegistry, lost: tuple[str, ...]) -> None:
    attach(registry, IMAGE.digest, [ONE, OTHER], key=OURS)
    attach(registry, IMAGE.digest, [ONE], key=THEIRS)
    repair(registry, IMAGE.digest, key=OURS)
    whole = dict(registry.manifests)
    for name in lost:
        registry.named.pop(f"{TAG}.{name}", None)
    if "bundles" in lost:
        for one in registry.list_referrers(IMAGE.digest):
            del registry.manifests[one.digest]
    repair(registry, IMAGE.digest, key=OURS)
    ours = 2 if "bundles" in lost else 3
    assert len(registry.list_referrers(IMAGE.digest)) == ours, "theirs is theirs to mend"
    assert {f"{TAG}.att", f"{TAG}.sig"} <= registry.named.keys()
    registry.sent.clear()
    repair(registry, IMAGE.digest, key=OURS)
    assert registry.sent == []
    assert whole.keys() >= {one.digest for one in registry.list_referrers(IMAGE.digest)}


def test_evidence_is_not_attached_to_a_missing_image(registry: MemoryRegistry) -> None:
    says = f"The registry has no {registry.repository}@sha256:{'0' * 64}. Push the image first."
    with pytest.raises(NotInRegistry, match=exactly(says)):
        attach(registry, f"sha256:{'0' * 64}", [ONE], key=OURS)
    assert registry.sent == []


def test_evidence_that_another_publisher_overwrote_is_attached_again(registry: MemoryRegistry) -> None:
    """Who read cosign's tag before we wrote it writes it while we are busy with the bundles."""
    theirs = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": {}, "layers": []})

    def overwrite(call: Call) -> None:
        if call[0] == "refer":
            line.before = lambda _: None
            registry.put(f"{TAG}.att", Manifest(media_type=OCI_MANIFEST, content=theirs.encode()))

    line = Line(registry, before=overwrite)
    attach(line, IMAGE.digest, [ONE], key=OURS)
    assert len(layers(registry, f"{TAG}.att")) == 1


def overwriting_line(registry: MemoryRegistry, times: int) -> Line:
    """A line to a registry in which somebody else undoes what we write under cosign's tag, so many times."""
    left = iter(range(times))

    def undo(call: Call) -> None:
        if call == ("put", f"{TAG}.att") and next(left, None) is not None:
            del registry.named[f"{TAG}.att"]

    return Line(registry, after=undo)


def test_a_tag_that_another_publisher_overwrites_is_written_again(registry: MemoryRegistry) -> None:
    attach(overwriting_line(registry, times=3), IMAGE.digest, [ONE], key=OURS)
    assert len(layers(registry, f"{TAG}.att")) == 1


def test_a_tag_that_another_publisher_keeps_overwriting_is_an_error(registry: MemoryRegistry) -> None:
    with expect_refusal(TagConflict, "keeps overwriting"):
        attach(overwriting_line(registry, times=100), IMAGE.digest, [ONE], key=OURS)


@pytest.mark.parametrize("content", [b"{}", b'{"layers":7}', b'{"layers":[{}]}', b'{"layers":[3]}'])
def test_what_is_not_cosign_s_is_not_written_over(registry: MemoryRegistry, content: bytes) -> None:
    registry.put(f"{TAG}.att", Manifest(media_type=OCI_MANIFEST, content=content))
    before = dict(registry.named)
    with expect_refusal(TamperedError, "is not a manifest of cosign's evidence"):
        attach(registry, IMAGE.digest, [ONE], key=OURS)
    assert registry.named == before

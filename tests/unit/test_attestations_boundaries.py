"""Attestations at its edges: refusals by whole sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.inventories import make_inventory
from support.memory_registry import MemoryRegistry
from support.messages import expect_refusal
from support.reports import GREEN, result
from support.signing import OURS
from support.statements import IMAGE, NOW, ON_GPU, make_statements, published_registry
from tfimg.attestations import attach as attach_module
from tfimg.attestations.attach import attach, collect_envelopes
from tfimg.attestations.envelopes import Subject, canonical_json
from tfimg.attestations.policy import Policy
from tfimg.attestations.predicates import image_purl, list_components
from tfimg.attestations.verify import verify
from tfimg.core.errors import PolicyViolation, TamperedError
from tfimg.core.levels import Level
from tfimg.registry.documents import Descriptor, Manifest


@pytest.mark.parametrize(("count", "named"), [(1, "a.0"), (3, "a.0, a.1, a.2"), (4, "a.0, a.1, a.2")])
def test_at_most_three_failures_are_named(count: int, named: str) -> None:
    failed = tuple(result(f"a.{number}", "failed", "no") for number in range(count))
    registry = published_registry(replace(GREEN, results=failed))
    with expect_refusal(PolicyViolation, f"failed its tests on 2026-01-02: {named}\\. Do not use it"):
        verify(registry, "2.15", [OURS.verifying_key], Policy(level=Level.BUILT), now=NOW)


@pytest.mark.parametrize(("count", "more"), [(1, ""), (2, ", and 1 more")])
def test_the_first_skipped_check_is_named_and_the_others_are_counted(count: int, more: str) -> None:
    skipped = tuple(result(f"gpu.{number}", "skipped", "no GPU") for number in range(count))
    report = replace(
        ON_GPU, results=(*ON_GPU.results, *skipped),
        required=(*ON_GPU.required, *(one.check for one in skipped)),
    )  # fmt: skip
    with pytest.raises(PolicyViolation) as caught:
        verify(published_registry(report), "2.15", [OURS.verifying_key], Policy(level=Level.BUILT), now=NOW)
    assert caught.value.what.endswith(f"gpu.0, which is required: the check was skipped on 2026-01-02 (no GPU){more}.")


def test_a_bundle_s_manifest_has_the_empty_configuration() -> None:
    registry = MemoryRegistry()
    registry.put("2.15", IMAGE)
    attach(registry, IMAGE.digest, make_statements(GREEN), key=OURS)
    for referrer in registry.list_referrers(IMAGE.digest):
        config = registry.manifests[referrer.digest].document["config"]
        assert registry.blobs[config.pop("digest")] == b"{}"
        assert config == {"mediaType": "application/vnd.oci.empty.v1+json", "size": 2}


def test_a_library_of_a_package_and_one_without_a_package_may_have_the_same_name() -> None:
    libraries = {"/a/libcudnn.so.8": "nvidia-cudnn-cu12", "/b/libcudnn.so.8": None}
    found = [part for part, _ in list_components(make_inventory(libraries=libraries)) if part.type == "file"]
    assert [(part.name, part.version, [one.value for one in part.properties]) for part in found] == [
        ("libcudnn.so.8", None, ["/b/libcudnn.so.8"]),
        ("libcudnn.so.8", "8.9.4.25", ["/a/libcudnn.so.8"]),
    ]


def with_one_statement() -> tuple[MemoryRegistry, Descriptor, Descriptor]:
    """Return a registry with an image, the only bundle about it and the bundle's layer."""
    registry = MemoryRegistry()
    registry.put("2.15", IMAGE)
    attach(registry, IMAGE.digest, make_statements(GREEN)[:1], key=OURS)
    (bundle,) = registry.list_referrers(IMAGE.digest)
    return registry, bundle, registry.manifests[bundle.digest].image.layers[0]


def test_attestations_are_read_until_the_limit_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, bundle, layer = with_one_statement()
    attach(registry, IMAGE.digest, make_statements(GREEN)[1:], key=OURS)
    for name, limit in (("MAX_TOTAL_BYTES", bundle.size + layer.size), ("MAX_DOCUMENTS", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(attach_module, name, limit + 1)
            assert len(collect_envelopes(registry, IMAGE.digest)) == 2
            patch.setattr(attach_module, name, limit)
            with expect_refusal(TamperedError, "has too many attestations"):
                collect_envelopes(registry, IMAGE.digest)


def test_a_bundle_with_another_digest_than_listed_is_refused() -> None:
    registry, bundle, _ = with_one_statement()

    class Other(MemoryRegistry):
        def find(self, reference: str) -> Manifest | None:
            found = super().find(reference)
            return replace(found, content=found.content + b" ") if found and reference == bundle.digest else found

    with expect_refusal(TamperedError, "the registry lists it, but has other bytes or none under its digest"):
        collect_envelopes(Other.with_content_of(registry), IMAGE.digest)


def test_a_bundle_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, _, layer = with_one_statement()
    monkeypatch.setattr(attach_module, "MAX_BYTES", layer.size)
    assert len(collect_envelopes(registry, IMAGE.digest)) == 1
    monkeypatch.setattr(attach_module, "MAX_BYTES", layer.size - 1)
    with expect_refusal(TamperedError, f"it has {layer.size} bytes, and at most {layer.size - 1} are read"):
        collect_envelopes(registry, IMAGE.digest)


def test_a_library_s_vendor_follows_from_its_name() -> None:
    libraries = {"/a/libtpu.so": None, "/b/libcudnn.so.8": None}
    found = [part.purl for part, _ in list_components(make_inventory(libraries=libraries)) if part.type == "file"]
    assert list(map(str, found)) == ["pkg:generic/nvidia/libcudnn.so.8", "pkg:generic/google/libtpu.so"]


@pytest.mark.parametrize(
    ("name", "qualifiers"), [("tensorflow", ""), ("team/tensorflow", "?repository_url=team/tensorflow")]
)
def test_an_image_without_a_place_has_a_purl_without_one(name: str, qualifiers: str) -> None:
    assert image_purl(Subject(name=name, digest="sha256:ab")) == f"pkg:oci/tensorflow@sha256:ab{qualifiers}"


def test_signed_json_has_one_form() -> None:
    assert canonical_json({"b": [1, 2], "a": "ß"}) == '{"a":"ß","b":[1,2]}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})

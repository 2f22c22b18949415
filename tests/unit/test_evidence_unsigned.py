"""Evidence without a signature: what is put beside an image, what is read back, and what is refused."""

from __future__ import annotations

import json

import pytest

from support.memory_registry import MemoryRegistry
from support.reports import GREEN
from support.statements import FAILED, IMAGE, LINKED, ON_GPU, said
from tfimg.errors import NotInRegistry, PolicyUnmet, UnsignedError
from tfimg.evidence.statement import IN_TOTO
from tfimg.evidence.unsigned import attach_unsigned, level_unsigned
from tfimg.registry.protocol import EMPTY, OCI_MANIFEST
from tfimg.validation.report import Report


def with_image() -> MemoryRegistry:
    registry = MemoryRegistry()
    registry.put("2.15", IMAGE)
    return registry


def attached(*reports: Report) -> MemoryRegistry:
    registry = with_image()
    for report in reports:
        attach_unsigned(registry, IMAGE.digest, said(report))
    return registry


def test_statements_are_layers_of_an_oci_manifest_that_refers_to_the_image() -> None:
    registry, statements = with_image(), said(GREEN)
    referrer = attach_unsigned(registry, IMAGE.digest, statements)
    assert registry.manifests[referrer.digest].media_type == OCI_MANIFEST
    document = registry.manifests[referrer.digest].document
    layers = document.pop("layers")
    assert [(one["mediaType"], one["size"]) for one in layers] == [
        ("application/vnd.in-toto+json", len(statement.content)) for statement in statements
    ]
    assert [registry.blobs[one["digest"]] for one in layers] == [one.content for one in statements]
    assert registry.blobs[document["config"].pop("digest")] == b"{}"
    assert document == {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": IN_TOTO,
        "config": {"mediaType": EMPTY, "size": 2},
        "subject": {"mediaType": OCI_MANIFEST, "digest": IMAGE.digest, "size": len(IMAGE.content)},
    }


def test_statements_about_an_image_that_the_registry_lacks_are_refused() -> None:
    registry = MemoryRegistry()
    with pytest.raises(NotInRegistry) as caught:
        attach_unsigned(registry, IMAGE.digest, said(GREEN))
    assert caught.value.what == f"The registry has no {registry.repository}@{IMAGE.digest}."
    assert caught.value.next_step == "Push the image first."
    assert registry.sent == []


def test_the_best_level_that_did_not_fail_counts() -> None:
    assert level_unsigned(attached(LINKED, ON_GPU), IMAGE.digest, "built") == "validated"
    assert level_unsigned(attached(LINKED, FAILED), IMAGE.digest, "built") == "linked"


def test_a_level_that_is_exactly_the_required_one_is_enough() -> None:
    assert level_unsigned(attached(LINKED), IMAGE.digest, "linked") == "linked"
    with pytest.raises(PolicyUnmet, match=f"{IMAGE.digest} is linked, and not validated"):
        level_unsigned(attached(LINKED), IMAGE.digest, "validated")


def test_an_image_whose_only_result_failed_has_no_evidence() -> None:
    for registry in (with_image(), attached(FAILED)):
        with pytest.raises(UnsignedError, match=f"{IMAGE.digest} has no evidence"):
            level_unsigned(registry, IMAGE.digest, "built")


def test_a_referrer_of_another_kind_is_passed_over() -> None:
    registry = attached(LINKED)
    other = json.dumps(
        {
            "schemaVersion": 2,
            "artifactType": "text/plain",
            "subject": {"digest": IMAGE.digest},
            "layers": [{}],
        }
    )
    registry.put("sbom", type(IMAGE)(media_type=OCI_MANIFEST, content=other.encode()))
    assert level_unsigned(registry, IMAGE.digest, "built") == "linked"

"""The list of published images names what trusted keys attested and nothing else, whatever the registry answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_registry import MemoryRegistry
from support.published_builds import publish_build, withdraw_build
from support.reports import GREEN
from support.signing import OURS, THEIRS
from support.statements import FAILED, LINKED, NOW, ON_GPU
from tfimg.core.errors import FileError, NetworkError
from tfimg.evidence.keys import SigningKey
from tfimg.publish.history import build_tags
from tfimg.publish.published import PublishedRepository, collect_published, format_published, parse_published
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Descriptor
from tfimg.validation.report import Report

CPU = GREEN.identifier


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def collect(registry: MemoryRegistry, *, limit: int = 100) -> PublishedRepository:
    found = collect_published(registry, build_tags(registry.list_tags()), [OURS.verifying_key], limit=limit, now=NOW)
    assert parse_published(format_published(found).encode(), source="x") == found
    return found


def test_an_image_that_an_emulator_ran_says_so(registry: MemoryRegistry) -> None:
    emulated = replace(GREEN, environment={**GREEN.environment, "emulated": True})
    publish_build(registry, emulated)
    (image,) = collect(registry).images
    assert (image.level, image.emulated) == ("linked", True)


def test_an_image_has_level_date_size_and_the_promoted_tags_that_point_to_it(registry: MemoryRegistry) -> None:
    old = publish_build(registry, GREEN, "2.15", content="old")
    new = publish_build(registry, replace(GREEN, date="2026-01-05T00:00:00+00:00"), "2.15", content="new")
    gpu = publish_build(registry, ON_GPU, "2.15-gpu")
    registry.put("unsigned-alias", registry.manifests[gpu])
    found = {image.digest: image for image in collect(registry).images}
    assert {digest: (image.level, image.tags) for digest, image in found.items()} == {
        old: ("validated", ()), new: ("validated", (CPU, "2.15")), gpu: ("validated", (ON_GPU.identifier, "2.15-gpu")),
    }  # fmt: skip
    one = found[gpu]
    assert (one.tensorflow, one.python, one.device, one.gpu, one.driver) == (
        "2.15.1", "3.11", "gpu", "NVIDIA H100", "535.104.05",
    )  # fmt: skip
    assert (one.build, one.signer) == (make_build_tag(ON_GPU.identifier, gpu), OURS.verifying_key.identifier)
    assert one.size == sum(layer.size for layer in registry.manifests[gpu].image.layers) > 0
    assert str(found[new].tested) == "2026-01-05 00:00:00+00:00"


@pytest.mark.parametrize(
    ("identifier", "release"),
    [
        ("2.15.1-cpu-py3.11-jupyter", "2.15.1"), ("2.15.1-cpu-py3.11-own", "2.15.1"),
        ("2.15.1-cpu-py3.11-arm64-dev-own", "2.15.1"), ("custom-2.15.1-cpu-py3.11", "2.15.1"),
        ("custom-2.19.0_nv25.3-cpu-py3.11-jupyter", "2.19.0+nv25.3"),
    ],
)  # fmt: skip
def test_images_beside_the_matrix_are_listed(identifier: str, release: str, registry: MemoryRegistry) -> None:
    publish_build(registry, replace(GREEN, identifier=identifier))
    (image,) = collect(registry).images
    assert (image.identifier, image.tensorflow, image.python) == (identifier, release, "3.11")


def test_a_level_is_what_the_evidence_proves_however_old(registry: MemoryRegistry) -> None:
    publish_build(registry, replace(LINKED, date="2016-01-01T00:00:00+00:00"))
    (image,) = collect(registry).images
    assert (image.level, image.gpu, image.tested.year) == ("linked", None, 2016)


@pytest.mark.parametrize(
    ("report", "key", "reason"),
    [
        (GREEN, THEIRS, "another key"),
        (FAILED, OURS, "failed its tests"),
        (replace(GREEN, date=(NOW + timedelta(days=2)).isoformat()), OURS, "in the future"),
        (replace(GREEN, identifier="2.15.1-phone-py3.11"), OURS, "The evidence is malformed: identifier"),
    ],
    ids=["another key", "failed", "future", "identifier"],
)
def test_a_build_without_evidence_that_counts_is_unproven_and_says_why(
    report: Report, key: SigningKey, reason: str, registry: MemoryRegistry
) -> None:
    digest = publish_build(registry, report, key=key)
    found = collect(registry)
    assert found.images == ()
    (one,) = found.unproven
    assert (one.digest, one.build) == (digest, make_build_tag(report.identifier, digest))
    assert reason in one.reason


def test_a_tag_of_another_build_or_image_is_unproven(registry: MemoryRegistry) -> None:
    cpu, gpu = publish_build(registry, GREEN), publish_build(registry, ON_GPU)
    registry.put(make_build_tag(CPU, cpu), registry.manifests[gpu])
    registry.put(make_build_tag("other", gpu), registry.manifests[gpu])
    found = collect(registry)
    assert [image.digest for image in found.images] == [gpu]
    moved, renamed = sorted(found.unproven, key=lambda one: one.build)
    assert "which is another build" in moved.reason
    assert f"no signed promotion that gives it the tag {make_build_tag('other', gpu)}" in renamed.reason


def test_a_withdrawn_image_has_the_reason_and_no_tag(registry: MemoryRegistry) -> None:
    withdraw_build(registry, publish_build(registry, GREEN, "2.15"), "wrong\x1b[31m cuDNN", time=NOW)
    (image,) = collect(registry).images
    assert (image.withdrawn, image.tags) == ("wrong cuDNN", ())


def test_only_the_newest_builds_are_read_and_the_others_are_counted(registry: MemoryRegistry) -> None:
    publish_build(registry, GREEN)
    publish_build(registry, replace(GREEN, identifier="2.20.0-cpu-py3.11"))
    found = collect(registry, limit=1)
    assert ([image.tensorflow for image in found.images], found.builds) == (["2.20.0"], 2)


def test_a_registry_that_fails_is_an_error_and_not_an_unproven_build() -> None:
    class Silent(MemoryRegistry):
        def list_referrers(self, digest: str) -> Sequence[Descriptor]:
            raise NetworkError(f"The registry does not answer for {digest}.", next_step="Try again.")

    registry = MemoryRegistry()
    publish_build(registry, GREEN)
    with pytest.raises(NetworkError):
        collect(Silent.with_content_of(registry))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("images", 0, "identifier"), "<script>"), (("images", 0, "digest"), "sha256:0"), (("images", 0, "size"), -1),
        (("images", 0, "size"), 1e300), (("images", 0, "tested"), "yesterday"), (("images", 0, "level"), "best"),
        (("images", 0, "tags"), ["$(id)"]), (("images", 0, "gpu"), "x" * 1001), (("repository",), "a b"),
        (("images",), [{}] * 1001), (("format",), 2), (("unproven",), None),
    ],
)  # fmt: skip
def test_a_document_with_other_values_is_refused(
    path: tuple[Any, ...], value: object, registry: MemoryRegistry
) -> None:
    publish_build(registry, GREEN)
    document = json.loads(format_published(collect(registry)))
    part = document
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(FileError, match=r"^published\.json is not a list of published images: .*`tfimg history"):
        parse_published(json.dumps(document).encode(), source="published.json")


def test_history_writes_it_for_a_repository(registry: MemoryRegistry, tmp_path: Path) -> None:
    digest = publish_build(registry, GREEN, "2.15")
    (tmp_path / "ours.pub").write_bytes(OURS.verifying_key.pem)
    tfimg = CliRunner(home=tmp_path, edge=TestEnvironment(registries=registry, time=NOW))
    words, file = ("--public-key", str(tmp_path / "ours.pub"), "--published"), tmp_path / "published.json"
    ended = tfimg("history", registry.repository, *words, str(file)).succeeded()
    assert f"wrote {file}: 1 image with evidence" in ended.stderr
    published = parse_published(file.read_bytes(), source=str(file))
    assert [image.digest for image in published.images] == [digest]
    assert published.time == NOW
    assert "the tag 2.15 is named" in tfimg("history", registry.repository, "2.15", *words, str(file)).refusal(2)
    assert "no folder" in tfimg("history", registry.repository, *words, str(tmp_path / "none" / "x")).refusal(2)

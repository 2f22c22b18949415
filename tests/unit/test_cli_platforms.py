"""`tfimg verify`, `pull` and `inspect` of an index: each platform's image has evidence of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.reports import GREEN
from support.signing import OURS
from support.statements import NOW, make_promotion, make_statements
from tfimg.core.errors import NotInRegistry
from tfimg.evidence.attach import attach
from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.recipe.tags import find_platform_tag, make_index_tag
from tfimg.registry.platforms import find_platform_image, make_index
from tfimg.registry.protocol import Manifest

NAME = "registry.test:5000/team/tensorflow"
IDENTIFIERS: dict[Platform, str] = {"linux/amd64": "2.15.1-cpu-py3.11", "linux/arm64": "2.15.1-cpu-py3.11-arm64"}
INDEX = "2.15.1-cpu-py3.11-multi"


@dataclass
class Pair:
    """A registry with an index of two images, of which each has its own evidence."""

    registry: MemoryRegistry
    images: dict[Platform, Manifest]


@pytest.fixture
def pair() -> Pair:
    registry = MemoryRegistry()
    images = {}
    for platform, identifier in IDENTIFIERS.items():
        image = put_image(registry, identifier, platform=platform)
        report = replace(GREEN, identifier=identifier, digest=image.digest)
        statements = (*make_statements(report, of=image.digest), make_promotion(identifier, of=image.digest))
        attach(registry, image.digest, statements, key=OURS)
        images[platform] = image
    registry.put(INDEX, make_index(images))
    return Pair(registry, images)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def environment(engine: FakeEngine, pair: Pair) -> TestEnvironment:
    return TestEnvironment(docker=engine, registries=pair.registry, time=NOW)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_verify_reads_the_evidence_of_the_platform_s_image(
    platform: Platform, tfimg: CliRunner, pair: Pair, key: str
) -> None:
    ended = tfimg("verify", f"{NAME}:{INDEX}", "--platform", platform, "--public-key", key, "--json").succeeded()
    assert ended.json["digest"] == pair.images[platform].digest
    assert ended.json["tested"]["identifier"] == IDENTIFIERS[platform]


def test_the_promise_of_a_tag_is_that_of_the_platform(tfimg: CliRunner, pair: Pair, key: str) -> None:
    other = put_image(pair.registry, None, [{"etc/other": b"other"}], platform="linux/arm64")
    pair.registry.put(INDEX, make_index({**pair.images, "linux/arm64": other}))
    verify = ("verify", f"{NAME}:{INDEX}", "--public-key", key, "--platform")
    assert "has no evidence" in tfimg(*verify, "arm64").refusal(16)
    report = replace(GREEN, identifier=IDENTIFIERS["linux/arm64"], digest=other.digest)
    statements = make_statements(report, of=other.digest)
    attach(pair.registry, other.digest, (*statements, make_promotion("2.15-arm64", of=other.digest)), key=OURS)
    refused = tfimg(*verify, "arm64").refusal(16)
    assert f"the tag {IDENTIFIERS['linux/arm64']} of {NAME}" in refused, (
        "nobody promoted it to the tag that it stands for"
    )
    tfimg(*verify, "amd64").succeeded()


def test_an_index_s_images_cannot_stand_in_for_each_other(tfimg: CliRunner, pair: Pair, key: str) -> None:
    swapped = dict(zip(pair.images, reversed(pair.images.values()), strict=True))
    pair.registry.put(INDEX, make_index(swapped))
    refused = tfimg("verify", f"{NAME}:{INDEX}", "--platform", "arm64", "--public-key", key).refusal(16)
    assert "states arm64" in refused


def test_without_a_platform_an_index_means_this_machine_s(
    tfimg: CliRunner, pair: Pair, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfimg.engine.emulation.find_platform", lambda _machine: "linux/arm64")
    ended = tfimg("verify", f"{NAME}:{INDEX}", "--public-key", key, "--json").succeeded()
    assert ended.json["digest"] == pair.images["linux/arm64"].digest
    monkeypatch.setattr("tfimg.engine.emulation.find_platform", lambda _machine: None)
    assert "has no image for this machine, but for linux/amd64, linux/arm64" in (
        tfimg("verify", f"{NAME}:{INDEX}", "--public-key", key).refusal(3)
    )


def test_an_image_of_another_platform_is_refused(tfimg: CliRunner, key: str) -> None:
    assert tfimg("verify", f"{NAME}:2.15.1-cpu-py3.11", "--platform", "arm64", "--public-key", key).refusal(3) == (
        f"{NAME}:2.15.1-cpu-py3.11 has no image for linux/arm64, but for linux/amd64. Name one of its platforms with "
        "--platform, or another tag."
    )
    tfimg("verify", f"{NAME}:2.15.1-cpu-py3.11", "--platform", "amd64", "--public-key", key).succeeded()


def test_pull_takes_the_verified_digest_of_the_platform(
    tfimg: CliRunner, pair: Pair, key: str, engine: FakeEngine
) -> None:
    digest = pair.images["linux/arm64"].digest
    engine.pushed[f"{NAME}@{digest}"] = stored_image(digest)
    tfimg("pull", f"{NAME}:{INDEX}", "--platform", "arm64", "--public-key", key).succeeded()
    assert engine.names[f"{NAME}:{INDEX}"].digest == digest


def test_inspect_shows_the_platform_s_image(tfimg: CliRunner, pair: Pair, key: str) -> None:
    ended = tfimg("inspect", f"{NAME}:{INDEX}", "--platform", "arm64", "--public-key", key, "--json").succeeded()
    assert ended.json["platforms"] == ["linux/arm64"]
    assert ended.json["digest"] == pair.images["linux/arm64"].digest
    assert tfimg("inspect", f"{NAME}:{INDEX}", "--json").succeeded().json["platforms"] == [*PLATFORMS]


def test_an_index_with_evidence_of_its_own_is_an_image_by_itself(pair: Pair) -> None:
    index = pair.registry.find(INDEX)
    assert index is not None
    attach(pair.registry, index.digest, [make_promotion("2.15", of=index.digest)], key=OURS)
    assert find_platform_image(pair.registry, INDEX, None, default="linux/amd64") is None
    with pytest.raises(NotInRegistry):
        find_platform_image(pair.registry, "2.15.1-cpu-py3.11", "linux/arm64")
    assert find_platform_image(pair.registry, "absent", None) is None, "who verifies it says so"


@pytest.mark.parametrize(
    ("amd64", "arm64", "index"),
    [
        ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.11-arm64", "2.15.1-cpu-py3.11-multi"),
        ("2.15", "2.15-arm64", "2.15-multi"),
        ("2.15-py3.11", "2.15-py3.11-arm64", "2.15-py3.11-multi"),
        ("latest-jupyter", "latest-arm64-jupyter", "latest-multi-jupyter"),
    ],
)
def test_the_tag_of_an_index_stands_for_those_of_its_images(amd64: str, arm64: str, index: str) -> None:
    assert make_index_tag(arm64) == make_index_tag(amd64) == index
    assert (find_platform_tag(index, "linux/amd64"), find_platform_tag(index, "linux/arm64")) == (amd64, arm64)
    assert find_platform_tag(amd64, "linux/arm64") == amd64, "any other tag is as it is"

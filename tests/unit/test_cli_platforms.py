"""`tfimg verify`, `pull` and `inspect` of an index: each platform's image has attestations of its own."""

import json
import tarfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image, put_index
from support.reports import GREEN
from support.signing import OURS
from support.statements import NOW, make_promotion, make_statements
from tfimg.attestations.attach import attach
from tfimg.core.errors import NotInRegistry
from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.publish.indexes import MAX_ENTRIES, find_platform_image, make_index
from tfimg.recipe.tags import find_platform_tag, find_shared_tag
from tfimg.registry.documents import OCI_INDEX, Manifest

NAME = "registry.test:5000/team/tensorflow"
IDENTIFIERS: dict[Platform, str] = {"linux/amd64": "2.15.1-cpu-py3.11", "linux/arm64": "2.15.1-cpu-py3.11-arm64"}
INDEX = "2.15.1-cpu-py3.11"


@dataclass
class Pair:
    """A registry with an index of two images, of which each has its own attestations."""

    registry: MemoryRegistry
    images: dict[Platform, Manifest]


@pytest.fixture
def pair() -> Pair:
    registry = MemoryRegistry()
    images = {}
    for platform, identifier in IDENTIFIERS.items():
        labels = {"Labels": {"tfimg.identifier": identifier}}
        image = put_image(registry, None, platform=platform, config=labels)
        registry.put(identifier, image)
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
def test_verify_reads_the_attestations_of_the_platform_s_image(
    platform: Platform, tfimg: CliRunner, pair: Pair, key: str
) -> None:
    ended = tfimg("verify", f"{NAME}:{INDEX}", "--platform", platform, "--public-key", key, "--json").succeeded()
    assert ended.json["digest"] == pair.images[platform].digest
    assert ended.json["tested"]["identifier"] == IDENTIFIERS[platform]


def test_the_promise_of_a_tag_is_that_of_the_platform(tfimg: CliRunner, pair: Pair, key: str) -> None:
    labels = {"Labels": {"tfimg.identifier": IDENTIFIERS["linux/arm64"]}}
    other = put_image(pair.registry, None, [{"etc/other": b"other"}], platform="linux/arm64", config=labels)
    pair.registry.put(INDEX, make_index({**pair.images, "linux/arm64": other}))
    verify = ("verify", f"{NAME}:{INDEX}", "--public-key", key, "--platform")
    assert "has no attestations" in tfimg(*verify, "arm64").refusal(16)
    report = replace(GREEN, identifier=IDENTIFIERS["linux/arm64"], digest=other.digest)
    statements = make_statements(report, of=other.digest)
    attach(pair.registry, other.digest, (*statements, make_promotion("2.15-arm64", of=other.digest)), key=OURS)
    refused = tfimg(*verify, "arm64").refusal(16)
    assert f"the tag {IDENTIFIERS['linux/arm64']} of {NAME}" in refused, (
        "nobody promoted it to the tag that it stands for"
    )
    tfimg(*verify, "amd64").succeeded()


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("lie", ["swapped", "twice", "nested", "nested unseen", "crowded", "mixed", "deleted"])
def test_an_index_that_lies_is_refused(lie: str, platform: Platform, tfimg: CliRunner, pair: Pair, key: str) -> None:
    entries = [dict(entry) for entry in make_index(pair.images).document["manifests"]]
    named = f"{NAME}:{INDEX}"
    says = f"{named} is not a valid index of platforms: "
    code = 16
    if lie == "swapped":
        entries[0]["platform"], entries[1]["platform"] = entries[1]["platform"], entries[0]["platform"]
        says += "its entry for linux/amd64 is an image for 'linux/arm64'"
    elif lie == "twice":
        entries.append(entries[1] | {"platform": entries[0]["platform"]})
        says += "the index has 2 images for linux/amd64"
    elif lie == "nested":
        entries[1] |= {"mediaType": OCI_INDEX}
        says += "its entry for linux/arm64 is an index again"
    elif lie == "nested unseen":
        inner = make_index(pair.images)
        pair.registry.put(inner.digest, inner)
        entries[1] |= {"digest": inner.digest, "size": len(inner.content)}
        says += "its entry for linux/arm64 is an index again"
    elif lie == "crowded":
        entries += [entries[1] | {"platform": {"os": "linux", "architecture": f"x{n}"}} for n in range(MAX_ENTRIES)]
        says += f"the index has {MAX_ENTRIES + 2} entries, and at most {MAX_ENTRIES} are read"
    elif lie == "mixed":
        labels = {"Labels": {"tfimg.identifier": "2.16.2-cpu-py3.11-arm64"}}
        other = put_image(pair.registry, None, platform="linux/arm64", config=labels)
        entries[1] |= {"digest": other.digest, "size": len(other.content)}
        says += "the index mixes different images: '2.15.1-cpu-py3.11' for linux/amd64, '2.16.2-cpu-py3.11' for"
    else:
        entries[1] |= {"digest": f"sha256:{'0' * 64}"}
        if platform == "linux/amd64":
            tfimg("verify", named, "--platform", platform, "--public-key", key).succeeded()
            return
        says, code = f"{named} lists sha256:{'0' * 64} for linux/arm64, which the registry does not have.", 3
    content = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    pair.registry.put(INDEX, Manifest(media_type=OCI_INDEX, content=content))
    assert says in tfimg("verify", named, "--platform", platform, "--public-key", key).refusal(code)


def test_an_index_is_verified_by_digest(tfimg: CliRunner, pair: Pair, key: str) -> None:
    index = make_index(pair.images)
    ended = tfimg("verify", f"{NAME}@{index.digest}", "--platform", "arm64", "--public-key", key, "--json").succeeded()
    assert ended.json["digest"] == pair.images["linux/arm64"].digest


def test_save_writes_the_platform_s_image_under_its_own_tag(
    tfimg: CliRunner, pair: Pair, key: str, tmp_path: Path
) -> None:
    file = tmp_path / "image.tar"
    tfimg("save", f"{NAME}:{INDEX}", str(file), "--platform", "arm64", "--public-key", key).succeeded()
    with tarfile.open(file) as tar:
        found = tar.extractfile("index.json")
        assert found
        (image, *_) = json.load(found)["manifests"]
    assert image["digest"] == pair.images["linux/arm64"].digest
    assert image["annotations"]["io.containerd.image.name"] == f"{NAME}:{IDENTIFIERS['linux/arm64']}"


def test_without_a_platform_an_index_means_this_machine_s(
    tfimg: CliRunner, pair: Pair, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfimg.engine.machine.find_platform", lambda _machine: "linux/arm64")
    ended = tfimg("verify", f"{NAME}:{INDEX}", "--public-key", key, "--json").succeeded()
    assert ended.json["digest"] == pair.images["linux/arm64"].digest
    monkeypatch.setattr("tfimg.engine.machine.find_platform", lambda _machine: None)
    assert "has no image for this machine, but for linux/amd64, linux/arm64" in (
        tfimg("verify", f"{NAME}:{INDEX}", "--public-key", key).refusal(3)
    )


def test_an_image_of_another_platform_is_refused(tfimg: CliRunner, pair: Pair, key: str) -> None:
    pair.registry.put(INDEX, pair.images["linux/amd64"])
    assert tfimg("verify", f"{NAME}:2.15.1-cpu-py3.11", "--platform", "arm64", "--public-key", key).refusal(3) == (
        f"{NAME}:2.15.1-cpu-py3.11 has no image for linux/arm64, but for linux/amd64. Name one of its platforms with "
        "--platform, or another tag."
    )
    tfimg("verify", f"{NAME}:2.15.1-cpu-py3.11", "--platform", "amd64", "--public-key", key).succeeded()


def test_verify_says_that_an_emulator_ran_the_checks(tfimg: CliRunner, pair: Pair, key: str) -> None:
    digest = pair.images["linux/arm64"].digest
    verify = ("verify", f"{NAME}:{INDEX}", "--platform", "arm64", "--public-key", key)
    assert "an emulator" not in tfimg(*verify).succeeded().stdout
    environment = {**GREEN.environment, "emulated": True}
    later = replace(GREEN, identifier=IDENTIFIERS["linux/arm64"], environment=environment, date="2026-01-03T00:00:00Z")
    attach(pair.registry, digest, make_statements(replace(later, digest=digest), of=digest), key=OURS)
    shown = " ".join(tfimg(*verify).succeeded().stdout.split())
    assert "level linked" in shown
    assert "Linux 6.1.0, an emulator" in shown


def test_pull_takes_the_verified_digest_of_the_platform(
    tfimg: CliRunner, pair: Pair, key: str, engine: FakeEngine
) -> None:
    digest = pair.images["linux/arm64"].digest
    engine.pushed[f"{NAME}@{digest}"] = stored_image(digest)
    tfimg("pull", f"{NAME}:{INDEX}", "--platform", "arm64", "--public-key", key).succeeded()
    assert engine.names[f"{NAME}:{INDEX}"].digest == digest


def test_inspect_shows_the_platform_s_image(
    tfimg: CliRunner, pair: Pair, key: str, environment: TestEnvironment
) -> None:
    environment.time = datetime.now(UTC)  # it reads the matrix, whose facts are of later than the reports
    ended = tfimg("inspect", f"{NAME}:{INDEX}", "--platform", "arm64", "--public-key", key, "--json").succeeded()
    assert ended.json["platforms"] == ["linux/arm64"]
    assert ended.json["digest"] == pair.images["linux/arm64"].digest
    assert tfimg("inspect", f"{NAME}:{INDEX}", "--json").succeeded().json["platforms"] == [*PLATFORMS]


def test_what_is_no_index_of_platforms_is_the_image(pair: Pair) -> None:
    arm64 = pair.images["linux/arm64"]
    pair.registry.put(
        "attested", put_index(pair.registry, "attested", {"linux/arm64": arm64, "unknown/unknown": arm64})
    )
    for reference in ("attested", IDENTIFIERS["linux/arm64"], "absent"):
        assert find_platform_image(pair.registry, reference, None, default="linux/amd64") is None, reference
    with pytest.raises(NotInRegistry, match="has no image for linux/amd64, but for linux/arm64"):
        find_platform_image(pair.registry, IDENTIFIERS["linux/arm64"], "linux/amd64")


@pytest.mark.parametrize(
    ("shared", "arm64"),
    [
        ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.11-arm64"),
        ("2.15", "2.15-arm64"),
        ("2.15-py3.11", "2.15-py3.11-arm64"),
        ("2.15-gpu", "2.15-gpu-arm64"),
        ("latest", "latest-arm64"),
        ("latest-jupyter", "latest-arm64-jupyter"),
        ("2.15-jupyter-own", "2.15-arm64-jupyter-own"),
    ],
)
def test_a_tag_has_a_name_on_each_platform(shared: str, arm64: str) -> None:
    assert (find_platform_tag(shared, "linux/amd64"), find_platform_tag(shared, "linux/arm64")) == (shared, arm64)
    assert find_shared_tag(arm64) == find_shared_tag(shared) == shared
    assert find_platform_tag(arm64, "linux/arm64") == arm64


@pytest.mark.parametrize(
    "tag",
    [
        "2.15.1-cpu-py3.11-0123456789ab",
        "2.15.1-cpu-py3.11-arm64-0123456789ab",
        "custom-2.15.1-cpu-py3.11-arm64",
        "mine-arm64",
    ],
)
def test_a_build_and_what_is_not_ours_is_shared_by_no_platforms(tag: str) -> None:
    assert find_platform_tag(tag, "linux/arm64") == find_shared_tag(tag) == tag


def test_an_index_has_the_history_of_each_platform(tfimg: CliRunner, key: str) -> None:
    both = tfimg("history", NAME, INDEX, "--public-key", key).succeeded().stdout
    assert [line for line in both.splitlines() if line.endswith(":")] == [f"{INDEX}-arm64:", f"{INDEX}:"]
    for platform, identifier in IDENTIFIERS.items():
        ended = tfimg("history", NAME, INDEX, "--platform", platform, "--public-key", key, "--json").succeeded()
        (found,) = ended.documents
        assert (found["event"], [tag["tag"] for tag in found["tags"]]) == ("promotion", [identifier])

"""What a registry says of a base, and what a build says where it is not the base of the image's record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.environment import TestEnvironment
from support.memory_registry import MemoryRegistry
from support.reports import GREEN
from tfimg.build.builder import read_base_config, record_base, report_base_change
from tfimg.core.errors import NetworkError
from tfimg.core.events import Event, InfoEvent
from tfimg.core.paths import Workspace
from tfimg.engine.bases import BaseConfig, BaseImage
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project, read_record, write_record
from tfimg.project.services import Services
from tfimg.registry.documents import OCI_CONFIG, OCI_INDEX, Manifest, describe_blob, digest_of, make_manifest

REPOSITORY = "mirror.example.test/library/python"
NAME = f"{REPOSITORY}:3.11-slim-bookworm"
LAYERS = tuple(f"sha256:{digit * 64}" for digit in "123")
DEBIAN, PYTHON, LINKS = LAYERS
OTHER = f"sha256:{'4' * 64}"
DIGEST = f"sha256:{'a' * 64}"
CONFIG = BaseConfig(python="3.11.14", created="2026-10-02", layers=LAYERS)
OFFICIAL = BaseImage(kind="official", name=NAME, reference=NAME, digest=DIGEST, why="", config=CONFIG)


@pytest.fixture
def spec(named: Callable[[str], ImageSpec]) -> ImageSpec:
    return named("2.15.1-cpu-py3.11")


def add_image(registry: MemoryRegistry, **settings: Any) -> Manifest:
    """Put an image with a configuration into a registry."""
    document = {
        "os": "linux",
        "architecture": "amd64",
        "created": "2026-10-02T01:02:03Z",
        "config": {"Env": ["PATH=/usr/bin", "PYTHON_VERSION=3.11.14"], "Labels": None},
        "rootfs": {"type": "layers", "diff_ids": [*LAYERS]},
        **settings,
    }
    content = json.dumps(document).encode()
    registry.blobs[digest_of(content)] = content
    manifest = make_manifest(describe_blob(content, OCI_CONFIG), [])
    registry.put(manifest.digest, manifest)
    return manifest


def add_index(registry: MemoryRegistry, images: dict[str, Manifest]) -> str:
    entries = [
        {
            "mediaType": manifest.media_type,
            "digest": manifest.digest,
            "size": len(manifest.content),
            "platform": dict(zip(("os", "architecture"), platform.split("/"), strict=True)),
        }
        for platform, manifest in images.items()
    ]
    content = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    index = Manifest(media_type=OCI_INDEX, content=content)
    registry.put(index.digest, index)
    return index.digest


def read(registry: MemoryRegistry | None, digest: str) -> tuple[BaseConfig, list[Event]]:
    said: list[Event] = []
    services = TestEnvironment(environ={}, registries=registry)
    return read_base_config(f"{NAME}@{digest}", "linux/amd64", services, said.append), said


def test_the_configuration_of_the_platform_is_read() -> None:
    registry = MemoryRegistry(repository=REPOSITORY)
    other = add_image(registry, config={"Env": ["PYTHON_VERSION=3.12.1"]})
    assert read(registry, add_index(registry, {"linux/arm64": other, "linux/amd64": add_image(registry)})) == (
        CONFIG,
        [],
    )


def test_a_look_alike_says_how_it_was_made() -> None:
    registry = MemoryRegistry(repository=REPOSITORY)
    image = add_image(registry, config={"Labels": {"tfimg.base.made": "by hand\x1b[31m"}})
    found, said = read(registry, image.digest)
    assert (found.made, found.python, said) == ("by hand", None, [])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"rootfs": {"diff_ids": [DEBIAN] * 200}}, "its layers are not at most 127 digests"),
        ({"rootfs": {"diff_ids": ["nothing"]}}, "its layers are not at most 127 digests"),
        ({"config": {"Env": 7}}, "is malformed"),
    ],
)
def test_a_hostile_configuration_is_not_believed(settings: dict[str, Any], problem: str) -> None:
    registry = MemoryRegistry(repository=REPOSITORY)
    found, (said,) = read(registry, add_image(registry, **settings).digest)
    assert found == BaseConfig()
    assert isinstance(said, InfoEvent)
    assert problem in said.text


def test_an_index_without_the_platform_is_named() -> None:
    registry = MemoryRegistry(repository=REPOSITORY)
    digest = add_index(registry, {"linux/arm64": add_image(registry)})
    found, said = read(registry, digest)
    assert found == BaseConfig()
    assert said == [
        InfoEvent(
            text=f"The configuration of {NAME}@{digest} was not read: {REPOSITORY}@{digest} has no image for "
            "linux/amd64."
        )
    ]


class SilentRegistry(MemoryRegistry):
    def find(self, reference: str) -> Manifest | None:
        raise NetworkError("The registry does not answer.", next_step=f"Start it: {reference}.")


def test_a_registry_that_only_the_engine_reaches_is_no_obstacle() -> None:
    found, (said,) = read(SilentRegistry(), DIGEST)
    assert found == BaseConfig()
    assert said == InfoEvent(text=f"The configuration of {NAME}@{DIGEST} was not read: The registry does not answer.")


# Changes


@pytest.fixture
def proven(tmp_path: Path, spec: ImageSpec) -> Workspace:
    """A workspace whose image is proven on an official base."""
    found = Workspace(root=tmp_path)
    record(found, spec, OFFICIAL)
    return found


def record(proven: Workspace, spec: ImageSpec, base: BaseImage) -> None:
    assert GREEN.identifier == spec.identifier
    write_record(proven, GREEN, content=None, recipe=None, base=record_base(spec, base))


def changes(proven: Workspace, spec: ImageSpec, base: BaseImage) -> list[str]:
    said: list[Event] = []
    report_base_change(spec, base, proven, said.append)
    return [event.text for event in said if isinstance(event, InfoEvent)]


def test_the_same_base_is_not_worth_a_word(proven: Workspace, spec: ImageSpec) -> None:
    assert changes(proven, spec, OFFICIAL) == []


def test_a_base_that_has_changed_under_its_tag_is_described_with_the_way_back(
    proven: Workspace, spec: ImageSpec
) -> None:
    present = replace(
        OFFICIAL,
        digest=OTHER,
        config=BaseConfig(python="3.11.15", created="2026-11-20", layers=(OTHER, PYTHON, OTHER)),
    )
    day = read_record(proven, spec.identifier).date[:10]  # type: ignore[union-attr]
    assert changes(proven, spec, present) == [
        f"{NAME} has changed since 2.15.1-cpu-py3.11 was proven on {day}: Python 3.11.14 became 3.11.15; Debian's "
        f"layer differs; 1 of 2 layers above it differ; made on 2026-11-20, was 2026-10-02. The suite decides; "
        f"--base-digest {DIGEST} takes the proven one."
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (CONFIG, "only its digest differs"),
        (BaseConfig(), "Python 3.11.14 became unknown; made on an unknown day, was 2026-10-02"),
    ],
)
def test_what_cannot_be_compared_is_not_claimed(
    proven: Workspace, spec: ImageSpec, config: BaseConfig, said: str
) -> None:
    (text,) = changes(proven, spec, replace(OFFICIAL, digest=OTHER, config=config))
    assert f": {said}. The suite" in text


def test_another_kind_of_base_has_not_changed(proven: Workspace, spec: ImageSpec) -> None:
    assert changes(proven, spec, replace(OFFICIAL, kind="look-alike", digest=OTHER)) == []


def test_a_record_on_the_official_base_is_not_replaced_by_one_on_another(proven: Workspace, spec: ImageSpec) -> None:
    record(proven, spec, replace(OFFICIAL, kind="bootstrapped", name="tfimg/base:x", digest=OTHER))
    kept = read_record(proven, spec.identifier)
    assert kept
    assert kept.base
    assert (kept.base.kind, kept.base.name) == ("official", spec.base.image), "the name without its mirror"
    record(proven, spec, replace(OFFICIAL, digest=OTHER))
    newer = read_record(proven, spec.identifier)
    assert newer
    assert newer.base
    assert newer.base.digest == OTHER
    assert newer.status.base_kind == "official"


def test_every_image_for_amd64_but_those_for_tpus_is_proven_on_a_known_base(specs: Sequence[ImageSpec]) -> None:
    """The page "Proofs" has no empty cell. A lock that changes takes the proof with it: record the image again."""
    project = Project(services=Services(environ={}))
    unproven = [
        spec.identifier
        for spec in specs
        if spec.platform == "linux/amd64" and spec.device != "tpu" and not spec.suffix
        if (status := project.status(spec)).level == "declared" or status.base_kind is None
    ]
    assert unproven == []

"""Images in a registry: limits of their documents, and messages for malformed ones."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.published_images import put_image
from tfimg.core.documents import InvalidDocument, validate_model
from tfimg.core.errors import NotInRegistry, TamperedError
from tfimg.registry import documents
from tfimg.registry.documents import (
    EMPTY,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_MANIFEST,
    ConfigStep,
    Descriptor,
    EntryPlatform,
    ImageConfig,
    ImageIndex,
    ImageManifest,
    Manifest,
    digest_of,
    make_manifest,
    open_image,
    read_blob,
)

NEXT_STEP = "Do not use the image; if you have published it, push it again."


def put_index(registry: MemoryRegistry, *entries: Manifest) -> Manifest:
    document = {"schemaVersion": 2, "manifests": [entry.descriptor.to_document() for entry in entries]}
    index = Manifest(media_type=OCI_INDEX, content=json.dumps(document).encode())
    registry.put("1", index)
    return index


def test_an_image_has_a_largest_number_of_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryRegistry()
    entries = [put_image(registry, f"2.15.{number}-cpu-py3.11") for number in range(3)]
    index = put_index(registry, *entries, entries[0])
    monkeypatch.setattr(documents, "MAX_MANIFESTS", 4)
    assert [image.manifest.digest for image in open_image(registry, "1").images] == [one.digest for one in entries]
    monkeypatch.setattr(documents, "MAX_MANIFESTS", 3)
    says = f"{registry.repository}@{index.digest} is malformed: it refers to more than 3 manifests. {NEXT_STEP}"
    with pytest.raises(TamperedError, match=exactly(says)):
        open_image(registry, "1")


def test_the_documents_of_an_image_have_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryRegistry()
    manifest = put_image(registry, "2.15.1-cpu-py3.11", tag="1")
    config = manifest.document["config"]
    size = len(manifest.content) + config["size"]
    monkeypatch.setattr(documents, "MAX_TOTAL_BYTES", size)
    assert open_image(registry, "1").root == manifest
    monkeypatch.setattr(documents, "MAX_TOTAL_BYTES", size - 1)
    says = (
        f"{registry.repository}@{manifest.digest} is malformed: its manifests and configurations have more than 0 MiB. "
        f"{NEXT_STEP}"
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        open_image(registry, "1")


@pytest.mark.parametrize(
    ("media_type", "labels"),
    [(OCI_CONFIG, {"a": "b"}), ("application/vnd.docker.container.image.v1+json", {"a": "b"}), (EMPTY, {})],
)
def test_only_the_configuration_of_an_image_is_read(media_type: str, labels: dict[str, str]) -> None:
    registry, config = MemoryRegistry(), {"os": "linux", "architecture": "amd64", "config": {"Labels": {"a": "b"}}}
    blob = replace(registry.put_blob(json.dumps(config).encode()), media_type=media_type)
    registry.put("1", make_manifest(blob, []))
    (image,) = open_image(registry, "1").images
    assert (image.labels, image.config) == (labels, config if labels else {})
    assert image.platform == ("linux/amd64" if labels else None)


@pytest.mark.parametrize(
    ("platform", "runs"),
    [({"os": "linux", "architecture": "unknown"}, None), ({"os": "unknown", "architecture": "amd64"}, None),
     ({"os": "linux", "architecture": "amd64"}, "linux/amd64")],
)  # fmt: skip
def test_an_image_of_an_unknown_platform_does_not_run(platform: dict[str, str], runs: str | None) -> None:
    registry = MemoryRegistry()
    entry = {**put_image(registry, "2.15.1-cpu-py3.11").descriptor.to_document(), "platform": platform}
    content = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    registry.put("1", Manifest(media_type=OCI_INDEX, content=content))
    assert [image.platform for image in open_image(registry, "1").images] == [runs]


def test_a_small_blob_is_limited_and_verified() -> None:
    class Lying(MemoryRegistry):
        def get_blob(self, digest: str) -> Iterator[bytes]:
            yield self.blobs[digest]

    registry = Lying()
    blob = registry.put_blob(bytes(2 << 20))
    assert read_blob(registry, blob, largest=2 << 20) == bytes(2 << 20)
    says = f"The document {blob.digest} has more than {(2 << 20) - 1} bytes. {documents.DISCARD}"
    with pytest.raises(TamperedError, match=exactly(says)):
        read_blob(registry, blob, largest=(2 << 20) - 1)
    other = Descriptor(media_type="text/plain", digest=digest_of(b"other"), size=5)
    registry.blobs[other.digest] = b"bytes"
    says = f"The content of {other.digest} has another digest. {documents.DISCARD}"
    with pytest.raises(TamperedError, match=exactly(says)):
        read_blob(registry, other)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("latest", "{0} has no tag latest, the tag of a name without one. Name a tag: {0}:TAG."),
        ("1", "The registry has no {0}:1. Check the name and the tag."),
        (digest_of(b""), f"The registry has no {{0}}@{digest_of(b'')}. Check the name and the tag."),
    ],
)
def test_a_missing_manifest_is_named_as_it_was_requested(reference: str, says: str) -> None:
    registry = MemoryRegistry()
    with pytest.raises(NotInRegistry, match=exactly(says.format(registry.repository))):
        open_image(registry, reference)


ENTRY: dict[str, object] = {"mediaType": OCI_MANIFEST, "digest": digest_of(b"{}"), "size": 2}


def test_null_means_empty_as_go_writes_it() -> None:
    assert validate_model(ImageIndex, {"manifests": None}).manifests == ()
    assert validate_model(ImageManifest, {"annotations": None}).annotations == {}
    assert validate_model(EntryPlatform, {"os": None, "architecture": None}) == EntryPlatform()
    plain = validate_model(Descriptor, ENTRY)
    assert validate_model(Descriptor, {**ENTRY, "annotations": None, "platform": None}) == plain
    settings = {"Labels": None, "Env": None}
    texts = dict.fromkeys(("os", "architecture", "created"))
    for document in ({"config": None, "rootfs": None, "history": None, **texts}, {"config": settings}):
        assert validate_model(ImageConfig, document) == ImageConfig()
    steps = {"history": [{"created_by": None, "empty_layer": None}], "rootfs": {"diff_ids": None}}
    assert validate_model(ImageConfig, steps) == ImageConfig(history=(ConfigStep(),))


@pytest.mark.parametrize(
    ("field", "largest", "refused"),
    [
        ("size", 0, -1),
        ("size", 1 << 40, (1 << 40) + 1),
        ("mediaType", "x" * 255, "x" * 256),
        ("artifactType", "x" * 255, "x" * 256),
    ],
)
def test_a_descriptor_has_bounds(field: str, largest: object, refused: object) -> None:
    assert validate_model(Descriptor, {**ENTRY, field: largest}).to_document()[field] == largest
    with pytest.raises(InvalidDocument, match=f"^{field}: "):
        validate_model(Descriptor, {**ENTRY, field: refused})


def test_a_manifest_and_an_index_have_a_largest_number_of_entries() -> None:
    assert len(validate_model(ImageManifest, {"layers": [ENTRY] * 10_000}).layers) == 10_000
    with pytest.raises(InvalidDocument, match=r"^layers: tuple should have at most 10000 items"):
        validate_model(ImageManifest, {"layers": [ENTRY] * 10_001})
    with pytest.raises(InvalidDocument, match=r"^manifests: value should have at most 10000 items"):
        validate_model(ImageIndex, {"manifests": [ENTRY] * 10_001})

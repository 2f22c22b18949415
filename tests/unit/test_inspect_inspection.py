"""What an image is and holds, from its labels and its attestations."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from support.inventories import make_inventory
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image, put_index
from support.signing import OURS, THEIRS
from support.statements import ON_GPU, make_statements
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import CYCLONEDX, REPORT, TEST_RESULT, Subject, make_statement
from tfimg.attestations.predicates import make_sbom
from tfimg.core.errors import NotInRegistry
from tfimg.core.paths import Workspace
from tfimg.engine.interface import StoredLayer
from tfimg.inspect.inspection import (
    Attestation,
    Contents,
    Inspection,
    inspect_image,
    inspect_local,
    list_contents,
    parse_bill_of_materials,
    summarize_image,
)
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.layout import LAYER_CONTENTS, list_layer_names
from tfimg.registry.client import fallback_tag
from tfimg.registry.documents import OCI_INDEX, OCI_MANIFEST, Manifest

LABELS = {
    "tfimg.identifier": "2.15.1-cpu-py3.11", "tfimg.device": "cpu", "tfimg.tensorflow": "2.15.1",
    "tfimg.layers": "libclang tensorflow tensorflow-python system packages selftest home",
    "org.opencontainers.image.title": "TensorFlow 2.15.1 for CPU on Python 3.11",
}  # fmt: skip
LAYERS = tuple({name: b"x"} for name in "abcdefg")


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def put(registry: MemoryRegistry) -> Manifest:
    config = {"Labels": LABELS, "Env": ["PATH=/bin", "LANG=C.UTF-8"]}
    return put_image(registry, "2.15", LAYERS, config=config)


def without_layers(registry: MemoryRegistry, image: Manifest) -> None:
    """Remove the layers' blobs: reading one fails."""
    for layer in image.document["layers"]:
        del registry.blobs[layer["digest"]]


def test_without_a_bill_of_materials_contents_are_unknown_and_no_layer_is_read(registry: MemoryRegistry) -> None:
    without_layers(registry, put(registry))
    found = inspect_image(registry, "2.15", ()).contents
    assert (found.source, found.known, found.python, found.debian) == ("unknown", False, {}, {})
    assert inspect_image(registry, "2.15", ()).attestations_problem is None


def test_the_configuration_reports_how_containers_start(registry: MemoryRegistry) -> None:
    config = {"User": "1000:1000", "Entrypoint": ["tini", "--"], "Cmd": None, "Env": ["A=1"], "Labels": LABELS}
    put_image(registry, "1", config=config)
    found = inspect_image(registry, "1", ())
    assert found.configuration == {"User": "1000:1000", "Entrypoint": '["tini", "--"]'}
    assert found.environment == {"A": "1"}


def test_layers_are_named_by_the_part_that_they_are(registry: MemoryRegistry) -> None:
    for number in (6, 7):  # an engine may have no layer of the work directory
        put_image(registry, "2.15", LAYERS[:number], config={"Labels": LABELS})
        layers = inspect_image(registry, "2.15", ()).layers
        assert [layer.part for layer in layers] == LABELS["tfimg.layers"].split()[:number]
    assert [layer.holds for layer in layers[:2]] == ["libclang", "TensorFlow's library, for every Python"]


@pytest.mark.parametrize("names", ["", "a b c d e f g", "system b c d e f g", "system " * 9, "system"])
def test_a_label_that_does_not_fit_the_layers_names_none(registry: MemoryRegistry, names: str) -> None:
    put_image(registry, "1", LAYERS, config={"Labels": {**LABELS, "tfimg.layers": names}})
    put_image(registry, "2", LAYERS[:1], config={"Labels": LABELS})
    for tag in ("1", "2"):  # the image has other layers than ours
        layers = inspect_image(registry, tag, ()).layers
        assert {(layer.part, layer.holds) for layer in layers} == {(None, "not known")}


def test_the_history_describes_an_image_of_another_publisher(registry: MemoryRegistry) -> None:
    empty = {"created_by": "ENV A=1", "empty_layer": True}
    history = [{"created_by": "ADD a /"}, empty, {"created_by": "RUN b"}]
    put_image(registry, "1", [{"a": b"a"}, {"b": b"b"}], history=history)
    layers = inspect_image(registry, "1", ()).layers
    assert [(layer.part, layer.holds) for layer in layers] == [(None, "ADD a /"), (None, "RUN b")]


def test_every_layer_of_every_image_says_what_it_holds(specs: Sequence[ImageSpec], workspace: Workspace) -> None:
    locks = [workspace.read_lock(spec.identifier) for spec in specs if workspace.locks(spec.identifier).exists()]
    assert len(locks) > 100
    images = [list_layer_names({**lock, "variant": "", "own": ""}, debian=True, programs=True) for lock in locks]
    names = {name for image in images for name in image}
    assert names == set(LAYER_CONTENTS)
    assert max(map(len, images)) <= 30, "containers have 127 layers at most"


def said_of(registry: MemoryRegistry, digest: str) -> None:
    subject = Subject(name=registry.repository, digest=digest)
    bill = make_sbom(make_inventory(), subject=subject, created=datetime(2026, 1, 2, tzinfo=UTC))
    attach(registry, digest, (*make_statements(ON_GPU, of=digest), bill), key=OURS)


def test_with_a_bill_of_materials_no_layer_is_read(registry: MemoryRegistry) -> None:
    image = put(registry)
    said_of(registry, image.digest)
    without_layers(registry, image)
    found = inspect_image(registry, "2.15", [OURS.verifying_key]).contents
    assert (found.source, found.signer) == ("bill of materials", OURS.verifying_key.identifier)
    assert found.libraries == {"nvidia-cudnn-cu12": "8.9.4.25"}
    assert found.python == {"numpy": "1.26.4", "odd": "1.0", "tensorflow": "2.15.1"}
    assert found.debian == {"base-files": "12.4", "libc6": "2.36-9+deb12u4"}
    assert found.files == {"libcuda.so.1": "", "libcudnn.so.8": "8.9.4.25"}
    assert found.version("nvidia-cudnn-") == "8.9.4.25"


def test_attestations_are_reported_with_who_signed_it(registry: MemoryRegistry) -> None:
    image = put(registry)
    said_of(registry, image.digest)
    ours = OURS.verifying_key.identifier
    for keys, signer in (((), None), ([OURS.verifying_key], ours), ([THEIRS.verifying_key], None)):
        found = inspect_image(registry, "2.15", keys)
        assert {one.kind for one in found.attestations} >= {CYCLONEDX, REPORT, TEST_RESULT}
        assert {one.signer for one in found.attestations} == {signer}
        assert {one.claims for one in found.attestations} == {(ours,)}
    assert found.tested
    assert found.tested["level"] == "validated"


def test_the_newest_report_counts_and_one_of_a_known_key_before_others(registry: MemoryRegistry) -> None:
    image = put(registry)
    for key, day in ((OURS, 1), (OURS, 2), (THEIRS, 3)):
        report = replace(ON_GPU, seconds=float(day), date=f"2026-01-0{day}T00:00:00+00:00")
        attach(registry, image.digest, make_statements(report, of=image.digest), key=key)
    for keys, seconds in (([OURS.verifying_key], 2.0), ((), 3.0)):
        report = inspect_image(registry, "2.15", keys).report
        assert report
        assert report["seconds"] == seconds


def test_attestations_that_were_signed_for_another_image_is_a_problem(registry: MemoryRegistry) -> None:
    image, other = put(registry), put_image(registry, "other")
    attach(registry, image.digest, make_statements(ON_GPU, of=other.digest), key=OURS)
    found = inspect_image(registry, "2.15", [OURS.verifying_key])
    assert found.attestations == ()
    assert found.attestations_problem
    assert "signed for another image" in found.attestations_problem


def test_aliases_are_the_tags_that_lead_to_the_same_bytes(registry: MemoryRegistry) -> None:
    image = put(registry)
    for tag in ("2.15.1", "latest", "unlike", fallback_tag(image.digest)):
        registry.put(tag, image)
    put_image(registry, "2.15.0")
    assert inspect_image(registry, "2.15", ()).aliases == ("2.15.1", "latest")
    assert inspect_image(registry, image.digest, ()).aliases == ("2.15", "2.15.1", "latest")


def test_aliases_in_a_registry_with_many_tags_are_limited(registry: MemoryRegistry) -> None:
    image = put(registry)
    for number in range(1000):
        registry.put(f"latest-{number:04}", image)
    assert len(inspect_image(registry, "2.15", ()).aliases) == 199


def test_an_index_is_reported_with_its_platforms(registry: MemoryRegistry) -> None:
    platforms = ("linux/amd64", "linux/arm64")
    config = {"Labels": LABELS}
    images = {one: put_image(registry, None, platform=one, config=config) for one in platforms}
    index = put_index(registry, "2.15", images)
    found = inspect_image(registry, "2.15", ())
    assert (found.digest, found.platforms) == (index.digest, platforms)
    assert found.created == datetime(2026, 11, 1, tzinfo=UTC)
    assert found.identifier == "2.15.1-cpu-py3.11"


def test_an_artifact_without_configuration_has_no_platform(registry: MemoryRegistry) -> None:
    with pytest.raises(NotInRegistry):
        inspect_image(registry, "x", ())
    layer = registry.put_blob(b"a model").to_document()
    document = json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "layers": [layer]}).encode()
    artifact = Manifest(media_type=OCI_MANIFEST, content=document)
    registry.put("x", artifact)
    found = inspect_image(registry, "x", ())
    assert (found.platforms, found.identifier, found.contents.python) == ((), None, {})
    assert [(layer.size, layer.holds) for layer in found.layers] == [(7, "not known")]


def test_what_runs_is_described_before_what_does_not(registry: MemoryRegistry) -> None:
    image = put_image(registry, None, LAYERS[:1], config={"Labels": LABELS})
    other = {**put_image(registry, "x").descriptor.to_document(), "platform": {"os": "unknown", "architecture": "x"}}
    for manifests, layers in (([other, image.descriptor.to_document()], 1), ([], 0)):
        content = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}).encode()
        registry.put("1", Manifest(media_type=OCI_INDEX, content=content))
        assert len(inspect_image(registry, "1", ()).layers) == layers


def test_an_spdx_statement_is_no_bill_of_materials(registry: MemoryRegistry) -> None:
    image = put(registry)
    before = inspect_image(registry, "2.15", [OURS.verifying_key]).contents
    subject = Subject(name=registry.repository, digest=image.digest)
    spdx = {"spdxVersion": "SPDX-2.3", "packages": [{"name": "numpy", "versionInfo": "0.0.1"}]}
    attach(registry, image.digest, [make_statement(subject, "https://spdx.dev/Document", spdx)], key=OURS)
    assert inspect_image(registry, "2.15", [OURS.verifying_key]).contents == before


def test_an_inventory_says_the_same_as_the_bill_that_is_made_of_it() -> None:
    subject = Subject(name="registry.test/x", digest="sha256:" + "0" * 64)
    bill = make_sbom(make_inventory(), subject=subject, created=datetime(2026, 1, 2, tzinfo=UTC))
    reported = parse_bill_of_materials(json.loads(bill.content)["predicate"])
    requested = list_contents(make_inventory())
    for name in ("python", "libraries", "debian", "files"):
        assert getattr(reported, name) == getattr(requested, name)


def test_unknown_parts_of_a_bill_of_materials_are_ignored() -> None:
    bill = {"components": [{"purl": "no purl"}, {}, {"purl": "pkg:cargo/x@1"}, {"purl": "pkg:pypi/a@1"}]}
    assert parse_bill_of_materials(bill).python == {"a": "1"}


NOW = datetime(2026, 1, 12, tzinfo=UTC)
BARE = Inspection(
    name="registry.test/x:1", digest="sha256:x", labels={}, environment={}, configuration={}, platforms=(), layers=(),
    contents=Contents(source="unknown"),
)  # fmt: skip
UNKNOWN = {
    "image": "registry.test/x:1", "digest": "sha256:x", "row": "none: the image does not say what it is",
    "size": "0 MB in 0 layers, as they are sent", "contents": "not known: it has no bill of materials",
}  # fmt: skip


def test_what_an_image_lacks_is_left_out_of_its_summary() -> None:
    found = summarize_image(BARE, None, NOW)
    assert {name: value for name, value in found.items() if value is not None} == UNKNOWN
    assert list(found) == [
        "image", "digest", "title", "row", "TensorFlow", "Python", "CUDA", "cuDNN", "libtpu", "driver", "platforms",
        "size", "released", "supported until", "built", "tested", "level", "base",
        "Debian of", "revision", "aliases", "added by a user", "contents", "attestations",
    ]  # fmt: skip


def test_a_summary_has_what_labels_contents_and_results_say() -> None:
    labels = {
        **LABELS, "tfimg.python": "3.11", "org.opencontainers.image.revision": "abc",
        "org.opencontainers.image.base.name": "python:3.11", "org.opencontainers.image.base.digest": "sha256:b",
    }  # fmt: skip
    libraries = {"nvidia-cuda-runtime-cu12": "12.2", "nvidia-cudnn-cu12": "8.9", "libtpu": "0.1"}
    tested = {"level": "validated", "finishedOn": "2026-01-11T00:00:00Z"}
    result = Attestation(kind=TEST_RESULT, where="", claims=(), signer="ours", predicate=tested)
    older = replace(result, predicate={"level": "built", "finishedOn": "2026-01-10T00:00:00Z"})
    image = replace(
        BARE, labels=labels, platforms=("linux/amd64", "linux/arm64"), created=NOW, aliases=("2.15", "latest"),
        contents=Contents(source="bill of materials", signer="ours", libraries=libraries), attestations=(older, result),
        attestations_problem="it is bad",
    )  # fmt: skip
    row = {"path": "images.2", "driver_floor": "535"}
    found = summarize_image(image, row, NOW)
    assert {name: value for name, value in found.items() if value is not None and UNKNOWN.get(name) != value} == {
        "title": "TensorFlow 2.15.1 for CPU on Python 3.11", "row": "2.15.1-cpu-py3.11 (images.2 of the matrix)",
        "TensorFlow": "2.15.1", "Python": "3.11", "CUDA": "12.2", "cuDNN": "8.9", "libtpu": "0.1",
        "driver": "535 or newer", "platforms": "linux/amd64, linux/arm64", "built": "2026-01-12 00:00 UTC, today",
        "tested": "2026-01-11 00:00 UTC, 1 day ago", "level": "validated", "base": "python:3.11 (sha256:b)",
        "revision": "abc", "aliases": "2.15, latest",
        "contents": "as its bill of materials says, which is verified", "attestations": "cannot be read: it is bad",
    }  # fmt: skip
    unsigned = replace(image, attestations=(replace(result, signer=None),), contents=Contents(source="inventory"))
    found = summarize_image(unsigned, {"path": "x"}, NOW - timedelta(days=1))
    assert found["level"] == "validated, as a test result says that is not verified"
    assert found["contents"] == "as its inventory says, which was taken in the image on this machine"
    assert (found["driver"], found["built"]) == (None, "2026-01-12 00:00 UTC, in the future")
    unverified = Contents(source="bill of materials", python={"tensorflow": "2.16.1"})
    found = summarize_image(replace(BARE, labels={"tfimg.identifier": "x"}, contents=unverified), None, NOW)
    assert found["contents"] == "as its bill of materials says, which is not verified"
    assert (found["row"], found["TensorFlow"]) == ("none: this matrix has no x", "2.16.1")


def test_an_image_of_the_engine_is_described_by_its_configuration() -> None:
    layers = tuple(StoredLayer(digest=f"sha256:{number}", media_type="", size=number) for number in range(7))
    config = {"Env": ["A=1=2"], "User": "1000", "Cmd": ["sh"]}
    stored = stored_image("sha256:x", labels=LABELS, config=config, layers=layers)
    engine = FakeEngine(names={"tfimg/x:1": stored, "tfimg/x:2": stored, "tfimg/x:3": stored_image("sha256:y")})
    found = inspect_local(engine, "tfimg/x:1", stored, Contents(source="unknown"))
    assert (found.name, found.digest, found.labels, found.aliases) == ("tfimg/x:1", "sha256:x", LABELS, ("tfimg/x:2",))
    assert (found.environment, found.configuration) == ({"A": "1=2"}, {"User": "1000", "Cmd": '["sh"]'})
    assert [layer.part for layer in found.layers] == LABELS["tfimg.layers"].split()
    assert (found.platforms, found.attestations, found.compressed_bytes) == ((), (), 21)


def test_dates_are_those_of_the_matrix_and_without_it_of_the_labels() -> None:
    labelled = replace(BARE, labels={"tfimg.released": "2024-03-08", "tfimg.supported_until": "2025-12-31"})
    found = summarize_image(labelled, None, NOW)
    assert (found["released"], found["supported until"]) == ("2024-03-08", "2025-12-31 (ended)")
    found = summarize_image(labelled, {"path": "x", "released": "2024-03-09", "supported_until": "2026-01-12"}, NOW)
    assert (found["released"], found["supported until"]) == ("2024-03-09", "2026-01-12")

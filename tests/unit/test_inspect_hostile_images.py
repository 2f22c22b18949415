"""Hostile images, bundles, reports and suites: whatever they say, only errors of our own come out."""

import itertools
import json
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import suite_events as events
from support.inventories import INVENTORY
from support.memory_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.mutated_documents import cases, mutated_bytes, mutations
from support.oci_images import archive, put_image
from support.paths import ROOT
from support.reports import RED
from support.signing import OURS
from support.statements import NOW, ON_GPU, make_promotion, make_statements
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import REPORT, Subject, make_statement
from tfimg.attestations.policy import Policy
from tfimg.attestations.predicates import make_sbom
from tfimg.core.errors import FileError, TamperedError, TfimgError, ValidationAborted
from tfimg.engine import docker
from tfimg.engine.docker import split_lines
from tfimg.engine.interface import Exit, Line
from tfimg.inspect.archive import LayoutRegistry, collect_image, load_layout, save_layout, verify_layout
from tfimg.inspect.comparison import compare_images
from tfimg.inspect.inspection import inspect_image, list_contents
from tfimg.publish.tags import read_release
from tfimg.registry.documents import (
    OCI_CONFIG,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    open_image,
)  # fmt: skip
from tfimg.validation.record import read_report
from tfimg.validation.report import CheckResult, format_json, format_junit, format_page, take_inventory
from tfimg.validation.run import EventStream

MANY = settings(
    max_examples=cases(200), deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)  # fmt: skip
TAG = "2.15-gpu"
LABELS = {
    "tfimg.identifier": "2.15.1-cuda12.2-py3.11", "tfimg.tensorflow": "2.15.1", "tfimg.device": "gpu",
}  # fmt: skip
CONFIG = {
    "architecture": "amd64", "os": "linux", "created": "2026-11-01T00:00:00Z", "rootfs": {"type": "layers"},
    "config": {"Labels": LABELS, "Env": ["PATH=/bin"]}, "history": [{"created_by": "RUN", "empty_layer": True}],
}  # fmt: skip


@contextmanager
def only_our_errors() -> Iterator[None]:
    """Nothing but a `TfimgError` may come out, and what it says must be short enough to be read."""
    found = None
    try:
        yield
    except TfimgError as error:
        found = error
    assert found is None or (found.exit_code != 70 and len(str(found)) < 3000)


def descriptor(kind: str, blob: Descriptor) -> dict[str, Any]:
    return {"mediaType": kind, "digest": blob.digest, "size": blob.size}


def put(registry: MemoryRegistry, content: bytes, kind: str, tag: str = "") -> dict[str, Any]:
    manifest = Manifest(media_type=kind, content=content)
    registry.put(tag or manifest.digest, manifest)
    return {"mediaType": kind, "digest": manifest.digest, "size": len(content)}


def hostile_registry(change: Mapping[str, Any]) -> MemoryRegistry:
    """An index of an image whose documents `change` replaces, each under the digest that it has."""
    registry = MemoryRegistry()
    layer = descriptor("application/x.tar", registry.put_blob(archive({"a": b"a"})))
    config = descriptor(OCI_CONFIG, registry.put_blob(change["config"](json.dumps(CONFIG).encode())))
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]}
    manifest = put(registry, change["manifest"](json.dumps(document).encode()), OCI_MANIFEST)
    entry = {**manifest, "platform": {"os": "linux", "architecture": "amd64"}, "annotations": None}
    listed = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
    put(registry, change["index"](json.dumps(listed).encode()), OCI_INDEX, TAG)
    return registry


class Referring(MemoryRegistry):
    """A registry without attestations; its list of referrers is another matter."""

    def list_referrers(self, digest: str) -> list[Descriptor]:  # noqa: ARG002
        return []


@MANY
@given(st.data(), st.sampled_from(["config", "manifest", "index"]))
def test_a_hostile_image_is_read_or_refused(data: st.DataObject, which: str) -> None:
    changes = {name: (lambda content: content) for name in ("config", "manifest", "index")}
    changes[which] = lambda content: data.draw(mutations(content))
    registry = Referring.with_content_of(hostile_registry(changes))
    with only_our_errors():
        inspect_image(registry, TAG, ())
    with only_our_errors():
        read_release(registry, registry.manifests[registry.named[TAG]])
    with only_our_errors(), tempfile.TemporaryDirectory() as folder:
        save_layout(collect_image(registry, TAG, tag=TAG), Path(folder, "x"))
        assert open_image(LayoutRegistry(Path(folder, "x")), TAG).digest == registry.named[TAG]


@cache
def bundle() -> dict[str, bytes]:
    """The files of a bundle of an image with attestations."""
    registry = MemoryRegistry()
    image = put_image(registry, TAG, config={"Labels": LABELS})
    statements = (*make_statements(ON_GPU, of=image.digest), make_promotion(TAG, of=image.digest))
    attach(registry, image.digest, statements, key=OURS)
    content = b"".join(collect_image(registry, TAG, tag=TAG, keys=[OURS.verifying_key]).stream())
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def loaded(content: bytes) -> FakeEngine:
    """What an engine has after a bundle was verified and loaded, or refused with an error of ours."""
    engine = FakeEngine()
    with tempfile.TemporaryDirectory() as folder, only_our_errors():
        file = Path(folder, "x.tar")
        file.write_bytes(content)
        layout = LayoutRegistry(file)
        verified, name = verify_layout(layout, [OURS.verifying_key], Policy(), now=NOW)
        load_layout(layout, verified.digest, name, engine)
    return engine


def test_the_bundle_itself_is_loaded() -> None:
    assert list(loaded(archive(bundle())).names) == ["registry.test:5000/team/tensorflow:2.15-gpu"]


@MANY
@given(mutations(json.dumps(json.loads(bundle()["index.json"])).encode()))
def test_a_hostile_index_of_a_bundle_is_read_or_refused(index: bytes) -> None:
    engine = loaded(archive({**bundle(), "index.json": index}))
    assert all(name.startswith("registry.test:5000/team/tensorflow:") for name in engine.names)


@MANY
@given(mutated_bytes(archive({name: content for name, content in bundle().items() if len(content) < 3000})))
def test_a_hostile_archive_is_read_or_refused(content: bytes) -> None:
    loaded(content)


def test_indexes_in_indexes_are_read_to_a_depth() -> None:
    """A chain of them would be followed without end in search of the first image."""
    registry = MemoryRegistry()
    inner = put(registry, b'{"manifests": []}', OCI_INDEX)
    for _ in range(2000):
        inner = put(registry, json.dumps({"manifests": [inner]}).encode(), OCI_INDEX, TAG)
    with pytest.raises(TamperedError, match="refers to more than"):
        read_release(registry, registry.manifests[registry.named[TAG]])
    with pytest.raises(TamperedError, match="refers to more than"):
        open_image(registry, TAG)


@MANY
@given(mutations(format_json(RED).encode()))
def test_a_hostile_report_is_read_or_refused(content: bytes) -> None:
    with only_our_errors():
        read_report(content.decode("utf-8", "replace"), source="report.json")


@pytest.mark.parametrize("value", ["9" * 5000, "1e999", "NaN", '"\\ud800"', "[" * 1000 + "]" * 1000, "-1", "true"])
def test_an_event_with_a_hostile_value_is_rejected(value: str) -> None:
    stream = EventStream()
    document = events.suite("a.b"), events.start("a.b")
    for line in (*map(json.dumps, document), json.dumps(events.end("a.b")).replace("0.5", value)):
        assert not any(isinstance(event, CheckResult) for event in stream.feed(Line(stream="stdout", text=line)))
    stream.exit = Exit(status=0, out_of_memory=False)
    (result,) = stream.finish()
    assert result.outcome == "crashed"


END = events.end("a.b", explained=[events.EXPLAINED])
STREAM = [events.suite("a.b"), events.start("a.b"), END, events.done_event()]


@settings(MANY, max_examples=50)  # a page takes some 10 ms
@given(st.data(), st.sampled_from(range(4)))
def test_a_hostile_suite_is_read_or_rejected(data: st.DataObject, which: int) -> None:
    lines = [json.dumps(event) for event in STREAM]
    lines[which] = data.draw(mutations(lines[which].encode())).decode("utf-8", "replace")
    stream = EventStream()
    for line in lines:
        list(stream.feed(Line(stream="stdout", text=line)))
    stream.exit = Exit(status=0, out_of_memory=False)
    list(stream.finish())
    plan, results = stream.plan, tuple(stream.results)
    report = replace(
        ON_GPU, results=results, problem=stream.problem, required=plan.required, waived=plan.waived,
        environment=plan.environment,
    )  # fmt: skip
    assert format_junit(report)
    assert format_page(report)
    with only_our_errors():
        read_report(format_json(report), source="report.json")


def test_a_suite_without_end_is_not_kept() -> None:
    stream = EventStream()
    line = Line(stream="stdout", text="x" * 1_000_000)
    for _ in range(200):
        assert list(stream.feed(line)) == []
    assert sum(map(len, stream.errors)) <= 400_000
    assert list(stream.feed(events.line(events.suite("a.b")))) == []
    assert stream.plan.checks == ()


@settings(MANY, max_examples=50)  # bills of materials are validated, which takes most of the time
@given(data=st.data())
def test_a_hostile_inventory_is_read_or_refused(data: st.DataObject) -> None:
    mutant = data.draw(mutations(json.dumps({**INVENTORY, "imported": ["numpy"]}).encode()))
    line = mutant.decode("utf-8", "replace").replace("\n", " ")
    engine = FakeEngine(run_output=[Line(stream="stdout", text=line), Exit(status=0, out_of_memory=False)])
    with only_our_errors():
        inventory = take_inventory("some:image", b"", engine=engine)
        list_contents(inventory)
        make_sbom(inventory, subject=Subject(name="a/b", digest=f"sha256:{'0' * 64}"), created=NOW)


def test_what_the_suite_says_of_undecodable_names_is_accepted() -> None:
    document = events.end("a.b", "failed", "no file caf\udce9", measured={"worst": "caf\udce9"})
    code = f"import stream; stream.emitter(1)({document!r})"
    suite = ROOT / "images/validation"
    ended = subprocess.run([sys.executable, "-c", code], cwd=suite, capture_output=True, text=True, check=True)
    stream = EventStream(running="a.b")
    (result,) = stream.feed(Line(stream="stdout", text=ended.stdout))
    assert (result.reason, result.measured) == ("no file caf\\udce9", {"worst": "caf\\udce9"})


def test_a_report_with_many_long_problems_is_refused_in_few_words() -> None:
    document = json.loads(format_json(RED))
    document |= {f"{number}{'x' * 10_000}": 1 for number in range(100)}
    with pytest.raises(FileError, match="and 90 more") as caught:
        read_report(json.dumps(document), source="report.json")
    assert len(str(caught.value)) < 3000


REPORTS: dict[str, dict[str, Any]] = {
    "results": {"results": 7}, "seconds": {"results": [{"check": "a", "outcome": "passed", "seconds": "x"}]},
    "infinite": {"seconds": 1e308, "results": [{"check": "a", "outcome": "passed", "seconds": -1}]},
    "outcome": {"results": [{"check": "a", "outcome": []}]},
}  # fmt: skip


@pytest.mark.parametrize("kind", REPORTS)
def test_a_malformed_report_is_not_compared(kind: str) -> None:
    """Of an unsigned one, everything was written by who can write to the registry."""
    registry = MemoryRegistry()
    found = []
    for tag in ("1", "2"):
        image = put_image(registry, tag, [{tag: b""}])
        subject = Subject(name=registry.repository, digest=image.digest)
        attach(registry, image.digest, [make_statement(subject, REPORT, REPORTS[kind])], key=OURS)
        found.append(inspect_image(registry, tag, ()))
    changed = compare_images(*found)
    assert (changed.changes["outcomes"], changed.timings, changed.seconds) == ((), (), None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", [b"x" * 32_768, b"y\n" * 16_384, b"x" * 32_767 + b"\n"])
def test_a_container_that_floods_its_output_is_stopped_in_little_memory(
    piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker, "MAX_OUTPUT", 32 << 20)
    tracemalloc.start()
    with pytest.raises(ValidationAborted, match="as its program printed more than 32 MiB or 131,072 lines"):
        for _ in split_lines((1 + number % 2, piece) for number in itertools.count()):
            pass
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


@pytest.mark.timeout(60)
def test_an_inventory_among_many_long_lines_takes_little_memory() -> None:
    """A thousand lines of 8 MiB would be 8 GB."""
    noise = (Line(stream="stdout", text=f"{number}" * 300_000) for number in range(300))
    said = Line(stream="stdout", text=json.dumps(INVENTORY)), Exit(status=0, out_of_memory=False)
    engine = FakeEngine(run_output=itertools.chain(noise, said))  # type: ignore[arg-type]
    tracemalloc.start()
    assert take_inventory("some:image", b"", engine=engine).packages == INVENTORY["packages"]
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_a_line_without_end_comes_in_parts() -> None:
    found = list(split_lines((1, b"x" * (1 << 20)) for _ in range(20)))
    assert len(found) > 1
    assert sum(len(line.text) for line in found) == 20 << 20

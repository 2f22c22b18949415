"""Records of images: small, complete for its readers, and refused where it says what cannot follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.reports import DIGEST, GREEN, NAMES, PARTIAL, record_text, result
from tfimg.core.errors import FileError
from tfimg.core.levels import Level
from tfimg.core.paths import Workspace
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.labels import Status
from tfimg.validation.record import MAX_BYTES, ImageRecord, find_report, make_image_record, read_image_record
from tfimg.validation.report import GPU_CHECK, Report, format_page

MAX_EVIDENCE = 1_500_000
"""Bytes of the record of all images that can be proven."""

GPU_MEASURED = {"gpu": ["NVIDIA T4"], "capability": ["sm_75"], "driver": "535.104.05"}
ON_A_GPU = replace(
    GREEN, identifier="2.15.1-cuda12.2-py3.11", device="gpu",
    results=(*GREEN.results, replace(result(GPU_CHECK), measured=GPU_MEASURED)),
    required=(*NAMES, GPU_CHECK),
)  # fmt: skip
VERSIONS = {
    "environment.python": {"version": "3.11.2", "executable": "/opt/tensorflow/bin/python"},
    "environment.tensorflow_version": {"version": "2.15.1", "distributions": {"tensorflow-cpu": "2.15.1"}},
    "environment.versions": {name: {"version": f"1.{name}", "file": "x"} for name in ("numpy", "keras", "protobuf")},
    "libraries.versions": {"versions": {"nvidia-cudnn": "8.9.4"}},
}


def with_versions(report: Report) -> Report:
    known = [one for one in report.results if one.check not in VERSIONS]
    return replace(report, results=(*known, *(replace(result(name), measured=VERSIONS[name]) for name in VERSIONS)))


def read(text: str) -> ImageRecord:
    return read_image_record(text.encode(), source="host-run.json")


@pytest.mark.parametrize("report", [GREEN, ON_A_GPU, replace(GREEN, aim=Level.LINKED)], ids=["cpu", "gpu", "linked"])
def test_a_report_becomes_a_record_that_proves_the_same(report: Report) -> None:
    record = read(record_text(report))
    again = record.to_report()
    assert (again.level, again.verdict, again.missing) == (report.level, "passed", ())
    assert (again.gpus, again.driver, again.accelerator) == (report.gpus, report.driver, report.accelerator)
    assert [(one.check, one.outcome) for one in again.results] == [(one.check, one.outcome) for one in report.results]
    assert (record.content, record.recipe, record.lock) == (DIGEST, DIGEST, report.lock)
    assert record_text(again) == record_text(report), "recording again changes nothing"


def test_versions_are_kept_and_shown_with_their_checks() -> None:
    record = read(record_text(with_versions(GREEN)))
    assert record.versions == {
        "python": "3.11.2", "tensorflow": "2.15.1", "numpy": "1.numpy", "keras": "1.keras", "protobuf": "1.protobuf",
        "nvidia-cudnn": "8.9.4",
    }  # fmt: skip
    shown = {one.check: one.measured for one in record.to_report().results}
    assert shown["environment.python"] == {"version": "3.11.2"}
    assert record_text(record.to_report()) == record_text(with_versions(GREEN))
    assert shown["libraries.versions"] == {"versions": {"nvidia-cudnn": "8.9.4"}}
    assert "1.keras" in format_page(record.to_report())


def test_skipped_and_waived_checks_keep_their_reasons() -> None:
    skipped = replace(result("saving.tflite", "skipped", "there is no interpreter"), seconds=0.0)
    report = replace(
        GREEN,
        results=tuple(skipped if one.check == skipped.check else one for one in GREEN.results),
        required=tuple(name for name in NAMES if name != skipped.check),
        waived={"saving.keras_format": "it came later"},
    )
    record = read(record_text(report))
    assert (record.skipped, dict(record.waived)) == ({"saving.tflite": "there is no interpreter"}, dict(report.waived))
    assert record.to_report().level == "validated"


def test_a_status_names_level_day_and_accelerator() -> None:
    assert read(record_text(GREEN)).status == Status(level=Level.VALIDATED, date="2026-01-02")
    on_gpu = Status(level=Level.VALIDATED, date="2026-01-02", gpu="NVIDIA T4", driver="535.104.05")
    assert read(record_text(ON_A_GPU)).status == on_gpu
    assert read(record_text(replace(GREEN, device="tpu"))).status.level == "linked", "its TPU is not named"
    emulated = replace(GREEN, environment={**GREEN.environment, "emulated": True})
    assert read(record_text(emulated)).status == Status(level=Level.LINKED, date="2026-01-02", emulated=True)


def test_a_report_that_proves_no_level_is_not_a_record() -> None:
    with pytest.raises(FileError, match="cannot be recorded: level: input should be 'linked' or 'validated'"):
        make_image_record(PARTIAL, content=None, recipe=None)


def test_what_an_image_writes_is_bounded() -> None:
    long = replace(GREEN, environment={"kernel": "x" * 10_000, "gpus": [{"name": "T4"}]})
    assert make_image_record(long, content=None, recipe=None).environment == {"kernel": "x" * 600}
    many = tuple(replace(GREEN.results[0], check=f"a.{number}") for number in range(1001))
    with pytest.raises(FileError, match="cannot be recorded: passed: dictionary should have at most 1000 items"):
        make_image_record(replace(GREEN, results=many, required=("a.1",)), content=None, recipe=None)


SPOILT: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a field is missing": (lambda it: it.pop("waived"), "waived: field required"),
    "a field of nobody's": (lambda it: it.update(extra=1), "extra: extra inputs are not permitted"),
    "another kind": (lambda it: it.update(kind="x"), "kind: input should be 'tfimg image'"),
    "another schema": (lambda it: it.update(schema=2), "schema: input should be 1"),
    "level built": (lambda it: it.update(level=Level.BUILT), "level: input should be 'linked' or 'validated'"),
    "on a host, with a digest": (lambda it: it.update(where="host"), "digest: it is that of an image in a container"),
    "an image without a digest": (lambda it: it.update(digest=None), "digest: it is that of an image in a container"),
    "no check": (lambda it: it.update(passed={}), "passed: dictionary should have at least 1 item"),
    "a digest of nothing": (lambda it: it.update(lock="x"), "lock: string should match"),
    "a day of nobody's": (lambda it: it.update(date="yesterday"), "date: string should match"),
    "negative seconds": (lambda it: it["passed"].update(a=-1), "passed.a: input should be greater than"),
    "a long name": (lambda it: it["passed"].update({"a" * 101: 1}), f"passed.{'a' * 101}.[key]: "),
    "both passed and skipped": (lambda it: it.update(skipped={NAMES[0]: "x"}), f"skipped: {NAMES[0]} has passed"),
    "validated on an emulator": (
        lambda it: it["environment"].update(emulated=True),
        "level: it is validated, and linked follows from the machine",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "problem"), SPOILT.values(), ids=SPOILT)
def test_evidence_that_cannot_be_is_refused_by_its_path(
    spoil: Callable[[dict[str, Any]], object], problem: str
) -> None:
    document = json.loads(record_text(GREEN))
    spoil(document)
    with pytest.raises(FileError) as caught:
        read(json.dumps(document))
    assert str(caught.value).startswith(f"host-run.json is not the record of an image: {problem}")
    assert str(caught.value).endswith(" Write it again with `tfimg build --record` or `tfimg record`.")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", "{}", "[" * 100_000, '{"kind": NaN}', "\ud800"])
def test_what_is_not_a_document_is_refused(text: str) -> None:
    with pytest.raises(FileError, match="is not the record of an image"):
        read_image_record(text.encode("utf-8", "surrogatepass"), source="host-run.json")


def test_a_gpu_that_is_not_named_did_not_run() -> None:
    document = json.loads(record_text(ON_A_GPU)) | {"gpus": []}
    with pytest.raises(FileError, match="level: it is validated, and linked follows"):
        read(json.dumps(document))


def test_evidence_of_another_image_or_too_large_is_refused_and_of_another_lock_does_not_count(
    workspace_copy: Workspace,
) -> None:
    identifier = GREEN.identifier
    project = Project(services=Services(environ={"TFIMG_WORKSPACE": str(workspace_copy.root)}))
    spec = project.spec(identifier)
    file = workspace_copy.record(identifier)
    assert project.status(spec).level == "validated"
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "lock": DIGEST}))
    assert project.status(spec).level == "declared"
    file.write_text(json.dumps({**document, "identifier": "2.15.1-cpu-py3.9"}))
    with pytest.raises(FileError, match=r"is not the record of an image: it is about 2\.15\.1-cpu-py3\.9"):
        project.status(spec)
    file.write_text(" " * MAX_BYTES + file.read_text())
    with pytest.raises(FileError, match="is larger than 256 KiB"):
        project.status(spec)


def test_the_committed_evidence_is_readable_and_stays_small(workspace: Workspace, specs: Sequence[ImageSpec]) -> None:
    files = sorted((workspace.images / "records").glob("*.json"))
    assert len(files) >= 15
    for file in files:
        record = read_image_record(file.read_bytes(), source=file.name, identifier=file.stem)
        report = find_report(file.read_text(), source=file.name)
        assert report
        assert (report.identifier, report.level) == (file.stem, record.level)
        assert file.read_text().isascii()
    largest = max(file.stat().st_size for file in files)
    provable = [spec for spec in specs if spec.base.suite]
    assert largest * len(provable) < MAX_EVIDENCE

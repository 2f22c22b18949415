"""Reports and records in files: the JSON Schema of reports, and documents that are read whole or refused by path."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.reports import BROKEN, DIGEST, GREEN, NAMES, PARTIAL, RED, record_text, reported, result
from tfimg.core.errors import FileError
from tfimg.core.levels import Level
from tfimg.core.paths import Workspace
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.labels import MAX_RECORD_BYTES, Status
from tfimg.validation.record import (
    OPTIONAL,
    ImageRecord,
    find_report,
    make_image_record,
    read_image_record,
    read_report,
    schema_text,
)
from tfimg.validation.report import GPU_CHECK, SCHEMA, Report, format_json, format_page

RED_ON_A_GPU = replace(
    RED, results=(replace(result("gpu.visible"), measured={"gpu": "NVIDIA T4", "driver": "535.104.05"}),)
)
ALL = {"green": GREEN, "red": RED, "broken": BROKEN, "partial": PARTIAL, "on a GPU": RED_ON_A_GPU}

Spoil = Callable[[dict[str, Any]], object]


@cache
def validator() -> Any:
    # Its import takes a second, which each worker would need to collect the tests.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema_text()))


def document(report: Report) -> Any:
    return json.loads(format_json(report))


def test_the_schema_is_a_schema_and_the_committed_one(workspace: Workspace) -> None:
    validator().check_schema(validator().schema)
    assert workspace.report_schema.read_text() == schema_text()


def test_it_says_what_every_field_means_and_which_version_it_is() -> None:
    fields = validator().schema["properties"]
    assert fields.keys() == {*GREEN.to_json(), *OPTIONAL}
    assert all(field["description"] for field in fields.values())
    assert fields["schema"]["const"] == SCHEMA


@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_a_real_report_is_of_the_schema_and_read_as_it_was(report: Report) -> None:
    validator().validate(document(report))
    text = format_json(report)
    read = read_report(text, source="report.json")
    assert (format_json(read), read.passed, read.level) == (text, report.passed, report.level)


SPOILT_REPORTS: dict[str, Spoil] = {
    "a field is missing": lambda it: it.pop("waived"),
    "a result's field is missing": lambda it: it["results"][0].pop("output"),
    "another schema": lambda it: it.update(schema=1),
    "a derived field of another type": lambda it: it.update(passed=0),
    "a field that no report has": lambda it: it.update(extra=1),
    "a result's field that no report has": lambda it: it["results"][0].update(extra=1),
    "an unknown outcome": lambda it: it["results"][0].update(outcome="fine"),
    "a text for a number": lambda it: it.update(seconds="1"),
    "an unknown verdict": lambda it: it.update(verdict="fine"),
    "an explanation by halves": lambda it: it["results"][2]["explained"][0].pop("fix"),
}


@pytest.mark.parametrize("spoil", SPOILT_REPORTS.values(), ids=SPOILT_REPORTS)
def test_an_invalid_report_is_refused_by_schema_and_reader(spoil: Spoil) -> None:
    changed = document(RED)
    spoil(changed)
    assert not validator().is_valid(changed)
    with pytest.raises(FileError):
        read_report(json.dumps(changed), source="report.json")


def refusal_of(text: str) -> str:
    with pytest.raises(FileError) as caught:
        read_report(text, source="report.json")
    return str(caught.value)


def test_every_problem_is_reported_by_its_path() -> None:
    changed = document(GREEN)
    changed["results"][3]["outcome"], changed["aim"], changed["date"] = "fine", None, 7
    assert refusal_of(json.dumps(changed)) == (
        "report.json is not a valid validation report:\n"
        "  date: input should be a valid string\n"
        "  results[3].outcome: input should be 'passed', 'failed', 'crashed', 'timed-out' or 'skipped'\n"
        "  aim: input should be 'linked' or 'validated'\n"
        "Write it again with `tfimg validate --report`."
    )


def test_a_report_cannot_say_better_than_its_results() -> None:
    changed = document(RED)
    changed |= {"passed": True, "verdict": "passed", "level": "linked"}
    message = refusal_of(json.dumps(changed))
    assert "\n  passed: it is true, and follows as false from the results\n" in message
    assert '\n  level: it is "linked", and follows as "built" from the results\n' in message


def test_another_version_is_reported_as_such() -> None:
    assert refusal_of('{"schema": 1, "results": []}') == (
        "report.json is a report of schema 1, and this version of tfimg reads 2. Validate the image again with "
        "--report FILE, or read it with the version that wrote it."
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not valid JSON: EOF"), ("[1]", "it has no results"), ("{}", "it has no results"),
        ('{"results": NaN}', "it is not valid JSON"), ("[" * 100_000, "it is not valid JSON"),
        ('{"results": 1e999}', "number that is too large"), ('{"results": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"results": "\ud800"}', "not valid JSON"), ('{"results": "\\ud800"}', "not valid JSON"),
    ],
    ids=["empty", "a list", "an object", "NaN", "deep", "infinite", "long", "half a character", "its escape"],
)  # fmt: skip
def test_a_file_that_is_not_a_report_is_an_error(text: str, problem: str) -> None:
    assert problem in refusal_of(text)


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (reported(result("a.b", seconds=-0.1)), "results[0].seconds: input should be greater than or equal to 0"),
        (reported(result("a.b", seconds=86_400.0)), "results[0].seconds: input should be less than 86400"),
        (reported(result("a.b"), result("a.b")), "results[1].check: a.b has ended before"),
        (replace(GREEN, required=()), "required: a run of the suite requires at least one check"),
    ],
)
def test_a_report_of_no_possible_run_is_refused(report: Report, problem: str) -> None:
    assert problem in refusal_of(format_json(report))


def test_the_report_of_a_suite_that_did_not_start_is_read() -> None:
    report = replace(GREEN, results=(), required=(), problem="the suite did not start: no output")
    assert read_report(format_json(report), source="report.json") == report


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_record_can_be_kept_and_read_again(value: Any) -> None:
    report = replace(GREEN, results=(replace(result("a.b"), measured={"value": value}),))
    text = format_json(report)
    validator().validate(json.loads(text))
    assert format_json(read_report(text, source="report.json")) == text


MAX_RECORDS = 1_500_000
"""Bytes of the records of all images that can be proven."""

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
    "a field that no report has": (lambda it: it.update(extra=1), "extra: extra inputs are not permitted"),
    "another kind": (lambda it: it.update(kind="x"), "kind: input should be 'tfimg image'"),
    "another schema": (lambda it: it.update(schema=2), "schema: input should be 1"),
    "level built": (lambda it: it.update(level=Level.BUILT), "level: input should be 'linked' or 'validated'"),
    "on a host, with a digest": (lambda it: it.update(where="host"), "digest: it is that of an image in a container"),
    "an image without a digest": (lambda it: it.update(digest=None), "digest: it is that of an image in a container"),
    "no check": (lambda it: it.update(passed={}), "passed: dictionary should have at least 1 item"),
    "a digest of nothing": (lambda it: it.update(lock="x"), "lock: string should match"),
    "no day": (lambda it: it.update(date="yesterday"), "date: string should match"),
    "negative seconds": (lambda it: it["passed"].update(a=-1), "passed.a: input should be greater than"),
    "a long name": (lambda it: it["passed"].update({"a" * 101: 1}), f"passed.{'a' * 101}.[key]: "),
    "both passed and skipped": (lambda it: it.update(skipped={NAMES[0]: "x"}), f"skipped: {NAMES[0]} has passed"),
    "validated on an emulator": (
        lambda it: it["environment"].update(emulated=True),
        "level: it is validated, and linked follows from the machine",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "problem"), SPOILT.values(), ids=SPOILT)
def test_a_record_that_cannot_be_is_refused_by_its_path(
    spoil: Callable[[dict[str, Any]], object], problem: str
) -> None:
    document = json.loads(record_text(GREEN))
    spoil(document)
    with pytest.raises(FileError) as caught:
        read(json.dumps(document))
    assert str(caught.value).startswith(f"host-run.json is not the record of an image: {problem}")
    assert str(caught.value).endswith(" Write it again with `tfimg build --record` or `tfimg matrix record`.")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", "{}", "[" * 100_000, '{"kind": NaN}', "\ud800"])
def test_what_is_not_a_document_is_refused(text: str) -> None:
    with pytest.raises(FileError, match="is not the record of an image"):
        read_image_record(text.encode("utf-8", "surrogatepass"), source="host-run.json")


def test_a_gpu_that_is_not_named_did_not_run() -> None:
    document = json.loads(record_text(ON_A_GPU)) | {"gpus": []}
    with pytest.raises(FileError, match="level: it is validated, and linked follows"):
        read(json.dumps(document))


def test_a_record_of_another_image_or_too_large_is_refused_and_of_another_lock_does_not_count(
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
    file.write_text(" " * MAX_RECORD_BYTES + file.read_text())
    with pytest.raises(FileError, match="is larger than 256 KiB"):
        project.status(spec)


def test_records_are_readable_and_stay_small(workspace: Workspace, specs: Sequence[ImageSpec]) -> None:
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
    assert largest * len(provable) < MAX_RECORDS

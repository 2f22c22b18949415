"""`tfimg export`: which image has a way, refusals with the nearest that works, the verdict on answers, the report."""

import fcntl
import json
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from tfimg.core.errors import FileError, ResolutionError, UsageError, ValidationCrashed
from tfimg.engine.interface import DeviceSupport
from tfimg.export.javascript import FILES, file_name
from tfimg.export.run import (
    ExportReport,
    ExportRun,
    copy_written,
    find_written,
    hash_model,
    open_staging,
    plan_container,
    write_export_reports,
)
from tfimg.export.ways import ENDINGS, ExportOptions, choose_way, require_way
from tfimg.matrix.schema import Exporter, Matrix
from tfimg.matrix.spec import expand_matrix

PROGRAM = Path(__file__).parents[2] / "images/export"
sys.path.append(str(PROGRAM))

from cases import read_cases, require_int32, write_cases  # noqa: E402 - of the program in images
from compare import BOUNDS, MEAN_BOUNDS, judge  # noqa: E402
from export_model import refuse_death  # noqa: E402
from kinds import find_kind  # noqa: E402
from refusal import Refused, first_line  # noqa: E402
from target_litert import _refusal  # noqa: E402
from target_onnx import _decode  # noqa: E402
from target_tfjs import name_tensors, to_array, to_json  # noqa: E402


def test_every_format_with_a_release_has_a_program_and_a_variant(matrix: Matrix) -> None:
    for name, exporter in matrix.exporters.items():
        is_there = (PROGRAM / f"target_{name}.py").exists()
        assert bool(exporter.releases) == is_there == (name in ENDINGS), name
        assert not exporter.releases or exporter.variant in matrix.variants


@pytest.mark.parametrize(
    ("options", "minor", "error", "says"),
    [
        (ExportOptions(target="litrt"), None, UsageError, "Did you mean litert?"),
        (ExportOptions(target="tfjs"), "2.16", ResolutionError, "--tf 2.15"),
        (ExportOptions(target="onnx", page=True), None, UsageError, "--page is of TensorFlow.js"),
        (ExportOptions(target="litert"), "2.12", ResolutionError, "--tf 2.15"),
        (ExportOptions(target="onnx"), "2.20", ResolutionError, "--tf 2.21"),
        (ExportOptions(target="onnx", quantize="int8"), None, UsageError, "--samples"),
        (ExportOptions(target="litert", quantize="int8"), None, UsageError, "--samples"),
        (ExportOptions(target="litert", opset=13), None, UsageError, "--opset is of ONNX"),
    ],
)
def test_a_request_without_a_way_names_the_nearest(
    matrix: Matrix, options: ExportOptions, minor: str | None, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        require_way(options, matrix.exporters, minor)


def test_a_format_without_a_release_names_those_with_one(matrix: Matrix) -> None:
    nothing = Exporter(description="d", variant="export-tfjs", releases={}, otherwise="it has no converter")
    with pytest.raises(ResolutionError, match="it has no converter") as caught:
        require_way(ExportOptions(target="tfjs"), {"onnx": matrix.exporters["onnx"], "tfjs": nothing}, None)
    assert caught.value.next_step == "Use --to onnx."


def test_a_way_is_the_newest_release_unless_one_is_named(matrix: Matrix) -> None:
    exporter = require_way(ExportOptions(target="litert", quantize="dynamic"), matrix.exporters, "2.15")
    specs = expand_matrix(matrix)
    assert choose_way(exporter, specs, "2.15").identifier == "2.15.1-cpu-py3.11"
    assert choose_way(exporter, specs, None).identifier == "2.21.0-cpu-py3.11"


@pytest.mark.parametrize(
    ("wanted", "found", "problem"),
    [
        ([1.0, 2.0], [1.0, 2.0001], None),
        ([1.0, 2.0], [1.0, 2.1], "of the largest answer"),
        ([np.nan, 2.0], [np.nan, 2.0], None),
        ([np.nan, 2.0], [2.0, np.nan], "nan at other places"),
        ([np.inf, 2.0], [-np.inf, 2.0], "infinity of another sign"),
        ([np.nan], [np.nan], "nothing is proven"),
        ([1.0], [[1.0]], "shape"),
        ([10**11], [10**11 % 2**31], "whole numbers differ"),
    ],
)
def test_answers_are_compared_by_place_and_bound(wanted: list[float], found: list[float], problem: str | None) -> None:
    result = judge([(np.asarray(wanted), np.asarray(found))], 1e-4)
    assert (problem or "") in (result["problem"] or ""), result
    assert bool(result["problem"]) == bool(problem)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_whole_numbers_beyond_32_bits_are_refused_by_name(value: int) -> None:
    inside, outside = np.asarray([2**31 - 1, -(2**31)]), np.asarray([0, value])
    require_int32("It", [{"x": inside, "text": np.asarray(["a"], object)}], [{"y": inside.astype("float32") * 4}])
    with pytest.raises(Refused, match=f"output y has {value}, and It computes"):
        require_int32("It", [{"x": inside}], [{"y": outside}])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.asarray([[1.5, np.nan]]), "float32"),
        (np.asarray([-3, 7], "int64"), "int32"),
        (np.asarray([True, False]), "bool"),
        (np.asarray(5, "uint8"), "int32"),
        (np.asarray([["a", "b\x00ü"]], object), "string"),
        (np.zeros((0, 3), "float16"), "float32"),
    ],
)
def test_arrays_keep_values_and_shape_in_json(value: np.ndarray[Any, Any], dtype: str) -> None:
    found = to_json(value)
    back = to_array(json.loads(json.dumps(found)))
    wanted = np.char.encode(value.astype("U"), "utf-8") if dtype == "string" else value.astype(dtype)
    assert found["dtype"] == dtype
    assert back.shape == value.shape
    assert back.tolist() == wanted.tolist() or np.array_equal(back, wanted, equal_nan=True)


def test_tensors_of_one_shape_have_their_names_in_javascript() -> None:
    def named(*tensors: str) -> dict[str, dict[str, str]]:
        return {tensor: {"name": tensor} for tensor in tensors}

    written = {"inputs": named("a:0", "b:0"), "outputs": {"only": {"name": "Identity:0"}, **named("Identity_1:0")}}
    names = {"a:0": "image/a", "b:0": "b"}, {"Identity:0": "best", "Identity_1:0": "scores"}
    order: dict[str, dict[str, Any]] = {"inputs": {"b": {}, "image/a": {}}, "outputs": {"scores": {}, "best": {}}}
    found = name_tensors(written, *names, order)
    assert {part: list(found[part]) for part in found} == {part: list(order[part]) for part in order}
    assert found == {
        "inputs": {"image/a": {"name": "a:0"}, "b": {"name": "b:0"}},
        "outputs": {"best": {"name": "Identity:0"}, "scores": {"name": "Identity_1:0"}},
    }


def test_an_answer_of_javascript_without_a_size_is_refused() -> None:
    with pytest.raises(Refused, match="without a size"):
        to_array({"dtype": "int32", "shape": [None], "data": ""})


@pytest.mark.parametrize(
    ("said", "reason", "step"),
    [
        (
            'loc(fused["Conv2D:", "net/conv/Conv2D@f"]): error: \'tf.Conv2D\' op is neither a custom op nor a flex op\n'
            "\ttf.Conv2D(tensor<?x32x32x?xf32>, tensor<1x1x4x1xf32>) -> (tensor<?x32x32x1xf32>)",
            "needs the number of channels, which it does not find: tf.Conv2D in net/conv/Conv2D",
            "fixed size",
        ),
        (
            '<unknown>:0: error: loc(callsite(fused["BatchMatMulV3:", "net/dense/MatMul@f"] at "g")): '
            "'tfl.fully_connected' op operand #0 must be tensor of 32-bit float",
            "cannot convert net/dense/MatMul: 'tfl.fully_connected' op operand #0",
            "try --to onnx",
        ),
    ],
)
def test_a_refusal_of_litert_says_what_is_true(said: str, reason: str, step: str) -> None:
    refused = _refusal(ValueError(said))
    assert reason in str(refused)
    assert step in refused.next_step


def test_a_missing_output_is_a_problem() -> None:
    assert judge([(np.ones(1), None)], 1.0)["problem"] == "the target has no such output"


@pytest.mark.parametrize(
    ("gaps", "problem"),
    [
        ([0.09] + [0.001] * 99, None),  # one answer beyond the samples' range
        ([0.11] + [0.0] * 99, "0.11 of the largest answer"),
        ([0.03] * 100, "0.03 of the largest answer in the mean"),
    ],
)
def test_int8_is_bound_in_the_mean_and_for_each_answer(gaps: list[float], problem: str | None) -> None:
    wanted = np.linspace(0, 1, 100)
    result = judge([(wanted, wanted + gaps)], BOUNDS["int8"], MEAN_BOUNDS["int8"])
    assert (problem or "") in (result["problem"] or ""), result
    assert bool(result["problem"]) == bool(problem)


def test_without_quantization_a_small_case_is_not_excused_by_a_large_one() -> None:
    large, small = np.asarray([1e6]), np.asarray([1.0])
    assert judge([(large, large), (small, small + 0.1)], BOUNDS[None])["problem"]


def test_texts_reach_onnxruntime_as_they_are(tmp_path: Path) -> None:
    words = np.asarray([["red", "süß"], ["", "日本"]], object)
    write_cases(tmp_path / "cases.npz", [{"word": words, "number": np.ones(2)}])
    (case,) = read_cases(tmp_path / "cases.npz")
    assert case["word"].tolist() == [[one.encode() for one in row] for row in words]
    assert _decode(case["word"]).tolist() == words.tolist()
    assert _decode(case["number"]) is case["number"]


def test_the_line_of_an_error_says_something() -> None:
    graph = "Graph execution error:\n\nDetected at node X\n<stack traces unavailable>\nindices[0] = 9 is not in [0, 5)"
    assert first_line(ValueError(graph)) == "indices[0] = 9 is not in [0, 5)"
    keras = 'in user code:\n\n    File "x.py", line 1\n        y()\n\n    ValueError: \x1b[1mno scope name\x1b[0m\n'
    assert first_line(ValueError(keras)) == "no scope name"
    assert first_line(ValueError()) == "ValueError"


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt/checkpoint").touch()
    (tmp_path / "x.onnx").write_bytes(b"12345678")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.keras").touch()
    (tmp_path / "text.keras").write_text("no model")
    with ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("model/saved_model.pb", "")
    for name, says in (
        ("ckpt", "checkpoints"), ("x.onnx", "no format"), ("empty", "no saved_model.pb"), ("empty.keras", "is empty"),
        ("text.keras", "damaged or cut off"), ("model.zip", "archive of a SavedModel"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=says):
            find_kind(tmp_path / name)


def test_a_keras_model_of_another_name_is_read(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("metadata.json", "{}")
    kind, path = find_kind(tmp_path / "model.zip")
    assert (kind, path.suffix, path.resolve()) == ("keras", ".keras", tmp_path / "model.zip")


def export_run(folder: Path) -> ExportRun:
    model = folder / "model.keras"
    model.write_text("bytes")
    options = ExportOptions(target="litert")
    return ExportRun(model=model, options=options, image="i", digest="sha256:1", output=folder / "out", program=PROGRAM)


def test_the_container_may_write_to_one_folder(tmp_path: Path) -> None:
    toolkit = DeviceSupport(host="unix:///x", runtimes=(), cdi_folders=(), cdi_devices=())
    argv = " ".join(plan_container(export_run(tmp_path), tmp_path, toolkit, "c"))
    for words in ("--network none", "--read-only", "--cap-drop ALL", "no-new-privileges", "--memory", "--pids-limit"):
        assert words in argv
    assert [word.partition("target=")[2] for word in argv.split() if "target=" in word and "readonly" not in word] == [
        "/export"
    ]


def test_what_killed_runs_left_is_removed_unless_another_run_is_there(tmp_path: Path) -> None:
    (left := tmp_path / ".tfimg-export-left").mkdir()
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_SH)
    with open_staging(tmp_path) as staging:
        assert left.exists()
        assert staging.exists()
    os.close(other)
    with open_staging(tmp_path):
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_the_file_has_the_name_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = export_run(tmp_path)
    assert export.file.name == "model.tflite"
    (folder := tmp_path / "v1.2").mkdir()
    assert replace(export, model=folder).file.name == "v1.2.tflite"
    monkeypatch.chdir(folder)
    assert replace(export, model=Path()).file.name == "v1.2.tflite"


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    export = export_run(tmp_path)
    export.check()
    export.output.mkdir()
    export.file.touch()
    with pytest.raises(UsageError, match="is not replaced"):
        export.check()
    export.model.unlink()
    with pytest.raises(FileError, match="this machine has no"):
        export.check()


def test_reports_are_a_document_and_a_page_that_takes_names_as_text(tmp_path: Path) -> None:
    report = ExportReport(
        outcome="wrong",
        target="litert",
        model="m",
        bound=1e-4,
        differences={"<b>y": {"absolute": 1.0, "relative": 0.5, "problem": "differs"}},  # type: ignore[dict-item]
    )
    write_export_reports(report, tmp_path / "m.tflite")
    assert json.loads((tmp_path / "m.tflite.report.json").read_text())["differences"]["<b>y"]["relative"] == 0.5
    page = (tmp_path / "m.tflite.report.html").read_text()
    assert "&lt;b&gt;y" in page
    assert "<b>y" not in page


def test_the_digest_of_a_folder_is_that_of_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = hash_model(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert first != hash_model(tmp_path)


def test_a_folder_of_the_container_is_taken_with_plain_files_alone(tmp_path: Path) -> None:
    (staging := tmp_path / "staging").mkdir()
    (folder := staging / "model").mkdir()
    (folder / "model.json").write_text("{}")
    assert find_written({"file": "model"}, staging, is_folder=True) == folder
    for make in ("link", "folder", "no-files", "is-link"):
        wrong = staging / make
        wrong.mkdir()
        if make == "link":
            (wrong / "weights.bin").symlink_to("/etc/hostname")
        elif make == "folder":
            (wrong / "inner").mkdir()
        elif make == "is-link":
            wrong.rmdir()
            wrong.symlink_to(folder)
        with pytest.raises(ValidationCrashed):
            find_written({"file": make}, staging, is_folder=True)
    with pytest.raises(ValidationCrashed):
        find_written({"file": "model"}, staging)


def test_programs_of_the_page_are_not_the_containers(tmp_path: Path) -> None:
    (staging := tmp_path / "staging").mkdir()
    (folder := staging / "model").mkdir()
    for name in ("model.json", "index.html", "run.js"):
        (folder / name).write_text("of the container")
    (staging / "examples.json").write_text("[]")
    (javascript := tmp_path / "javascript").mkdir()
    for package in FILES:
        (javascript / file_name(package)).write_text("of npm")
    options = ExportOptions(target="tfjs", page=True)
    export = replace(export_run(tmp_path), options=options, javascript=javascript)
    copied = copy_written(export, {"file": "model"}, staging, tmp_path / "copy")
    assert {file.name for file in copied.iterdir() if file.read_text() == "of the container"} == {"model.json"}
    assert len(list(copied.iterdir())) == 8


@pytest.mark.parametrize("name", ["link", "../secret", "/etc/hostname", "folder", "missing", None])
def test_only_a_plain_file_of_the_container_is_taken(name: str | None, tmp_path: Path) -> None:
    (staging := tmp_path / "staging").mkdir()
    (tmp_path / "secret").write_text("of this machine")
    (staging / "link").symlink_to(tmp_path / "secret")
    (staging / "folder").mkdir()
    (staging / "model").write_bytes(b"converted")
    assert find_written({"file": "model"}, staging).read_bytes() == b"converted"
    with pytest.raises(ValidationCrashed):
        find_written({"file": name}, staging)


@pytest.mark.parametrize(
    ("target", "quantize", "step", "number", "says", "next_step"),
    [
        (
            "litert",
            "int8",
            "convert",
            signal.SIGSEGV,
            r"tf.lite died \(SIGSEGV\) .* --quantize int8, .*While in lstm",
            "dynam",
        ),
        (
            "onnx",
            None,
            "answer",
            signal.SIGABRT,
            r"ONNX Runtime died .*running.* It said: what\(\): no room\.$",
            "litert",
        ),
        ("tfjs", None, "convert", signal.SIGKILL, "tensorflowjs died .* needs more memory than there is", "--to onnx"),
        ("openvino", None, "read", signal.SIGABRT, "TensorFlow died .* reading the model", "release of TensorFlow"),
    ],
)
def test_a_process_that_a_signal_ends_is_refused_by_name(
    target: str, quantize: str | None, step: str, number: signal.Signals, says: str, next_step: str, tmp_path: Path
) -> None:
    (tmp_path / "request.json").write_text(json.dumps({"target": target, "quantize": quantize}))
    if step != "read":
        (tmp_path / "operations.json").write_text(json.dumps({"While": "lstm/while", "Add": "add"}))
    log = ["terminate called", "  what(): no room", "Fatal Python error: Aborted", "", "  File x"]
    found = refuse_death(str(tmp_path / "request.json"), tmp_path, step, number, log)
    assert found["outcome"] == "refused"
    assert re.search(says, found["reason"])
    assert next_step in found["next_step"]

"""What an image holds, taken from inside, beside the row that it claims."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from tfimg.core.errors import EngineUnavailable, ValidationAborted
from tfimg.core.paths import Workspace
from tfimg.engine.protocol import Exit, Line
from tfimg.matrix.schema import Constraint
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.sync.check import FactCheck
from tfimg.validation.inventory import SCRIPT, compare, take_inventory

Named = Callable[[str], ImageSpec]

FINE = Exit(status=0, out_of_memory=False)
BAD = Exit(status=1, out_of_memory=False)


def out(text: str) -> Line:
    return Line(stream="stdout", text=text)


def err(text: str) -> Line:
    return Line(stream="stderr", text=text)


def test_the_inventory_is_the_last_line_of_standard_output() -> None:
    told = {"python": "3.11", "libraries": {"/a b/ü.so": None}, "packages": {"broken": None}}
    lines = [err("a warning"), out("a library says hello"), out(json.dumps(told)), out(""), err("bye")]
    engine = FakeEngine(story=[*lines, FINE])
    found = take_inventory("some:image", b"print()", engine=engine)
    assert (found["python"], found["libraries"], found["packages"]) == (
        "3.11",
        told["libraries"],
        {"broken": ""},
    )
    assert (found["cuda"], found["debian"]) == (None, ())
    (order,) = engine.ran
    assert (order.image, order.command) == ("some:image", ["python", SCRIPT])
    assert order.files == {SCRIPT: (b"print()", 0o444)}
    assert engine.open_containers == 0


NO_TENSORFLOW = "ModuleNotFoundError: No module named 'tensorflow'"


@pytest.mark.parametrize(
    ("story", "why"),
    [
        (
            [out("{}"), out("not JSON"), FINE],
            "ended with status 0: not JSON (it is not valid JSON: expected ident",
        ),
        ([out("[1]"), FINE], "ended with status 0: [1] (it is not a JSON object)"),
        (
            [out('{"packages": 1}'), FINE],
            'status 0: {"packages": 1} (packages: input should be a valid dictionary)',
        ),
        ([out('{"cuda": ' + "9" * 5000 + "}"), FINE], "(it is not valid JSON: number out of range"),
        ([out("[" * 5000), FINE], "(it is not valid JSON: recursion limit exceeded"),
        ([FINE], "ended with status 0: no output"),
        ([out("{}"), err(NO_TENSORFLOW), BAD], f"ended with status 1: {NO_TENSORFLOW}"),
        ([out("{}"), err("loading"), TimeoutError()], "did not end in 300 s: loading"),
        ([TimeoutError()], "in 300 s: no output"),
    ],
    ids=["garbage", "list", "wrong type", "long", "deep", "silent", "status", "late", "late-and-silent"],
)
def test_an_image_whose_inventory_fails_is_reported_with_its_last_line(
    story: Sequence[Line | Exit | BaseException], why: str
) -> None:
    engine = FakeEngine(story=story)
    with pytest.raises(ValidationAborted) as caught:
        take_inventory("some:image", b"", engine=engine)
    assert str(caught.value).startswith("The inventory of some:image ")
    assert why in str(caught.value)
    assert len(str(caught.value)) < 3000
    assert engine.open_containers == 0


def test_an_engine_that_goes_away_is_reported_as_such() -> None:
    gone = EngineUnavailable("The engine went away.", next_step="Start it.")
    with pytest.raises(EngineUnavailable):
        take_inventory("some:image", b"", engine=FakeEngine(story=[out("{}"), gone]))


@pytest.fixture
def cpu(named: Named) -> ImageSpec:
    return named("2.15.1-cpu-py3.11")


@pytest.fixture
def gpu(named: Named) -> ImageSpec:
    return named("2.15.1-cuda12.2-py3.11")


SITE = "/usr/local/lib/python3.11/site-packages/nvidia"


def inventory(spec: ImageSpec, **other: Any) -> dict[str, Any]:
    """What an image of a spec holds, but for some things; a dictionary changes entries, and None removes a package."""
    packages = {spec.package: spec.tensorflow, "numpy": "1.26.4", "keras": "2.15.0", "setuptools": "81.0.0"}
    held: dict[str, Any] = {
        "tensorflow": "2.15.1",
        "python": spec.python,
        "machine": "x86_64",
        "build": {"is_cuda_build": False},
        "packages": {**packages, **dict(spec.libraries)},
        "libraries": {},
        "cudnn": None,
        "cuda": None,
    }
    if spec.gpu:
        capabilities = list(spec.gpu.architectures)
        cuda = {"cuda_version": "12.2", "cudnn_version": "8", "cuda_compute_capabilities": capabilities}
        wheels = {"cudnn/lib/libcudnn.so.8": "nvidia-cudnn-cu12", "nccl/lib/libnccl.so.2": "nvidia_nccl_cu12"}
        held |= {
            "build": {"is_cuda_build": True, **cuda},
            "libraries": {f"{SITE}/{path}": wheel for path, wheel in wheels.items()},
            "cudnn": "8.9.4",
            "cuda": "12.2",
        }
    for name, change in other.items():
        held[name] = {**held[name], **change} if isinstance(change, dict) else change
    return {**held, "packages": {name: one for name, one in held["packages"].items() if one is not None}}


def find_differences(spec: ImageSpec, held: dict[str, Any]) -> list[FactCheck]:
    return [finding for finding in compare(spec, held) if finding.verdict != "agrees"]


def difference(path: str, field: str, message: str) -> FactCheck:
    return FactCheck(path=f"rows[8].{path}", field=field, verdict="disagrees", message=message)


def test_an_image_that_is_what_it_claims_agrees(cpu: ImageSpec, gpu: ImageSpec) -> None:
    assert (cpu.row, gpu.row) == (8, 8)
    for spec in (cpu, gpu):
        assert find_differences(spec, inventory(spec)) == []
    fields = [{finding.field for finding in compare(spec, inventory(spec))} for spec in (cpu, gpu)]
    assert fields[0] == {
        "release", "pythons", "platform", "numpy", "keras", "constraints", "libraries", "cuda",
    }  # fmt: skip
    assert fields[1] == {*fields[0], "cudnn", "architectures"}


def test_a_post_release_reports_the_version_of_what_it_repeats_and_arm64_its_own_package(named: Named) -> None:
    spec = named("2.15.0.post1-cpu-py3.11")
    assert find_differences(spec, inventory(spec, tensorflow="2.15.0")) == []
    spec = named("2.15.1-cpu-py3.11-arm64")
    assert find_differences(spec, inventory(spec, machine="aarch64")) == []
    (finding,) = find_differences(spec, inventory(spec))
    assert finding == difference("wheels", "platform", "the matrix has aarch64, the image x86_64")


CPU, GPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11"
NUMPY, CUDNN = ">=1.23.5,<2.0.0", ">=8.9.4,<9"
BESIDE = {"/usr/lib/libcudnn.so.8": None, "/usr/lib/libcudart.so.12": "somebody"}
LOWER = {"cuda_compute_capabilities": ["sm_80", "compute_90"]}
WHEELS = {name: f"gpu.libraries (nvidia-{name}-cu12)" for name in ("cublas", "cudnn", "nvshmem")}
ARCHITECTURES = "sm_50, sm_60, sm_70, sm_75, compute_80"
CHANGES: list[tuple[str, dict[str, Any], str, str, str, str]] = [
    (CPU, {"tensorflow": "2.15.0"}, "tensorflow", "release", "2.15.1", "2.15.0"),
    (CPU, {"python": "3.10"}, "wheels.linux/amd64.pythons", "pythons", "3.11", "3.10"),
    (CPU, {"machine": "aarch64"}, "wheels", "platform", "x86_64", "aarch64"),
    (CPU, {"build": {"is_cuda_build": True}}, "gpu", "cuda", "none", "a build for CUDA"),
    (CPU, {"libraries": BESIDE}, "gpu.libraries", "libraries", "none beside them", ", ".join(sorted(BESIDE))),
    (CPU, {"packages": {"tensorflow-cpu": "2.15.0"}}, "tensorflow", "release", "2.15.1", "2.15.0"),
    (CPU, {"packages": {"tensorflow-cpu": None}}, "tensorflow", "release", "2.15.1", "none"),
    (CPU, {"packages": {"numpy": "2.0.0"}}, "numpy", "numpy", NUMPY, "2.0.0"),
    (CPU, {"packages": {"numpy": None}}, "numpy", "numpy", NUMPY, "none"),
    (CPU, {"packages": {"keras": "3.0.0"}}, "keras", "keras", ">=2.15.0,<2.16", "3.0.0"),
    (CPU, {"packages": {"setuptools": "82.0.0"}}, "constraints", "constraints", "<82", "82.0.0"),
    (CPU, {"packages": {"nvidia-cublas-cu12": "12.2"}}, WHEELS["cublas"], "libraries", "none", "12.2"),
    (CPU, {"packages": {"libtpu": "0.1"}}, "gpu.libraries (libtpu)", "libraries", "none", "0.1"),
    (GPU, {"build": {"cuda_version": "12.3"}}, "gpu.cuda", "cuda", "12.2", "12.3"),
    (GPU, {"build": {"cudnn_version": "9"}}, "gpu.cudnn", "cudnn", "8", "9"),
    (GPU, {"build": LOWER}, "gpu.architectures", "architectures", ARCHITECTURES, "sm_80, compute_90"),
    (GPU, {"build": {"is_cuda_build": False}}, "gpu", "cuda", "a build for CUDA", "none"),
    (GPU, {"cudnn": "8.9.2"}, "gpu.cudnn", "cudnn", CUDNN, "8.9.2"),
    (GPU, {"cudnn": "9.0.0"}, "gpu.cudnn", "cudnn", CUDNN, "9.0.0"),
    (GPU, {"cudnn": None}, "gpu.cudnn", "cudnn", CUDNN, "none"),
    (GPU, {"cuda": "12.5"}, "gpu.libraries.toolkit", "libraries", "12.2", "12.5"),
    (GPU, {"cuda": None}, "gpu.libraries.toolkit", "libraries", "12.2", "none"),
    (GPU, {"packages": {"nvidia-cudnn-cu12": "8.9.7"}}, WHEELS["cudnn"], "libraries", "8.9.4.25", "8.9.7"),
    (GPU, {"packages": {"nvidia-cudnn-cu12": None}}, WHEELS["cudnn"], "libraries", "8.9.4.25", "none"),
    (GPU, {"packages": {"nvidia-nvshmem-cu12": "3.2.5"}}, WHEELS["nvshmem"], "libraries", "none", "3.2.5"),
    (GPU, {"libraries": BESIDE}, "gpu.libraries", "libraries", "none beside them", ", ".join(sorted(BESIDE))),
]


@pytest.mark.parametrize(
    ("identifier", "change", "path", "field", "expected", "found"),
    CHANGES,
    ids=[f"{device}: {one[2]} {one[5]}" for one in CHANGES for device in (one[0].split("-")[1],)],
)
def test_what_an_image_holds_and_its_row_does_not_is_reported(
    identifier: str, change: dict[str, Any], path: str, field: str, expected: str, found: str, named: Named
) -> None:
    spec = named(identifier)
    (finding,) = find_differences(spec, inventory(spec, **change))
    assert finding == difference(path, field, f"the matrix has {expected}, the image {found}")


def test_a_constraint_finds_its_package_however_it_is_spelt_and_it_may_be_absent(cpu: ImageSpec) -> None:
    assert find_differences(cpu, inventory(cpu, packages={"setuptools": None})) == []
    spec = replace(cpu, constraints=(Constraint(requirement="ML_Dtypes<0.3", reason="a test"),))
    (finding,) = find_differences(spec, inventory(spec, packages={"ml-dtypes": "0.5.1"}))
    assert finding == difference("constraints", "constraints", "the matrix has <0.3, the image 0.5.1")


def test_build_information_that_an_image_lacks_is_not_stated(gpu: ImageSpec) -> None:
    message = "the build information lacks it"
    assert find_differences(gpu, {**inventory(gpu), "build": {"is_cuda_build": True}}) == [
        FactCheck(path=f"rows[8].gpu.{field}", field=field, verdict="not stated", message=message)
        for field in ("cuda", "cudnn", "architectures")
    ]


@pytest.fixture
def engine(environment: TestEnvironment, gpu: ImageSpec) -> FakeEngine:
    """The engine holds one image, which tells its inventory."""
    environment.docker = engine = FakeEngine(
        names={"some:image": stored_image(identifier=gpu.identifier)},
        story=[out(json.dumps(inventory(gpu))), FINE],
    )
    return engine


CHECK = ("check", "--built", "some:image")
ONE_RELEASE = "RELEASE and --built cannot be combined: an image has one release. Leave RELEASE out."
NO_IMAGE = "--as needs --built. Name the image with --built IMAGE."


def test_the_command_agrees_with_an_image_that_is_what_it_claims(
    tfimg: CliRunner, engine: FakeEngine, workspace: Workspace
) -> None:
    ended = tfimg(*CHECK)
    assert ended.code == 0
    head, row = ended.stdout.splitlines()
    assert head.split()[:2] == ["ROW", "IS"]
    assert row.split()[:2] == ["rows[8]", "2.15.1-cuda12.2-py3.11"]
    (order,) = engine.ran
    assert order.files[SCRIPT][0] == (workspace.images / "inventory.py").read_bytes()


def test_the_command_names_what_an_image_disagrees_on(gpu: ImageSpec, tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.story = [out(json.dumps(inventory(gpu, cudnn="8.9.2"))), FINE]
    finding = difference("gpu.cudnn", "cudnn", "the matrix has >=8.9.4,<9, the image 8.9.2")
    assert tfimg(*CHECK).stderr == (
        "tfimg: The matrix and some:image disagree on 1 fact:\n"
        f"  {finding.path}: {finding.message}\n"
        "Build 2.15.1-cuda12.2-py3.11 again, or correct matrix.yaml.\n"
    )
    ended = tfimg(*CHECK, "--json")
    found, error = ended.documents
    assert (found["image"], found["identifier"]) == ("some:image", "2.15.1-cuda12.2-py3.11")
    assert [one for one in found["findings"] if one["verdict"] != "agrees"] == [asdict(finding)]
    assert (ended.code, error["error"], error["exit_code"]) == (1, "MatrixMismatch", 1)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["2.15", "--built", "some:image"], 2, ONE_RELEASE),
        (["--as", "2.15.1-cpu-py3.11"], 2, NO_IMAGE),
        (["--built", "other:image"], 3, "The engine has no image other:image. Build or pull it first."),
    ],
)
@pytest.mark.usefixtures("engine")
def test_what_the_command_cannot_compare_is_refused(options: list[str], code: int, told: str, tfimg: CliRunner) -> None:
    assert tfimg("check", *options).refusal(code) == told


@pytest.fixture(scope="module")
def script(workspace: Workspace) -> dict[str, Any]:
    """What images/inventory.py defines; it does nothing when it is only read."""
    return runpy.run_path(str(workspace.images / "inventory.py"))


def test_the_script_imports_nothing_but_the_standard_library_at_first(workspace: Workspace) -> None:
    tree = ast.parse((workspace.images / "inventory.py").read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported < set(sys.stdlib_module_names)


CUDNN_NUMBERS = {
    8100: "8.1.0",
    8600: "8.6.0",
    8904: "8.9.4",
    90300: "9.3.0",
    91002: "9.10.2",
    100000: "10.0.0",
}
CUDA_NUMBERS = {11020: "11.2", 11080: "11.8", 12020: "12.2", 12050: "12.5", 13000: "13.0"}


@pytest.mark.parametrize(("function", "versions"), [("cudnn_version", CUDNN_NUMBERS), ("cuda_version", CUDA_NUMBERS)])
def test_a_number_is_read_as_its_header_says(function: str, versions: dict[int, str], script: dict[str, Any]) -> None:
    assert {number: script[function](number) for number in versions} == versions


def test_an_accelerators_libraries_are_known_by_name(script: dict[str, Any]) -> None:
    known = [
        *("libcudnn.so.8", "libcudnn_ops_infer.so.8", "libcuda.so.1", "libcudart.so.12", "libcublasLt.so.12"),
        *("libnvJitLink.so.12", "libnvrtc-builtins.so.12.2", "libnccl.so.2", "libtpu.so"),
    ]
    others = ["libcurl.so.4", "libcups.so.2", "libtensorflow_cc.so.2", "libnvidia.txt"]
    assert [name for name in (*known, *others) if script["LIBRARY"].match(name)] == known


def test_without_libraries_no_version_is_reported(script: dict[str, Any]) -> None:
    for paths in ({}, {"/nowhere/libcudnn.so.8": None, "/nowhere/libcudart.so.12": None}):
        assert (script["cudnn"](paths), script["cuda"](paths)) == (None, None)

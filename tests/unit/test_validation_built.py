"""What an image holds, taken from inside, beside the row that it claims."""

from __future__ import annotations

import ast
import json
import runpy
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from tfimg.engine.protocol import Exit, Line
from tfimg.errors import EngineUnavailable, ValidationBroken
from tfimg.matrix.schema import Constraint
from tfimg.matrix.spec import ImageSpec
from tfimg.proof.check import Finding
from tfimg.validation.built import SCRIPT, compare, take_inventory
from tfimg.workspace import Workspace

FINE = Exit(status=0, out_of_memory=False)


def out(text: str) -> Line:
    return Line(stream="stdout", text=text)


def err(text: str) -> Line:
    return Line(stream="stderr", text=text)


def test_the_inventory_is_the_last_line_of_standard_output() -> None:
    engine = FakeEngine(
        story=[
            err("a warning"),
            out("a library says hello"),
            out('{"python": "3.11"}'),
            out(""),
            err("bye"),
            FINE,
        ]
    )
    assert take_inventory("some:image", b"print()", engine=engine) == {"python": "3.11"}
    (order,) = engine.ran
    assert (order.image, order.command) == ("some:image", ["python", SCRIPT])
    assert order.files == {SCRIPT: (b"print()", 0o444)}
    assert engine.open_containers == 0


@pytest.mark.parametrize(
    ("story", "why"),
    [
        ([out("{}"), out("not JSON"), FINE], "and ended with status 0: not JSON"),
        ([out("[1]"), FINE], "and ended with status 0: [1]"),
        ([FINE], "and ended with status 0: it said nothing"),
        (
            [
                out("{}"),
                err("ModuleNotFoundError: No module named 'tensorflow'"),
                Exit(status=1, out_of_memory=False),
            ],
            "and ended with status 1: ModuleNotFoundError: No module named 'tensorflow'",
        ),
        ([out("{}"), err("loading"), TimeoutError()], "in 300 s: loading"),
        ([TimeoutError()], "in 300 s: it said nothing"),
    ],
    ids=["garbage", "list", "silent", "status", "late", "late-and-silent"],
)
def test_an_image_that_cannot_say_what_it_holds_is_told_with_its_last_word(
    story: Sequence[Line | Exit | BaseException], why: str
) -> None:
    engine = FakeEngine(story=story)
    with pytest.raises(ValidationBroken) as caught:
        take_inventory("some:image", b"", engine=engine)
    assert str(caught.value) == (
        f"some:image could not tell what it holds {why}. Look inside with `docker run --rm -it some:image python`."
    )
    assert engine.open_containers == 0


def test_an_engine_that_goes_away_is_told_as_such() -> None:
    gone = EngineUnavailable("The engine went away.", next_step="Start it.")
    with pytest.raises(EngineUnavailable):
        take_inventory("some:image", b"", engine=FakeEngine(story=[out("{}"), gone]))


@pytest.fixture
def cpu(named: Callable[[str], ImageSpec]) -> ImageSpec:
    return named("2.15.1-cpu-py3.11")


@pytest.fixture
def gpu(named: Callable[[str], ImageSpec]) -> ImageSpec:
    return named("2.15.1-cuda12.2-py3.11")


SITE = "/usr/local/lib/python3.11/site-packages/nvidia"


def inventory(spec: ImageSpec, **other: Any) -> dict[str, Any]:
    """What an image of a spec holds, but for some things."""
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
        held |= {
            "build": {
                "is_cuda_build": True,
                "cuda_version": "12.2",
                "cudnn_version": "8",
                "cuda_compute_capabilities": list(spec.gpu.architectures),
            },
            "libraries": {
                f"{SITE}/cudnn/lib/libcudnn.so.8": "nvidia-cudnn-cu12",
                f"{SITE}/nccl/lib/libnccl.so.2": "nvidia_nccl_cu12",
            },
            "cudnn": "8.9.4",
            "cuda": "12.2",
        }
    return held | other


def unlike(spec: ImageSpec, held: dict[str, Any]) -> list[Finding]:
    return [finding for finding in compare(spec, held) if finding.verdict != "agrees"]


def wrong(path: str, field: str, told: str) -> Finding:
    return Finding(path=f"rows[8].{path}", field=field, verdict="disagrees", told=told)


def test_an_image_that_is_what_it_claims_agrees(cpu: ImageSpec, gpu: ImageSpec) -> None:
    assert (cpu.row, gpu.row) == (8, 8)
    for spec in (cpu, gpu):
        assert unlike(spec, inventory(spec)) == []
    fields = [{finding.field for finding in compare(spec, inventory(spec))} for spec in (cpu, gpu)]
    assert fields[0] == {
        "release", "pythons", "platform", "numpy", "keras", "constraints", "libraries", "cuda",
    }  # fmt: skip
    assert fields[1] == {*fields[0], "cudnn", "architectures"}


def test_a_post_release_tells_the_version_of_what_it_repeats(named: Callable[[str], ImageSpec]) -> None:
    spec = named("2.15.0.post1-cpu-py3.11")
    assert unlike(spec, inventory(spec, tensorflow="2.15.0")) == []


def test_an_image_for_arm64_holds_the_package_of_arm64(named: Callable[[str], ImageSpec]) -> None:
    spec = named("2.15.1-cpu-py3.11-arm64")
    assert unlike(spec, inventory(spec, machine="aarch64")) == []
    assert unlike(spec, inventory(spec)) == [
        wrong("wheels", "platform", "the matrix has aarch64, the image x86_64")
    ]


CPU_CHANGES: list[tuple[dict[str, Any], Finding]] = [
    ({"tensorflow": "2.15.0"}, wrong("tensorflow", "release", "the matrix has 2.15.1, the image 2.15.0")),
    (
        {"python": "3.10"},
        wrong("wheels.linux/amd64.pythons", "pythons", "the matrix has 3.11, the image 3.10"),
    ),
    ({"machine": "aarch64"}, wrong("wheels", "platform", "the matrix has x86_64, the image aarch64")),
    (
        {"build": {"is_cuda_build": True}},
        wrong("gpu", "cuda", "the matrix has none, the image a build for CUDA"),
    ),
    (
        {"libraries": {"/usr/lib/libcudnn.so.8": None, "/usr/lib/libcudart.so.12": "somebody"}},
        wrong(
            "gpu.libraries",
            "libraries",
            "the matrix has none beside them, the image /usr/lib/libcudart.so.12, /usr/lib/libcudnn.so.8",
        ),
    ),
]


@pytest.mark.parametrize(("change", "finding"), CPU_CHANGES, ids=lambda value: getattr(value, "field", ""))
def test_a_cpu_image_that_is_something_else_is_told(
    change: dict[str, Any], finding: Finding, cpu: ImageSpec
) -> None:
    assert unlike(cpu, inventory(cpu, **change)) == [finding]


@pytest.mark.parametrize(
    ("package", "version", "finding"),
    [
        (
            "tensorflow-cpu",
            "2.15.0",
            wrong("tensorflow", "release", "the matrix has 2.15.1, the image 2.15.0"),
        ),
        ("tensorflow-cpu", None, wrong("tensorflow", "release", "the matrix has 2.15.1, the image none")),
        ("numpy", "2.0.0", wrong("numpy", "numpy", "the matrix has >=1.23.5,<2.0.0, the image 2.0.0")),
        ("numpy", None, wrong("numpy", "numpy", "the matrix has >=1.23.5,<2.0.0, the image none")),
        ("keras", "3.0.0", wrong("keras", "keras", "the matrix has >=2.15.0,<2.16, the image 3.0.0")),
        ("setuptools", "82.0.0", wrong("constraints", "constraints", "the matrix has <82, the image 82.0.0")),
        (
            "nvidia-cublas-cu12",
            "12.2.5.6",
            wrong(
                "gpu.libraries (nvidia-cublas-cu12)", "libraries", "the matrix has none, the image 12.2.5.6"
            ),
        ),
        ("libtpu", "0.1", wrong("gpu.libraries (libtpu)", "libraries", "the matrix has none, the image 0.1")),
    ],
)
def test_a_package_of_a_cpu_image_that_does_not_fit_is_told(
    package: str, version: str | None, finding: Finding, cpu: ImageSpec
) -> None:
    packages = {**inventory(cpu)["packages"], package: version}
    held = {name: one for name, one in packages.items() if one is not None}
    assert unlike(cpu, inventory(cpu, packages=held)) == [finding]


def test_what_a_constraint_is_about_may_be_absent(cpu: ImageSpec) -> None:
    packages = {name: one for name, one in inventory(cpu)["packages"].items() if name != "setuptools"}
    assert unlike(cpu, inventory(cpu, packages=packages)) == []


def test_a_constraint_finds_its_package_however_it_is_spelt(cpu: ImageSpec) -> None:
    spec = replace(cpu, constraints=(Constraint(requirement="ML_Dtypes<0.3", reason="a test"),))
    packages = {**inventory(cpu)["packages"], "ml-dtypes": "0.5.1"}
    assert unlike(spec, inventory(spec, packages=packages)) == [
        wrong("constraints", "constraints", "the matrix has <0.3, the image 0.5.1")
    ]


@pytest.mark.parametrize(
    ("build", "finding"),
    [
        ({"cuda_version": "12.3"}, wrong("gpu.cuda", "cuda", "the matrix has 12.2, the image 12.3")),
        ({"cudnn_version": "9"}, wrong("gpu.cudnn", "cudnn", "the matrix has 8, the image 9")),
        (
            {"cuda_compute_capabilities": ["sm_80", "compute_90"]},
            wrong(
                "gpu.architectures",
                "architectures",
                "the matrix has sm_50, sm_60, sm_70, sm_75, compute_80, the image sm_80, compute_90",
            ),
        ),
        ({"is_cuda_build": False}, wrong("gpu", "cuda", "the matrix has a build for CUDA, the image none")),
    ],
    ids=["cuda", "cudnn", "architectures", "not-cuda"],
)
def test_other_build_information_of_a_gpu_image_is_told(
    build: dict[str, Any], finding: Finding, gpu: ImageSpec
) -> None:
    assert unlike(gpu, inventory(gpu, build={**inventory(gpu)["build"], **build})) == [finding]


def test_build_information_that_an_image_lacks_is_not_stated(gpu: ImageSpec) -> None:
    told = "the build information lacks it"
    assert unlike(gpu, inventory(gpu, build={"is_cuda_build": True})) == [
        Finding(path=f"rows[8].gpu.{field}", field=field, verdict="not stated", told=told)
        for field in ("cuda", "cudnn", "architectures")
    ]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"cudnn": "8.9.2"}, wrong("gpu.cudnn", "cudnn", "the matrix has >=8.9.4,<9, the image 8.9.2")),
        ({"cudnn": "9.0.0"}, wrong("gpu.cudnn", "cudnn", "the matrix has >=8.9.4,<9, the image 9.0.0")),
        ({"cudnn": None}, wrong("gpu.cudnn", "cudnn", "the matrix has >=8.9.4,<9, the image none")),
        (
            {"cuda": "12.5"},
            wrong("gpu.libraries.toolkit", "libraries", "the matrix has 12.2, the image 12.5"),
        ),
        ({"cuda": None}, wrong("gpu.libraries.toolkit", "libraries", "the matrix has 12.2, the image none")),
    ],
)
def test_a_library_that_tells_another_version_is_told(
    change: dict[str, Any], finding: Finding, gpu: ImageSpec
) -> None:
    assert unlike(gpu, inventory(gpu, **change)) == [finding]


@pytest.mark.parametrize(("version", "told"), [("8.9.7.29", "8.9.7.29"), (None, "none")])
def test_an_nvidia_wheel_that_is_another_or_missing_is_told(
    version: str | None, told: str, gpu: ImageSpec
) -> None:
    packages = {**inventory(gpu)["packages"], "nvidia-cudnn-cu12": version}
    held = {name: one for name, one in packages.items() if one is not None}
    path = "gpu.libraries (nvidia-cudnn-cu12)"
    assert unlike(gpu, inventory(gpu, packages=held)) == [
        wrong(path, "libraries", f"the matrix has 8.9.4.25, the image {told}")
    ]


def test_an_nvidia_wheel_that_nobody_asked_for_is_told(gpu: ImageSpec) -> None:
    packages = {**inventory(gpu)["packages"], "nvidia-nvshmem-cu12": "3.2.5"}
    path = "gpu.libraries (nvidia-nvshmem-cu12)"
    assert unlike(gpu, inventory(gpu, packages=packages)) == [
        wrong(path, "libraries", "the matrix has none, the image 3.2.5")
    ]


def test_a_library_beside_those_of_the_wheels_is_told(gpu: ImageSpec) -> None:
    beside = {**inventory(gpu)["libraries"], "/usr/lib/x86_64-linux-gnu/libcudnn.so.9": None}
    told = "the matrix has none beside them, the image /usr/lib/x86_64-linux-gnu/libcudnn.so.9"
    assert unlike(gpu, inventory(gpu, libraries=beside)) == [wrong("gpu.libraries", "libraries", told)]


@pytest.fixture
def engine(environment: TestEnvironment, gpu: ImageSpec) -> FakeEngine:
    """The engine holds one image, which tells its inventory."""
    environment.docker = engine = FakeEngine(
        names={"some:image": stored_image(identifier=gpu.identifier)},
        story=[out(json.dumps(inventory(gpu))), FINE],
    )
    return engine


CHECK = ("matrix", "check", "--built", "some:image")


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


def test_the_command_names_what_an_image_disagrees_on(
    gpu: ImageSpec, tfimg: CliRunner, engine: FakeEngine
) -> None:
    engine.story = [out(json.dumps(inventory(gpu, cudnn="8.9.2"))), FINE]
    finding = wrong("gpu.cudnn", "cudnn", "the matrix has >=8.9.4,<9, the image 8.9.2")
    ended = tfimg(*CHECK)
    assert (ended.code, ended.stderr) == (
        30,
        "tfimg: The matrix and some:image disagree on 1 fact:\n"
        f"  {finding.path}: {finding.told}\n"
        "Build 2.15.1-cuda12.2-py3.11 anew, or correct matrix.yaml.\n",
    )
    ended = tfimg(*CHECK, "--json")
    found, error = ended.documents
    assert (found["image"], found["identifier"]) == ("some:image", "2.15.1-cuda12.2-py3.11")
    assert [one for one in found["findings"] if one["verdict"] != "agrees"] == [asdict(finding)]
    assert (ended.code, error["error"], error["exit_code"]) == (30, "Disagreement", 30)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["2.15", "--built", "some:image"],
            "An image is of one release, which it names itself. Leave RELEASE out.",
        ),
        (["--as", "2.15.1-cpu-py3.11"], "--as says what an image claims to be. Name the image with --built."),
        (["--built", "other:image"], "The engine has no image other:image. Build or pull it first."),
    ],
)
@pytest.mark.usefixtures("engine")
def test_what_the_command_cannot_compare_is_refused(options: list[str], told: str, tfimg: CliRunner) -> None:
    ended = tfimg("matrix", "check", *options)
    assert (ended.code, ended.stderr) == (2, f"tfimg: {told}\n")


@pytest.fixture(scope="module")
def script(workspace: Workspace) -> dict[str, Any]:
    """What images/inventory.py defines; it does nothing when it is only read."""
    return runpy.run_path(str(workspace.images / "inventory.py"))


def test_the_script_is_python_3_8_and_imports_nothing_but_the_standard_library_at_first(
    workspace: Workspace,
) -> None:
    """3.7 too, by its grammar: images of 2.10 have it."""
    for minor in (7, 8):
        tree = ast.parse((workspace.images / "inventory.py").read_text(), feature_version=(3, minor))
    imported = {
        name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        )
    }
    assert imported == {
        "ctypes",
        "json",
        "os",
        "pathlib",
        "platform",
        "re",
        "subprocess",
        "importlib.metadata",
    }


@pytest.mark.parametrize(
    ("number", "version"),
    [
        (8100, "8.1.0"),
        (8600, "8.6.0"),
        (8904, "8.9.4"),
        (90300, "9.3.0"),
        (91002, "9.10.2"),
        (100000, "10.0.0"),
    ],
)
def test_cudnns_number_is_read_as_its_header_says(number: int, version: str, script: dict[str, Any]) -> None:
    assert script["cudnn_version"](number) == version


@pytest.mark.parametrize(
    ("number", "version"),
    [(11020, "11.2"), (11080, "11.8"), (12020, "12.2"), (12050, "12.5"), (13000, "13.0")],
)
def test_cudas_number_is_read_as_its_header_says(number: int, version: str, script: dict[str, Any]) -> None:
    assert script["cuda_version"](number) == version


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("libcudnn.so.8", True),
        ("libcudnn_ops_infer.so.8", True),
        ("libcuda.so.1", True),
        ("libcudart.so.12", True),
        ("libcublasLt.so.12", True),
        ("libnvJitLink.so.12", True),
        ("libnvrtc-builtins.so.12.2", True),
        ("libnccl.so.2", True),
        ("libtpu.so", True),
        ("libcurl.so.4", False),
        ("libcups.so.2", False),
        ("libtensorflow_cc.so.2", False),
        ("libnvidia.txt", False),
    ],
)
def test_an_accelerators_libraries_are_known_by_name(name: str, counts: bool, script: dict[str, Any]) -> None:
    assert (script["LIBRARY"].match(name) is not None) == counts


def test_without_libraries_no_version_is_told(script: dict[str, Any]) -> None:
    for paths in ({}, {"/nowhere/libcudnn.so.8": None, "/nowhere/libcudart.so.12": None}):
        assert (script["cudnn"](paths), script["cuda"](paths)) == (None, None)


def test_what_it_prints_is_read_back() -> None:
    held = {"libraries": {"/a b/ü.so": None}}
    engine = FakeEngine(story=[out(json.dumps(held)), FINE])
    assert take_inventory("some:image", b"", engine=engine) == held

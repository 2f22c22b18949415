"""GPU and TPU images on a machine without either: built, proven as far as that goes, and every planted fault caught."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from support.cli import CliResult, run_tfimg
from support.planted_faults import red, selftest, spec_of, with_fault, with_packages
from tfimg.engine.docker import DockerEngine

from .conftest import REPOSITORY

GPU = spec_of("2.15.1-cuda12.2-py3.11")
TPU = spec_of("2.20.0-tpu-py3.11")
LINKED = ("libraries.*", "compiler.*")
NVIDIA = "N=/opt/tensorflow/lib/python3.11/site-packages/nvidia"


@pytest.fixture(scope="session")
def gpu(engine: DockerEngine) -> CliResult:
    """The GPU image of the README, really built."""
    assert engine
    return _built("--tf", "2.15", "--cuda", "12")


@pytest.fixture(scope="session")
def tpu(engine: DockerEngine) -> CliResult:
    assert engine
    return _built("--tf", "2.20", "--device", "tpu")


def _built(*request: str) -> CliResult:
    ended = run_tfimg(
        "build", *request, "--base", "bootstrap", "--repository", REPOSITORY, "--level", "linked", "--json"
    )
    assert ended.code == 0, ended.stderr
    return ended


def test_a_gpu_image_is_linked(gpu: CliResult) -> None:
    report = gpu.documents[-1]["report"]
    assert (report["passed"], report["level"], report["problem"]) == (True, "linked", None)
    assert {one["outcome"] for one in report["results"]} == {"passed"}
    assert {"libraries.gate", "compiler.ptxas"} <= {one["check"] for one in report["results"]}
    assert "gpu.visible" in report["unproven"]


def test_a_gpu_image_has_its_layers_and_variables(gpu: CliResult, engine: DockerEngine) -> None:
    document = gpu.documents[-1]
    sizes = sorted((layer["size"] for layer in document["layers"]), reverse=True)
    # TensorFlow, cuDNN, cuBLAS, the solvers and the rest of CUDA, each by itself.
    assert all(size > 50_000_000 for size in sizes[:5])
    settings = engine._client.images.get(document["tags"][0]).attrs["Config"]["Env"]
    variables = dict(setting.split("=", 1) for setting in settings)
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert variables["NVIDIA_REQUIRE_CUDA"] == "cuda>=12.0"
    assert "LD_LIBRARY_PATH" not in variables


REMOVED = {
    "cusolver": ("cusolver/lib/libcusolver.so.11", "libraries.gate"),
    "cufft": ("cufft/lib/libcufft.so.11", "libraries.gate"),
    "nvjitlink": ("nvjitlink/lib/libnvJitLink.so.12", "libraries.gate"),
    "nccl": ("nccl/lib/libnccl.so.2", "libraries.gate"),
    # TensorFlow 2.15 does not open it; programs in the image may.
    "curand": ("curand/lib/libcurand.so.10", "libraries.complete"),
    "cudnn_cnn_infer": ("cudnn/lib/libcudnn_cnn_infer.so.8", "libraries.cudnn"),
    "ptxas": ("cuda_nvcc/bin/ptxas", "compiler.ptxas"),
    "libdevice": ("cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "compiler.libdevice"),
    "libnvvm": ("cuda_nvcc/nvvm/lib64/libnvvm.so", "compiler.libdevice"),
}


@pytest.mark.parametrize("fault", REMOVED)
def test_what_was_removed_is_missed(gpu: CliResult, engine: DockerEngine, fault: str) -> None:
    path, check = REMOVED[fault]
    results = with_fault(engine, gpu.documents[-1]["tags"][0], GPU, f"{NVIDIA}; rm $N/{path}", LINKED)
    assert {check, "libraries.complete"} <= red(results), results


PLANTED = {
    "an empty libdevice": (": >$N/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "compiler.libdevice"),
    "a libdevice of text": (
        "yes text | head -c 483688 >$N/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "compiler.libdevice",
    ),
    "a stub of libcuda": (
        "cp /usr/lib/x86_64-linux-gnu/libz.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.1; ldconfig",
        "libraries.driver_stub",
    ),
    "a second cuBLAS": ("cp $N/cublas/lib/libcublas.so.12 /usr/local/lib/; ldconfig", "libraries.origin"),
    "an LD_LIBRARY_PATH elsewhere": (
        "mkdir /opt/cuda; cp $N/cufft/lib/libcufft.so.11 /opt/cuda; export LD_LIBRARY_PATH=/opt/cuda",
        "libraries.origin",
    ),
    "no configuration of the loader": ("rm /etc/ld.so.conf.d/nvidia.conf; ldconfig", "libraries.gate"),
    "another ptxas first on PATH": (
        "mkdir /opt/old; cp $N/cuda_nvcc/bin/ptxas /opt/old; export PATH=/opt/old:$PATH", "compiler.ptxas",
    ),
    "a ptxas that does not run": ("chmod -x $N/cuda_nvcc/bin/ptxas", "compiler.ptxas"),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_what_was_planted_is_found(gpu: CliResult, engine: DockerEngine, fault: str) -> None:
    script, check = PLANTED[fault]
    results = with_fault(engine, gpu.documents[-1]["tags"][0], GPU, f"{NVIDIA}; {script}", LINKED)
    assert check in red(results), results


def test_nothing_is_red_where_nothing_was_planted(gpu: CliResult, engine: DockerEngine) -> None:
    assert red(with_fault(engine, gpu.documents[-1]["tags"][0], GPU, "", LINKED)) == set()


def test_a_gpu_that_is_hidden_is_a_failure_where_one_is_required(
    gpu: CliResult, engine: DockerEngine
) -> None:
    """There is none on this machine, and CUDA_VISIBLE_DEVICES hides one where there is."""
    image = gpu.documents[-1]["tags"][0]
    checks = ("devices.listing", "gpu.visible")
    results = with_fault(engine, image, GPU, "export CUDA_VISIBLE_DEVICES=-1", checks, level="validated")
    assert red(results) == {"gpu.visible"}
    assert results["devices.listing"]["reason"] == "TensorFlow lists no GPU; see gpu.visible"
    assert [one["fault"] for one in results["gpu.visible"]["explained"]] == ["host"]
    assert "CUDA_VISIBLE_DEVICES" in results["gpu.visible"]["reason"]


@pytest.mark.parametrize(
    ("options", "signature"), [([], "no-gpu"), (["--device=/dev/null:/dev/nvidia0"], "no-toolkit")]
)
def test_the_self_test_says_why_this_machine_has_no_gpu(
    gpu: CliResult, engine: DockerEngine, options: list[str], signature: str
) -> None:
    done = selftest(engine, gpu.documents[-1]["tags"][0], *options)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, events[-1]["fault"]) == (6, "host"), events[-1]
    results = {event["check"]: event for event in events if event["event"] == "end"}
    assert red(results) == {"gpu.visible"}
    assert [one["signature"] for one in results["gpu.visible"]["explained"]] == [signature]
    # What needs no GPU was proven all the same.
    assert {"libraries.gate", "compiler.ptxas", "saving.checkpoint"} <= {
        name for name, event in results.items() if event["outcome"] == "passed"
    }


INSTALL = "pip install --quiet --no-deps --root-user-action=ignore"
PACKAGES = {
    "cudnn9": (f"{INSTALL} nvidia-cudnn-cu12==9.1.0.70", "libraries.gate"),
    "cudnn-too-old": (f"{INSTALL} nvidia-cudnn-cu12==8.9.2.26", "libraries.cudnn"),
    "cpu-wheel": (
        f"pip uninstall --quiet --yes tensorflow; {INSTALL} tensorflow-cpu==2.15.1", "environment.tensorflow_version",
    ),
    "numpy2": (f"{INSTALL} numpy==2.0.2", "environment.import_tensorflow"),
    "wrong-cuda": (
        f"{INSTALL} --target /opt/cuda-12.1 nvidia-cuda-runtime-cu12==12.1.105\n"
        "export LD_LIBRARY_PATH=/opt/cuda-12.1/nvidia/cuda_runtime/lib",
        "libraries.versions",
    ),
}  # fmt: skip


def test_packages_that_do_not_fit_are_found(gpu: CliResult, engine: DockerEngine, tmp_path: Path) -> None:
    found = with_packages(
        engine, gpu.documents[-1]["tags"][0], GPU, {name: script for name, (script, _) in PACKAGES.items()},
        ("environment.*", *LINKED), tmp_path,
    )  # fmt: skip
    assert {name: check in red(found[name]) for name, (_, check) in PACKAGES.items()} == dict.fromkeys(
        PACKAGES, True
    )
    assert "libraries.origin" in red(found["wrong-cuda"])
    assert "environment.build_info" in red(found["cpu-wheel"])
    # A gate that is not there is never green.
    assert found["cpu-wheel"]["libraries.gate"]["outcome"] in {"failed", "skipped"}


def test_a_tpu_image_is_linked(tpu: CliResult) -> None:
    report = tpu.documents[-1]["report"]
    assert (report["passed"], report["level"], report["problem"]) == (True, "linked", None)
    evidence = {one["check"]: one["evidence"] for one in report["results"]}
    assert evidence["tpu.pair"]["libtpu"] == TPU.libtpu
    assert not [name for name in evidence["devices.listing"]["logical"] if ":TPU:" in name]


def test_a_libtpu_that_is_no_pair_is_found(tpu: CliResult, engine: DockerEngine, tmp_path: Path) -> None:
    """pip accepts it: tensorflow-tpu 2.20.0 asks for any 0.0.x from 0.0.14 on."""
    faults = {"libtpu": f"{INSTALL} libtpu==0.0.23"}
    found = with_packages(
        engine, tpu.documents[-1]["tags"][0], TPU, faults, ("environment.*", "tpu.*"), tmp_path
    )
    assert {"tpu.pair", "environment.packages"} <= red(found["libtpu"])
    assert "environment.pip_check" not in red(found["libtpu"])


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with a wheel that is called like the one upstream keeps elsewhere, and is not it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    tag = "py3-none-manylinux_2_17_x86_64"
    with zipfile.ZipFile(folder / f"libtpu-2.17.1-{tag}.whl", "w") as wheel:
        wheel.writestr("libtpu/__init__.py", "")
        wheel.writestr("libtpu/libtpu.so", "no library")
        info = "libtpu-2.17.1.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: libtpu\nVersion: 2.17.1\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: hand\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def test_a_libtpu_that_was_supplied_is_installed_and_judged(engine: DockerEngine, wheels: Path) -> None:
    """Upstream's own cannot be had from a package index, so this one must fail, and at the right check."""
    assert engine
    request = ("build", "--tf", "2.17", "--device", "tpu", "--base", "bootstrap", "--repository", REPOSITORY)
    refused = run_tfimg(*request)
    assert (refused.code, "--find-links DIR supplies it" in refused.stderr) == (41, True), refused.stderr
    empty = run_tfimg(*request, "--find-links", str(wheels.parent))
    assert (empty.code, "has no libtpu-2.17.1-" in empty.stderr) == (5, True), empty.stderr
    ended = run_tfimg(*request, "--find-links", str(wheels))
    assert (ended.code, "tpu.library failed" in ended.stderr) == (20, True), ended.stderr
    assert "tpu.pair failed" not in ended.stderr


def test_a_tpu_image_without_its_library(tpu: CliResult, engine: DockerEngine) -> None:
    script = "rm /opt/tensorflow/lib/python3.11/site-packages/libtpu/libtpu.so"
    assert "tpu.library" in red(with_fault(engine, tpu.documents[-1]["tags"][0], TPU, script, ("tpu.*",)))

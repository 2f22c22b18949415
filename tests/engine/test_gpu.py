"""A GPU image on a machine without a GPU: built, proven as far as that goes, and every planted fault caught.

Its release changes from day to day; the head of the test run says which it is.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.planted_faults import (
    Results,
    checks_that_did_not_pass,
    checks_that_ended,
    selftest,
    with_fault,
    with_packages,
)
from tfimg.core.levels import Level
from tfimg.engine.docker import DockerEngine

from .conftest import Built

pytestmark = [pytest.mark.full, pytest.mark.group("gpu")]

LINKED = ("libraries.*", "compiler.*", "environment.integrity")
NVIDIA = "N=/opt/tensorflow/lib/python3/site-packages/nvidia"

Plant = Callable[[str], Results]


@pytest.fixture
def plant(gpu: Built, engine: DockerEngine, tmp_path: Path) -> Plant:
    """Runs a script as root in a container of the image, and then the checks of what is linked."""
    return lambda script: with_fault(engine, gpu.name, gpu.spec, f"{NVIDIA}\n{script}", LINKED, folder=tmp_path)


def test_a_gpu_image_passes_the_full_suite_as_far_as_it_is_linked(gpu: Built) -> None:
    report = gpu.report
    assert (report["passed"], report["level"], report["problem"]) == (True, "linked", None)
    assert {one["outcome"] for one in report["results"]} == {"passed"}
    assert {"libraries.gate", "compiler.ptxas", "tools.commands"} <= {one["check"] for one in report["results"]}
    assert "gpu.visible" in report["unproven"]


def test_a_gpu_image_has_its_layers_and_variables(gpu: Built, engine: DockerEngine) -> None:
    sizes = sorted((layer["size"] for layer in gpu.document["layers"]), reverse=True)
    # TensorFlow, cuDNN, cuBLAS, the solvers and the rest of CUDA, each by itself.
    assert all(size > 50_000_000 for size in sizes[:5])
    settings = engine.client.images.get(gpu.name).attrs["Config"]["Env"]
    variables = dict(setting.split("=", 1) for setting in settings)
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert variables["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert variables["NVIDIA_REQUIRE_CUDA"] == "cuda>=12.0"
    assert "LD_LIBRARY_PATH" not in variables


# Script, the check that fails, and a word of its reason; no two of a container hide each other.
FAULTS = {
    "files removed": [
        ("rm $N/cusolver/lib/libcusolver.so.11", "libraries.gate", "cusolver"),
        ("rm $N/cufft/lib/libcufft.so.11", "libraries.gate", "cufft"),
        # cuSPARSE needs it.
        ("rm $N/nvjitlink/lib/libnvJitLink.so.12", "libraries.gate", "cusparse"),
        ("rm $N/nccl/lib/libnccl.so.2", "libraries.gate", "nccl"),
        ("rm $N/cudnn/lib/libcudnn_cnn.so.9", "libraries.cudnn", "cnnversioncheck"),
        # TensorFlow does not open it; programs in the image may.
        ("rm $N/curand/lib/libcurand.so.10", "environment.integrity", ""),
        ("rm $N/cuda_nvcc/bin/ptxas", "compiler.ptxas", ""),
        ("rm $N/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "compiler.libdevice", "libdevice"),
    ],
    "files added": [
        (
            "cp /usr/lib/x86_64-linux-gnu/libz.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.1; ldconfig",
            "libraries.driver_stub",
            "libcuda.so.1",
        ),
        ("cp $N/cublas/lib/libcublas.so.12 /usr/local/lib/; ldconfig", "libraries.origin", "/usr/local/lib/"),
        (
            "mkdir /opt/old; cp $N/cuda_nvcc/bin/ptxas /opt/old; export PATH=/opt/old:$PATH",
            "compiler.ptxas",
            "/opt/old",
        ),
        ("rm $N/cuda_nvcc/nvvm/lib64/libnvvm.so", "compiler.libdevice", "libnvvm"),
    ],
    "files changed": [
        (": >$N/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "compiler.libdevice", "found 0 bytes"),
        (
            "mkdir /opt/cuda; cp $N/cufft/lib/libcufft.so.11 /opt/cuda; export LD_LIBRARY_PATH=/opt/cuda",
            "libraries.origin",
            "ld_library_path is '/opt/cuda'",
        ),
        ("chmod -x $N/cuda_nvcc/bin/ptxas", "compiler.ptxas", "ptxas"),
    ],
    # Neither changes what TensorFlow or another check sees.
    "bytes changed": [
        (
            "dd if=/dev/zero of=$N/cublas/lib/libcublasLt.so.12 bs=1M seek=100 count=8 conv=notrunc",
            "environment.integrity",
            "libcublaslt.so.12 has the hash",
        ),
        (
            "F=$N/../tensorflow/libtensorflow_cc.so.2; dd if=/dev/urandom of=$F bs=1 count=64 conv=notrunc "
            "seek=$(($(stat --format=%s $F) - 4096))",
            "environment.integrity",
            "libtensorflow_cc.so.2 has the hash",
        ),
    ],
    "settings changed": [
        ("yes text | head -c 483688 >$N/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "compiler.libdevice", "b'text'"),
        ("rm /etc/ld.so.conf.d/nvidia.conf; ldconfig", "libraries.gate", ""),
    ],
}


@pytest.mark.parametrize("container", FAULTS)
def test_each_of_many_planted_faults_is_named(plant: Plant, container: str) -> None:
    results = plant("\n".join(script for script, _, _ in FAULTS[container]))
    for script, check, word in FAULTS[container]:
        assert check in checks_that_ended(results, "failed"), (script, results)
        assert word in results[check]["reason"].lower(), (script, results[check])
    if container == "files removed":
        problems = results["environment.integrity"]["measured"]["problems"]
        assert {problem.rpartition("/")[2] for problem in problems} == {
            f"{script.rpartition('/')[2]} is missing" for script, _, _ in FAULTS[container]
        }


def test_nothing_is_red_where_nothing_was_planted(plant: Plant) -> None:
    results = plant("")
    assert checks_that_ended(results, "passed") == set(results)
    assert {check for faults in FAULTS.values() for _, check, _ in faults} <= set(results)


def test_a_gpu_that_is_hidden_is_a_failure_where_one_is_required(
    gpu: Built, engine: DockerEngine, tmp_path: Path
) -> None:
    """There is none on this machine, and CUDA_VISIBLE_DEVICES hides one where there is."""
    results = with_fault(
        engine,
        gpu.name,
        gpu.spec,
        "export CUDA_VISIBLE_DEVICES=-1",
        ("devices.listing", "gpu.visible"),
        level=Level.VALIDATED,
        folder=tmp_path,
    )
    assert checks_that_did_not_pass(results) == {"gpu.visible"}
    assert results["devices.listing"]["reason"] == "TensorFlow lists no GPU; see gpu.visible"
    assert [one["fault"] for one in results["gpu.visible"]["explained"]] == ["host"]
    assert "CUDA_VISIBLE_DEVICES" in results["gpu.visible"]["reason"]


def test_the_self_test_says_that_this_machine_has_no_gpu(gpu: Built, engine: DockerEngine) -> None:
    done, last, results = selftest(engine, gpu.name)
    assert (done.status, last["fault"]) == (6, "host"), last
    assert checks_that_did_not_pass(results) == {"gpu.visible"}
    assert [one["issue"] for one in results["gpu.visible"]["explained"]] == ["no-gpu"]
    # What needs no GPU was proven all the same.
    assert {"libraries.gate", "compiler.ptxas", "saving.checkpoint"} <= checks_that_ended(results, "passed")


def test_the_self_test_says_that_the_machine_has_no_toolkit(gpu: Built, engine: DockerEngine) -> None:
    """It has the device of a GPU, and not the driver's libraries."""
    done, last, results = selftest(engine, gpu.name, "--only", "gpu.visible", devices=["/dev/null:/dev/nvidia0"])
    assert (done.status, last["fault"], checks_that_did_not_pass(results)) == (6, "host", {"gpu.visible"}), last
    assert [one["issue"] for one in results["gpu.visible"]["explained"]] == ["no-toolkit"]


INSTALL = "PIP_CONSTRAINT= pip install --quiet --no-deps --root-user-action=ignore"


def test_packages_that_do_not_fit_are_found(gpu: Built, engine: DockerEngine, tmp_path: Path) -> None:
    packages = {
        # What broke the official GPU images: it imports, and fails at the first convolution.
        "cudnn-too-old": f"{INSTALL} nvidia-cudnn-cu12==9.1.0.70",
        "cpu-wheel": f"pip uninstall --quiet --yes tensorflow; {INSTALL} tensorflow-cpu=={gpu.spec.tensorflow}",
        "wrong-cuda": f"{INSTALL} --target /opt/cuda-12.1 nvidia-cuda-runtime-cu12==12.1.105\n"
        "export LD_LIBRARY_PATH=/opt/cuda-12.1/nvidia/cuda_runtime/lib",
    }
    found = with_packages(engine, gpu.name, gpu.spec, packages, ("environment.*", *LINKED), tmp_path)
    failed = {name: checks_that_ended(results, "failed") for name, results in found.items()}
    assert "libraries.cudnn" in failed["cudnn-too-old"]
    assert {"environment.tensorflow_version", "environment.build_info"} <= failed["cpu-wheel"]
    assert {"libraries.versions", "libraries.origin"} <= failed["wrong-cuda"]
    # A gate that is not there is never green.
    assert found["cpu-wheel"]["libraries.gate"]["outcome"] in {"failed", "skipped"}

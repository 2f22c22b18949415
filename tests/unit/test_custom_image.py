"""The image of a custom wheel: what follows from the wheel, from options and from the nearest row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from packaging.tags import parse_tag
from packaging.version import Version

from support.tensorflow_wheels import BUILD_INFO, make_members, write_tiny_wheel
from tfimg.core.errors import (
    InvalidWheel,
    LockError,
    NotTensorFlowWheel,
    TfimgError,
    UnavailableCuda,
    UnavailableCudnn,
    UnavailableDevice,
    UnavailablePlatform,
    UnavailablePython,
    UsageError,
)
from tfimg.core.paths import Workspace
from tfimg.custom.image import GLIBC_MINORS, GivenFacts, make_custom_spec, parse_custom_identifier
from tfimg.custom.source import WheelFacts, read_facts
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.labels import make_recipe_labels
from tfimg.recipe.lock import make_query
from tfimg.recipe.tags import list_tags

DAY = date(2025, 3, 26)
TAG = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"  # OCI distribution specification 1.1
GPU_METADATA = "tensorflow-2.18.1.dist-info/METADATA"


@pytest.fixture
def cpu(tmp_path: Path) -> WheelFacts:
    return read_facts(write_tiny_wheel(tmp_path))


@pytest.fixture
def gpu(tmp_path: Path) -> WheelFacts:
    return read_facts(write_tiny_wheel(tmp_path, cuda=True))


def make(matrix: Matrix, facts: WheelFacts, **given: str) -> ImageSpec:
    return make_custom_spec(matrix, facts, GivenFacts(**given), DAY)


def test_a_wheel_for_cpus_becomes_an_image_without_aliases(matrix: Matrix, cpu: WheelFacts) -> None:
    spec = make(matrix, cpu)
    assert spec.identifier == "custom-2.18.1-cpu-py3.11"
    assert (spec.package, spec.device, spec.platform) == ("tensorflow-cpu", "cpu", "linux/amd64")
    assert (spec.gpu, spec.libraries, spec.driver, spec.cutoff) == (None, (), None, DAY)
    assert spec.numpy == "<2.1.0,>=1.26.0"
    assert spec.keras == ">=3.5.0"  # of the row: the wheel does not say
    assert [constraint.requirement for constraint in spec.constraints] == ["setuptools<82"]
    assert list_tags(spec, repository="a/b") == ("a/b:custom-2.18.1-cpu-py3.11",)


def test_nvidia_s_libraries_follow_from_cuda_and_cudnn(matrix: Matrix, gpu: WheelFacts) -> None:
    spec = make(matrix, gpu)
    assert spec.identifier == "custom-2.18.1-cuda12.5-py3.11"
    assert spec.gpu is not None
    assert (spec.gpu.cuda, spec.gpu.cudnn, spec.gpu.libraries.toolkit) == ("12.5", ">=9.3,<10", "12.5")
    assert spec.gpu.architectures == ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")
    assert spec.driver == "525.60.13"
    libraries = dict(spec.libraries)
    assert set(matrix.toolkits["12.5"].wheels.items()) < set(libraries.items())
    assert (libraries["nvidia-cudnn-cu12"], libraries["nvidia-nccl-cu12"]) == ("9.3.0.75", "2.21.5")


def test_requirements_of_the_wheel_come_before_the_toolkit(matrix: Matrix, tmp_path: Path) -> None:
    metadata = make_members(cuda=True)[GPU_METADATA].replace(b"cublas-cu12 ==12.5.3.2", b"cublas-cu12 >=12.6,<13")
    metadata = metadata.replace(b"==9.3.0.75", b"<10,>=9.3.0.75").replace(
        b"runtime-cu12 ==12.5.82", b"runtime-cu12 >=12.1"
    )
    libraries = dict(
        make(matrix, read_facts(write_tiny_wheel(tmp_path, cuda=True, changes={GPU_METADATA: metadata}))).libraries
    )
    assert libraries["nvidia-cublas-cu12"] == "12.6"  # the toolkit's 12.5.3.2 is too old for it
    assert libraries["nvidia-cudnn-cu12"] == "9.3.0.75"
    assert libraries["nvidia-cuda-runtime-cu12"] == "12.5.82", "the toolkit's, which the wheel accepts"


@pytest.mark.parametrize(("cuda", "toolkit"), [("12.1", "12.2"), ("12.4", "12.5"), ("12.8", "12.5"), ("11.6", "11.8")])
def test_the_toolkit_is_the_next_of_the_same_major(cuda: str, toolkit: str, matrix: Matrix, gpu: WheelFacts) -> None:
    cudnn = {"12.2": "8.9", "12.5": "9", "11.8": "8.6"}[toolkit]
    spec = make(matrix, replace(gpu, cuda=cuda, cudnn=cudnn, requires=()))
    assert spec.gpu is not None
    assert (spec.gpu.cuda, spec.gpu.libraries.toolkit) == (cuda, toolkit)
    assert spec.gpu.libraries.nccl == "2.21.5", "of the row: the wheel requires none"


def test_a_local_version_is_part_of_a_valid_tag(matrix: Matrix, cpu: WheelFacts) -> None:
    spec = make(matrix, replace(cpu, version=Version("2.19.0+nv25.03")))
    assert (spec.identifier, spec.tensorflow) == ("custom-2.19.0_nv25.3-cpu-py3.11", "2.19.0+nv25.3")
    assert re.fullmatch(TAG, spec.identifier)


@pytest.mark.parametrize(
    ("version", "release"), [("2.18.0", "2.18.1"), ("2.15.2", "2.15.1"), ("2.40.0", "2.21.0"), ("2.9.0", "2.10.1")]
)
def test_the_nearest_row_is_of_the_same_minor_or_the_last_before(
    version: str, release: str, matrix: Matrix, cpu: WheelFacts
) -> None:
    spec = make(matrix, replace(cpu, version=Version(version)))
    assert matrix.rows[spec.row].tensorflow[-1].version == release


def test_the_lock_is_asked_for_with_the_wheel_itself_as_of_the_day(matrix: Matrix, cpu: WheelFacts) -> None:
    query = make_query(make(matrix, cpu), matrix.newer)
    assert query.requirements == (f"tensorflow-cpu @ {cpu.file.as_uri()}", "tensorboard", "pip", "setuptools<82")
    assert (query.cutoff, query.newer) == ("2025-03-27T00:00:00Z", ())


def test_title_and_labels_say_that_the_wheel_was_supplied(matrix: Matrix, cpu: WheelFacts) -> None:
    labels = make_recipe_labels(make(matrix, cpu), lock_digest="sha256:0", layers=[])
    assert labels["org.opencontainers.image.title"] == "TensorFlow 2.18.1 for CPU on Python 3.11, of a custom wheel"
    assert labels["tfimg.wheel"] == f"sha256:{cpu.sha256}"


def test_facts_that_the_wheel_lacks_come_from_options(matrix: Matrix, tmp_path: Path) -> None:
    changes: dict[str, bytes | None] = dict.fromkeys(path for path in make_members(cuda=True) if path.endswith(".h"))
    facts = read_facts(write_tiny_wheel(tmp_path, cuda=True, changes={**changes, BUILD_INFO: None}))
    with pytest.raises(UsageError, match=r"does not state its device\. Name it with --device\."):
        make(matrix, facts)
    with pytest.raises(UsageError, match=r"does not state its CUDA\. Name it with --cuda\."):
        make(matrix, facts, device="gpu")
    with pytest.raises(UsageError, match=r"does not state its cuDNN\. Name it with --cudnn\."):
        make(matrix, facts, device="gpu", cuda="12.5")
    with pytest.raises(UsageError, match=r"CUDA 12 does not name a minor version"):
        make(matrix, facts, device="gpu", cuda="12", cudnn="9.3")
    spec = make(matrix, facts, device="gpu", cuda="12.5", cudnn="9.3")
    assert spec.identifier == "custom-2.18.1-cuda12.5-py3.11"
    assert spec.gpu is not None
    assert spec.gpu.architectures == matrix.rows[spec.row].gpu.architectures  # type: ignore[union-attr]
    assert make(matrix, facts, device="cpu").identifier == "custom-2.18.1-cpu-py3.11"


def test_what_the_wheel_says_of_cuda_or_its_name_decides_the_device(
    matrix: Matrix, cpu: WheelFacts, gpu: WheelFacts
) -> None:
    for facts, device in (
        (replace(gpu, build={}), "gpu"),  # a header has CUDA
        (replace(gpu, build={"is_cuda_build": False}), "cpu"),
        (replace(cpu, name="tensorflow", build={"is_cuda_build": False}), "cpu"),
        (replace(gpu, name="tensorflow-cpu"), "cpu"),  # which the check environment.build_info refuses
        (replace(cpu, build={}), "cpu"),
    ):
        assert make(matrix, facts).device == device


def test_modules_that_were_compiled_for_another_python_are_refused(matrix: Matrix, cpu: WheelFacts) -> None:
    renamed = replace(cpu, tags=parse_tag("cp312-cp312-linux_x86_64"))
    with pytest.raises(InvalidWheel) as raised:
        make(matrix, renamed)
    assert str(raised.value) == (
        f"{cpu.file.name} is for Python 3.12 by its tags, and its modules were compiled for Python 3.11: they do not "
        "import in another one. Build the wheel with Python 3.12; a renamed one stays what it was built for."
    )
    assert make(matrix, replace(renamed, compiled_for=None)).python == "3.12"
    assert make(matrix, replace(renamed, tags=parse_tag("cp312-abi3-linux_x86_64"))).python == "3.12"
    assert make(matrix, replace(cpu, tags=parse_tag("py3-none-linux_x86_64"))).python == "3.11", "its modules say so"


def test_a_glibc_that_the_base_lacks_is_refused(matrix: Matrix, cpu: WheelFacts) -> None:
    assert make(matrix, replace(cpu, tags=parse_tag("cp311-cp311-manylinux_2_36_x86_64"))).python == "3.11"
    with pytest.raises(UnavailablePlatform) as raised:
        make(matrix, replace(cpu, tags=parse_tag("cp311-cp311-manylinux_2_37_x86_64")))
    assert str(raised.value) == (
        f"{cpu.file.name} needs glibc 2.37 by its tags, and images with Python 3.11 have glibc 2.36 of Debian "
        "bookworm: its libraries do not load there. Build it where glibc is as old, for example in a manylinux "
        "container."
    )


def test_each_debian_release_of_a_base_has_a_glibc(matrix: Matrix) -> None:
    assert {base.codename for base in matrix.bases.values()} <= GLIBC_MINORS.keys()


@pytest.mark.parametrize("cudnn", ["abc", "9.x", "", "9" * 5000])
def test_a_given_cudnn_is_a_version(cudnn: str, matrix: Matrix, gpu: WheelFacts) -> None:
    facts = replace(gpu, cudnn="")
    with pytest.raises(
        UsageError, match=r"^cuDNN .* is not a version\. Name it with --cudnn, for example --cudnn 9\.3\.$"
    ):
        make(matrix, facts, cudnn=cudnn)


def test_an_option_makes_a_fact_more_exact(matrix: Matrix, gpu: WheelFacts) -> None:
    facts = replace(gpu, cuda="12")
    spec = make(matrix, facts, cuda="12.5")
    assert spec.gpu is not None
    assert spec.gpu.cuda == "12.5"


@pytest.mark.parametrize(
    ("option", "value", "stated"),
    [
        ("cuda", "12.8", "CUDA 12.5"), ("cudnn", "8", "cuDNN 9.3"), ("python", "3.12", "Python 3.11"),
        ("device", "cpu", "device gpu"), ("platform", "linux/arm64", "platform linux/amd64"),
    ],
)  # fmt: skip
def test_an_option_that_contradicts_the_wheel_is_refused(
    option: str, value: str, stated: str, matrix: Matrix, gpu: WheelFacts
) -> None:
    with pytest.raises(UsageError) as raised:
        make(matrix, gpu, **{option: value})
    assert str(raised.value) == (
        f"--{option} {value} contradicts {gpu.file.name}, which states {stated}. Leave --{option} out: "
        "the wheel decides."
    )


@pytest.mark.parametrize(
    ("change", "given", "error", "message"),
    [
        ({"name": "keras"}, {}, NotTensorFlowWheel, "is the package 'keras', and images are"),
        ({"build": {"is_rocm_build": True}}, {}, UnavailableDevice, "is for ROCm; images of custom"),
        ({}, {"device": "tpu"}, UnavailableDevice, "is for TPUs; images of custom"),
        ({"tags": "cp314-abi3-linux_x86_64"}, {}, UnavailablePython, "is for Python 3.14, and images have"),
        ({"tags": "cp311-cp311-win_amd64"}, {}, UnavailablePlatform, "is for win_amd64, and images are for"),
        ({"tags": "cp311-cp311-linux_aarch64"}, {}, UnavailablePlatform, "is for CUDA on linux/arm64, and"),
        ({"cuda": "13.0"}, {}, UnavailableCuda, "is for CUDA 13.0, and the matrix has toolkits"),
        ({"cudnn": "10.1", "requires": ()}, {}, UnavailableCudnn, "is for cuDNN 10.1, and neither its"),
        ({"tags": "cp311-cp311-linux_x86_64.manylinux1_i686"}, {}, UsageError, "linux/amd64 and manylinux1_i686"),
    ],
)  # fmt: skip
def test_a_wheel_that_no_image_can_have_is_refused_by_name(
    change: dict[str, object], given: dict[str, str], error: type[TfimgError], message: str, matrix: Matrix,
    gpu: WheelFacts,
) -> None:  # fmt: skip
    change = {**change}
    if "tags" in change:
        change["tags"] = parse_tag(str(change["tags"]))
    with pytest.raises(error) as raised:
        make(matrix, replace(gpu, **change), **given)  # type: ignore[arg-type]
    assert message in str(raised.value)
    assert raised.value.next_step


def test_an_arm64_wheel_for_cpus_has_its_platform_in_its_name(matrix: Matrix, cpu: WheelFacts) -> None:
    facts = replace(cpu, tags=parse_tag("cp311-cp311-manylinux2014_aarch64"))
    assert make(matrix, facts).identifier == "custom-2.18.1-cpu-py3.11-arm64"


@pytest.mark.parametrize(
    ("identifier", "facts"),
    [
        ("custom-2.18.1-cpu-py3.11", ("2.18.1", "3.11", "cpu", "linux/amd64", None)),
        ("custom-2.19.0_nv25.3-cuda12.5-py3.12", ("2.19.0+nv25.3", "3.12", "gpu", "linux/amd64", "12.5")),
        ("custom-2.40.0-cuda12.9-py3.13", ("2.40.0", "3.13", "gpu", "linux/amd64", "12.9")),
        ("custom-2.18.1-cpu-py3.11-arm64", ("2.18.1", "3.11", "cpu", "linux/arm64", None)),
    ],
)
def test_an_identifier_tells_enough_to_run_its_image(
    identifier: str, facts: tuple[str | None, ...], specs: Sequence[ImageSpec]
) -> None:
    spec = parse_custom_identifier(identifier, specs)
    assert spec is not None
    assert (spec.identifier, spec.wheel is not None) == (identifier, True)
    assert (spec.tensorflow, spec.python, spec.device, spec.platform, spec.gpu.cuda if spec.gpu else None) == facts
    assert list_tags(spec, repository="a/b") == (f"a/b:{identifier}",)


@pytest.mark.parametrize("identifier", ["custom-", "custom-x-cpu-py3.11", "custom-2.18.1-tpu-py3.11"])
def test_an_identifier_that_no_wheel_has_is_none(identifier: str, specs: Sequence[ImageSpec]) -> None:
    assert parse_custom_identifier(identifier, specs) is None


def test_an_image_whose_wheel_is_not_at_hand_has_no_lock(workspace: Workspace) -> None:
    project = Project(services=Services(environ={"TFIMG_WORKSPACE": str(workspace.root)}))
    with pytest.raises(LockError, match="is the image of a custom wheel, which is not at hand"):
        project.plan(project.spec("custom-2.18.1-cpu-py3.11"))

"""The image of a custom wheel: what follows from the wheel, from options, from the nearest row and from labels."""

import json
import re
from collections.abc import Mapping, Sequence
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
    ResolutionError,
    TfimgError,
    UnavailableCuda,
    UnavailableCudnn,
    UnavailableDevice,
    UnavailablePlatform,
    UnavailablePython,
    UnlabelledImage,
    UsageError,
)  # fmt: skip
from tfimg.core.paths import Workspace
from tfimg.custom.image import (
    FACTS_LABEL,
    GLIBC_MINORS,
    LOCK_LABEL,
    GivenFacts,
    make_custom_labels,
    make_custom_spec,
    parse_custom_identifier,
    read_custom_labels,
)
from tfimg.custom.source import WheelFacts, read_facts
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.facts import collect_facts
from tfimg.recipe.labels import IDENTIFIER_LABEL, WHEEL_LABEL, make_recipe_labels
from tfimg.recipe.lock import HEADER, hash_lock, make_query
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
    metadata = metadata.replace(b"==9.3.0.75", b"<10,>=9.3.0.75").replace(b"cu12 ==12.5.82", b"cu12 >=12.1")
    wheel = write_tiny_wheel(tmp_path, cuda=True, changes={GPU_METADATA: metadata})
    libraries = dict(make(matrix, read_facts(wheel)).libraries)
    assert libraries["nvidia-cublas-cu12"] == "12.6"  # the toolkit's 12.5.3.2 is too old for it
    assert libraries["nvidia-cudnn-cu12"] == "9.3.0.75"
    assert libraries["nvidia-cuda-runtime-cu12"] == "12.5.82", "the toolkit's, which the wheel accepts"


@pytest.mark.parametrize(("cuda", "toolkit"), [("12.1", "12.2"), ("12.4", "12.5"), ("12.8", "12.9"), ("11.6", "11.8")])
def test_the_toolkit_is_the_next_of_the_same_major(cuda: str, toolkit: str, matrix: Matrix, gpu: WheelFacts) -> None:
    cudnn = {"12.2": "8.9", "12.5": "9", "12.9": "9", "11.8": "8.6"}[toolkit]
    spec = make(matrix, replace(gpu, cuda=cuda, cudnn=cudnn, requires=()))
    assert spec.gpu is not None
    assert (spec.gpu.cuda, spec.gpu.libraries.toolkit) == (cuda, toolkit)
    assert spec.gpu.libraries.nccl == "2.21.5", "of the row: the wheel requires none"


def test_a_local_version_and_the_platform_are_parts_of_a_valid_tag(matrix: Matrix, cpu: WheelFacts) -> None:
    spec = make(matrix, replace(cpu, version=Version("2.19.0+nv25.03")))
    assert (spec.identifier, spec.tensorflow) == ("custom-2.19.0_nv25.3-cpu-py3.11", "2.19.0+nv25.3")
    assert re.fullmatch(TAG, spec.identifier)
    arm64 = replace(cpu, tags=parse_tag("cp311-cp311-manylinux2014_aarch64"))
    assert make(matrix, arm64).identifier == "custom-2.18.1-cpu-py3.11-arm64"


@pytest.mark.parametrize(
    ("version", "release"), [("2.18.0", "2.18.1"), ("2.15.2", "2.15.1"), ("2.40.0", "2.21.0"), ("2.9.0", "2.10.1")]
)
def test_the_nearest_row_is_of_the_same_minor_or_the_last_before(
    version: str, release: str, matrix: Matrix, cpu: WheelFacts
) -> None:
    spec = make(matrix, replace(cpu, version=Version(version)))
    assert matrix.rows[spec.row].tensorflow[-1].version == release


def test_the_query_has_the_wheel_itself_as_of_the_day(matrix: Matrix, cpu: WheelFacts) -> None:
    query = make_query(make(matrix, cpu), matrix.newer)
    assert query.requirements == (f"tensorflow-cpu @ {cpu.file.as_uri()}", "tensorboard", "pip", "setuptools<82")
    assert (query.cutoff, query.newer) == ("2025-03-27T00:00:00Z", ())


def test_title_and_labels_say_that_the_wheel_is_custom(matrix: Matrix, cpu: WheelFacts) -> None:
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
    assert {base.codename for base in matrix.bases.values()} <= GLIBC_MINORS.keys()
    assert make(matrix, replace(cpu, tags=parse_tag("cp311-cp311-manylinux_2_36_x86_64"))).python == "3.11"
    with pytest.raises(UnavailablePlatform) as raised:
        make(matrix, replace(cpu, tags=parse_tag("cp311-cp311-manylinux_2_37_x86_64")))
    assert str(raised.value) == (
        f"{cpu.file.name} needs glibc 2.37 by its tags, and images with Python 3.11 have glibc 2.36 of Debian "
        "bookworm: its libraries do not load there. Build it where glibc is as old, for example in a manylinux "
        "container."
    )


@pytest.mark.parametrize("cudnn", ["abc", "9.x", "", "9" * 5000])
def test_a_given_cudnn_is_a_version(cudnn: str, matrix: Matrix, gpu: WheelFacts) -> None:
    facts = replace(gpu, cudnn="")
    exact = make(matrix, replace(gpu, cuda="12"), cuda="12.5").gpu
    assert exact is not None
    assert exact.cuda == "12.5", "an option makes a fact more exact"
    message = r"^cuDNN .* is not a version\. Name it with --cudnn, for example --cudnn 9\.3\.$"
    with pytest.raises(UsageError, match=message):
        make(matrix, facts, cudnn=cudnn)


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


@pytest.mark.parametrize(
    ("identifier", "facts"),
    [
        ("custom-2.18.1-cpu-py3.11", ("2.18.1", "3.11", "cpu", "linux/amd64", None)),
        ("custom-2.19.0_nv25.3-cuda12.5-py3.12", ("2.19.0+nv25.3", "3.12", "gpu", "linux/amd64", "12.5")),
        ("custom-2.40.0-cuda12.9-py3.13", ("2.40.0", "3.13", "gpu", "linux/amd64", "12.9")),
        ("custom-2.18.1-cpu-py3.11-arm64", ("2.18.1", "3.11", "cpu", "linux/arm64", None)),
    ],
)
def test_an_identifier_states_enough_to_run_its_image(
    identifier: str, facts: tuple[str | None, ...], specs: Sequence[ImageSpec]
) -> None:
    spec = parse_custom_identifier(identifier, specs)
    assert spec is not None
    assert (spec.identifier, spec.wheel is not None) == (identifier, True)
    assert (spec.tensorflow, spec.python, spec.device, spec.platform, spec.gpu.cuda if spec.gpu else None) == facts
    assert list_tags(spec, repository="a/b") == (f"a/b:{identifier}",)


def test_an_identifier_that_no_wheel_has_is_none_and_a_wheel_that_is_not_at_hand_has_no_lock(
    project: Project, specs: Sequence[ImageSpec]
) -> None:
    for identifier in ("custom-", "custom-x-cpu-py3.11", "custom-2.18.1-tpu-py3.11"):
        assert parse_custom_identifier(identifier, specs) is None
    with pytest.raises(LockError, match="is the image of a custom wheel, which is not at hand"):
        project.plan(project.spec("custom-2.18.1-cpu-py3.11"))


OTHER = f"numpy==1.26.4 --hash=sha256:{'ab' * 32}  # 2024-02-05\n"


@pytest.fixture(params=[False, True], ids=["cpu", "cuda"])
def spec(request: pytest.FixtureRequest, matrix: Matrix, tmp_path: Path) -> ImageSpec:
    facts = read_facts(write_tiny_wheel(tmp_path, cuda=request.param))
    return make_custom_spec(matrix, facts, GivenFacts(), date(2025, 3, 26))


def make_lock(spec: ImageSpec) -> dict[str, str]:
    assert spec.wheel
    line = f"{spec.package}=={spec.tensorflow} --hash=sha256:{spec.wheel.sha256}\n"
    return {"tensorflow": HEADER + line, "packages": HEADER + OTHER}


def make_labels(spec: ImageSpec) -> dict[str, str]:
    lock = make_lock(spec)
    return {**make_recipe_labels(spec, lock_digest=hash_lock(lock)), **make_custom_labels(spec, lock)}


def edit_label(labels: Mapping[str, str], label: str, **changes: object) -> dict[str, str]:
    return {**labels, label: json.dumps({**json.loads(labels[label]), **changes})}


@pytest.fixture
def project(workspace: Workspace) -> Project:
    return Project(services=Services(environ={"TFIMG_WORKSPACE": str(workspace.root)}))


def test_labels_state_the_image_and_its_lock_without_the_wheel(matrix: Matrix, spec: ImageSpec) -> None:
    found = read_custom_labels(matrix, make_labels(spec))
    others = {label: text for label, text in make_labels(spec).items() if label != FACTS_LABEL}
    assert read_custom_labels(matrix, others) is None
    assert found is not None
    assert found.wheel is not None
    assert replace(found, wheel=spec.wheel) == spec
    assert dict(found.wheel.lock) == make_lock(spec)
    assert collect_facts(found, dict(found.wheel.lock)) == collect_facts(spec, make_lock(spec))


def test_the_image_is_planned_from_its_labels_also_with_a_variant(spec: ImageSpec, project: Project) -> None:
    plan = project.plan(project.spec_of_labels(make_labels(spec)) or spec)
    assert (plan.spec.identifier, plan.wheels, hash_lock(plan.lock)) == (
        spec.identifier, (), make_labels(spec)["tfimg.lock"],
    )  # fmt: skip
    jupyter = with_variant(spec, "jupyter", project.matrix.variants)
    lock = {**make_lock(spec), "variant": HEADER + OTHER.replace("numpy", "jupyterlab")}
    labels = {**make_recipe_labels(jupyter, lock_digest=hash_lock(lock)), **make_custom_labels(jupyter, lock)}
    found = project.spec_of_labels(labels)
    assert found is not None
    assert (found.identifier, found.variant, project.lock(found)) == (f"{spec.identifier}-jupyter", "jupyter", lock)


def test_the_lock_of_extra_packages_is_not_there_twice(spec: ImageSpec) -> None:
    labels = make_custom_labels(spec, {**make_lock(spec), "own": HEADER + OTHER})
    assert json.loads(labels[LOCK_LABEL]).keys() == {"tensorflow", "packages"}


def test_labels_of_another_image_do_not_describe_a_named_one(spec: ImageSpec, project: Project) -> None:
    found = project.spec_of_labels(make_labels(spec), "custom-2.17.0-cpu-py3.11")
    assert found is not None
    assert (found.tensorflow, found.wheel and found.wheel.lock) == ("2.17.0", ())
    assert project.spec_of_labels(make_labels(spec), "2.15.1-cpu-py3.11") == project.spec("2.15.1-cpu-py3.11")


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (FACTS_LABEL, ""), (FACTS_LABEL, "{}"), (FACTS_LABEL, "[" * 100_000), (FACTS_LABEL, "\udcff"),
        (FACTS_LABEL, "x" * (1 << 18)), (LOCK_LABEL, ""), (LOCK_LABEL, '{"tensorflow": 1}'),
        (LOCK_LABEL, '{"tensorflow": "RUN rm -rf /"}'), (LOCK_LABEL, '{"../../etc": ""}'), (LOCK_LABEL, "{}"),
        (WHEEL_LABEL, "sha256:0"), (WHEEL_LABEL, f"sha256:{'0' * 64}"),
    ],
)  # fmt: skip
def test_labels_that_tfimg_never_writes_are_refused(label: str, text: str, matrix: Matrix, spec: ImageSpec) -> None:
    with pytest.raises(UnlabelledImage) as raised:
        read_custom_labels(matrix, {**make_labels(spec), label: text})
    assert raised.value.what.startswith("The labels of the image do not say which wheel it was made of: ")
    assert len(raised.value.what) < 500
    assert raised.value.next_step == "Build the image again with `tfimg build --wheel`."


@pytest.mark.parametrize("part", ["../../etc", "own", "unknown"])
def test_a_part_that_the_lock_of_no_image_has_is_refused(part: str, matrix: Matrix, spec: ImageSpec) -> None:
    with pytest.raises(UnlabelledImage, match=f"has the part '{part}'"):
        read_custom_labels(matrix, edit_label(make_labels(spec), LOCK_LABEL, **{part: HEADER}))


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("tensorflow", "2.18.1; rm", UnlabelledImage), ("tensorflow", "2.17.1", UnlabelledImage),
        ("tensorflow", "9" * 100, UnlabelledImage), ("package", "tensorflow\n", UnlabelledImage),
        ("python", "3.11 ", UnlabelledImage), ("python", "3.99", UnavailablePython),
        ("platform", "windows/amd64", UnlabelledImage), ("as_of", 20250326, UnlabelledImage),
        ("numpy", "<2; import os", UnlabelledImage), ("gpu", {"cuda": "12.5"}, UnlabelledImage),
        ("libraries", {"nvidia": "-r /etc/passwd"}, UnlabelledImage),
        ("libraries", {f"a{number}": "1" for number in range(101)}, UnlabelledImage),
    ],
)  # fmt: skip
def test_facts_that_no_image_has_are_refused(
    field: str, value: object, error: type[TfimgError], matrix: Matrix, spec: ImageSpec
) -> None:
    with pytest.raises(error) as raised:
        read_custom_labels(matrix, edit_label(make_labels(spec), FACTS_LABEL, **{field: value}))
    assert raised.value.what.isprintable()


def test_a_toolkit_that_the_matrix_lacks_is_named(matrix: Matrix, spec: ImageSpec) -> None:
    labels = make_labels(spec)
    facts = json.loads(labels[FACTS_LABEL])
    if facts["gpu"] is None:
        return
    facts["gpu"]["libraries"]["toolkit"] = "13.0"
    with pytest.raises(UnavailableCuda, match=r"has NVIDIA's libraries of CUDA 13\.0, and the matrix has toolkits"):
        read_custom_labels(matrix, {**labels, FACTS_LABEL: json.dumps(facts)})


def test_no_label_waives_a_check(matrix: Matrix, spec: ImageSpec) -> None:
    labels = edit_label(make_labels(spec), FACTS_LABEL, waived={"numerics.matmul": "because"}, constraints=["x"], row=0)
    found = read_custom_labels(matrix, labels)
    assert found is not None
    assert (found.waived, found.constraints) == (spec.waived, spec.constraints)


def test_the_label_of_the_identifier_decides_what_an_image_is(spec: ImageSpec, project: Project) -> None:
    with pytest.raises(ResolutionError, match="has no image 'custom-nonsense'"):
        project.spec_of_labels({**make_labels(spec), IDENTIFIER_LABEL: "custom-nonsense"})

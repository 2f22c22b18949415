"""The images that a matrix offers, their variants, and their identifiers."""

from collections.abc import Callable, Sequence
from datetime import date
from itertools import product

import pytest
from packaging.version import Version

from support.matrix_edits import GOOD
from tfimg.build.builder import BuildSettings
from tfimg.core.errors import MatrixError, ResolutionError
from tfimg.core.paths import Workspace
from tfimg.matrix.conditions import select_variants
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import PLATFORMS, Matrix, Variant
from tfimg.matrix.spec import ExtraPackages, ImageSpec, expand_matrix, find_gaps, with_extra_packages, with_variant
from tfimg.project.project import Project
from tfimg.recipe.labels import make_extra_labels, read_extra_labels
from tfimg.recipe.tags import list_aliases

Named = Callable[[str], ImageSpec]


def small_matrix(text: str = GOOD) -> Matrix:
    return parse_matrix(text, source="base.yaml", today=date(2024, 6, 1))


def test_a_matrix_expands_by_release_then_platform_then_device_then_python() -> None:
    assert [spec.identifier for spec in expand_matrix(small_matrix())] == [
        "2.15.0-cpu-py3.9",
        "2.15.0-cpu-py3.11",
        "2.15.0-cuda12.2-py3.9",
        "2.15.0-cuda12.2-py3.11",
        "2.15.0-cpu-py3.9-arm64",
        "2.15.0-cpu-py3.11-arm64",
        "2.15.1-cpu-py3.9",
        "2.15.1-cpu-py3.11",
        "2.15.1-cuda12.2-py3.9",
        "2.15.1-cuda12.2-py3.11",
        "2.15.1-tpu-py3.9",
        "2.15.1-tpu-py3.11",
        "2.16.1-cpu-py3.11",
    ]


def test_a_missing_image_of_a_release_has_its_reason_and_path() -> None:
    found = {(gap.tensorflow, gap.device, gap.platform): (gap.path, gap.reason) for gap in find_gaps(small_matrix())}
    missing = ("rows[0].tensorflow[1].missing", "the release has no aarch64 wheel")
    no_libtpu = (
        "rows[1].tensorflow[0].tpu",
        "tensorflow-tpu 2.16.1 needs libtpu 0.2: not on the package index; --find-links DIR supplies it",
    )
    assert found == {
        ("2.15.0", "tpu", "linux/amd64"): ("rows[0]", "there is no tensorflow-tpu 2.15.0"),
        ("2.15.0", "gpu", "linux/arm64"): ("rows[0].wheels", "no wheel of 2.15.0 is for GPU on linux/arm64"),
        ("2.15.0", "tpu", "linux/arm64"): ("rows[0]", "there is no tensorflow-tpu 2.15.0"),
        ("2.15.1", "cpu", "linux/arm64"): missing,
        ("2.15.1", "gpu", "linux/arm64"): missing,
        ("2.15.1", "tpu", "linux/arm64"): missing,
        ("2.16.1", None, None): ("rows[1].blocked", "a dependency has no wheel for Python 3.9"),
        ("2.16.1", "gpu", "linux/amd64"): ("rows[1].wheels", "no wheel of 2.16.1 is for GPU on linux/amd64"),
        ("2.16.1", "tpu", "linux/amd64"): no_libtpu,
        ("2.16.1", "cpu", "linux/arm64"): ("rows[1].wheels", "no wheel of 2.16.1 is for CPU on linux/arm64"),
        ("2.16.1", "gpu", "linux/arm64"): ("rows[1].wheels", "no wheel of 2.16.1 is for GPU on linux/arm64"),
        ("2.16.1", "tpu", "linux/arm64"): no_libtpu,
    }


def test_every_release_has_an_image_or_a_reason_on_every_device_and_platform(
    matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    offered = {(spec.tensorflow, spec.device, spec.platform) for spec in specs}
    lacking = {(gap.tensorflow, gap.device, gap.platform) for gap in find_gaps(matrix) if gap.device}
    releases = {release.version for row in matrix.rows for release in row.tensorflow}
    assert offered | lacking == set(product(releases, DEVICES, PLATFORMS))
    assert offered & lacking == set()


def test_the_newest_patch_is_the_newest_version_and_not_the_last_in_the_alphabet() -> None:
    assert expand_matrix(small_matrix(GOOD.replace('"2.15.0"', '"2.9.0"')))[0].tensorflow == "2.9.0"
    matrix = small_matrix(GOOD.replace('"2.15.0"', '"2.15.9"').replace('"2.15.1"', '"2.15.10"'))
    newest = {(spec.tensorflow, spec.device, spec.platform) for spec in expand_matrix(matrix) if spec.is_newest_patch}
    assert {found for found in newest if found[0].startswith("2.15")} == {
        ("2.15.10", "cpu", "linux/amd64"),
        ("2.15.10", "gpu", "linux/amd64"),
        ("2.15.10", "tpu", "linux/amd64"),
        ("2.15.9", "cpu", "linux/arm64"),  # 2.15.10 has none
    }
    last = {(spec.tensorflow, spec.device, spec.platform) for spec in expand_matrix(matrix) if spec.is_newest}
    assert len(last) == len({(device, platform) for _, device, platform in last})


def test_an_image_has_nvidia_s_wheels_of_its_cuda_major_with_exact_versions() -> None:
    spec = next(spec for spec in expand_matrix(small_matrix()) if spec.device == "gpu")
    assert spec.libraries == (
        ("nvidia-cublas-cu12", "12.2.5.6"),
        ("nvidia-cuda-runtime-cu12", "12.2.140"),
        ("nvidia-cudnn-cu12", "8.9.4.25"),
        ("nvidia-nccl-cu12", "2.16.5"),
    )
    assert (spec.driver, spec.newer) == ("525.60.13", ("certifi", "wrapt"))


OTHER = """\
      other_toolkits:
        - reason: for new GPUs
          libraries: {toolkit: "12.9", cudnn: "8.9.7.29"}
          reports: {sm_120: {runs: unproven, reason: new}}
"""


def test_another_toolkit_is_a_further_image_and_changes_none() -> None:
    line = '      libraries: {toolkit: "12.2", cudnn: "8.9.4.25", nccl: "2.16.5"}\n'
    assert GOOD.count(line) == 1
    toolkit = '\ntoolkits:\n  "12.9": {driver: "525.60.13", wheels: {nvidia-cublas-cu12: "12.9.1.4"}}\n'
    text = GOOD.replace(line, line + OTHER).replace("\ntoolkits:\n", toolkit)
    before, after = expand_matrix(small_matrix()), expand_matrix(small_matrix(text))
    assert tuple(spec for spec in after if spec.is_usual_toolkit) == before
    others = [spec for spec in after if not spec.is_usual_toolkit]
    assert {spec.identifier.split("-")[1] for spec in others} == {"cuda12.9"}
    assert others[0].libraries == (("nvidia-cublas-cu12", "12.9.1.4"), ("nvidia-cudnn-cu12", "8.9.7.29"))
    assert others[0].gpu is not None
    assert (others[0].gpu.cuda, set(others[0].gpu.reports)) == ("12.2", {"sm_120"}), "the wheel's CUDA, its own reports"


def test_each_release_has_one_default_image_per_device_and_platform(specs: Sequence[ImageSpec]) -> None:
    usual = [spec for spec in specs if spec.is_usual_toolkit]
    defaults = [(spec.tensorflow, spec.device, spec.platform) for spec in usual if spec.is_default_python]
    assert sorted(defaults) == sorted({(spec.tensorflow, spec.device, spec.platform) for spec in specs})


def test_2_10_to_2_21_are_offered_for_cpu(specs: Sequence[ImageSpec], named: Named) -> None:
    minors = {spec.minor for spec in specs if spec.device == "cpu"}
    assert {f"2.{minor}" for minor in range(10, 22)} == minors
    assert named("2.15.0.post1-cpu-py3.11").minor == "2.15"


VARIANTS = {
    "jupyter": Variant(description="notebooks", requirements=("jupyterlab",)),
    "dev": Variant(description="compilers", extends="jupyter", system_packages=("git",), removed=("tests",)),
}


@pytest.fixture
def spec(specs: Sequence[ImageSpec]) -> ImageSpec:
    """The image of TensorFlow 2.15.1 for CPUs."""
    return next(one for one in specs if one.identifier == "2.15.1-cpu-py3.11")


def test_a_variant_has_its_own_identifier_tags_and_what_it_extends(spec: ImageSpec) -> None:
    dev = with_variant(spec, "dev", VARIANTS)
    assert (dev.identifier, dev.runtime) == ("2.15.1-cpu-py3.11-dev", spec.identifier)
    assert [(name, variant.requirements) for name, variant in dev.variants] == [
        ("jupyter", ("jupyterlab",)),
        ("dev", ()),
    ]
    assert (dev.system_packages, dev.removed) == (("git",), ("tests",))
    assert list_aliases(dev) == tuple(f"{alias}-dev" for alias in list_aliases(spec))


def test_the_runtime_is_the_image_itself_and_an_unknown_variant_is_refused(spec: ImageSpec) -> None:
    assert with_variant(spec, "runtime", VARIANTS) is spec
    with pytest.raises(ResolutionError, match="has no variant 'jupiter'") as refused:
        with_variant(spec, "jupiter", VARIANTS)
    assert "runtime, jupyter, dev" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "more", "problem"),
    [
        ("runtime", "", "variants.runtime: this name means the image without a variant"),
        ("own", "", "variants.own: this name means extra packages"),
        (
            "ours",
            f"    requirements: [\"a; {'(' * 5000}os_name=='x'{')' * 5000}\"]\n",
            'variants.ours.requirements[0]: "a; ((((',
        ),
    ],
)
def test_a_variant_that_no_image_can_have_is_refused(name: str, more: str, problem: str, workspace: Workspace) -> None:
    text = workspace.matrix.read_text()
    text = text.replace("variants:\n", f"variants:\n  {name}:\n    description: of ours\n{more}", 1)
    with pytest.raises(MatrixError) as refused:
        parse_matrix(text, source="matrix.yaml", today=date(2026, 11, 22))
    assert problem in str(refused.value)


def select(specs: Sequence[ImageSpec], *patterns: str, variant: str = "runtime") -> list[str]:
    return [spec.identifier for spec in select_variants(specs, patterns, VARIANTS, variant)]


def test_a_pattern_may_end_in_a_variant(specs: Sequence[ImageSpec]) -> None:
    one = "2.15.1-cpu-py3.11"
    assert select(specs, f"{one}-jupyter") == [f"{one}-jupyter"]
    assert select(specs, "2.15.1-cpu-py3.1?-dev", one) == ["2.15.1-cpu-py3.10-dev", one, f"{one}-dev"]
    assert select(specs, one, f"{one}-runtime", variant="dev") == [one, f"{one}-dev"]
    whole = select(specs, "*-jupyter")
    assert (len(whole), whole) == (len(specs), select(specs, variant="jupyter"))
    assert select(specs) == [spec.identifier for spec in specs]


def test_a_pattern_that_ends_in_no_variant_is_one_of_images(specs: Sequence[ImageSpec]) -> None:
    with pytest.raises(ResolutionError, match=r"No image matches '2\.15\.1-slim'"):
        select(specs, "2.15.1-slim")
    with pytest.raises(ResolutionError, match="has no variant 'slim'"):
        select(specs, "2.15", variant="slim")


def test_a_variant_that_removes_files_is_compressed_small_by_default(spec: ImageSpec) -> None:
    chosen = [
        BuildSettings(compression=requested).choose_compression(image)
        for image in (spec, with_variant(spec, "jupyter", VARIANTS), with_variant(spec, "dev", VARIANTS))
        for requested in (None, "gzip")
    ]
    assert chosen == ["fast", "gzip", "fast", "gzip", "small", "gzip"]


def test_extra_packages_end_the_identifier_and_come_back_from_labels(spec: ImageSpec) -> None:
    own = ExtraPackages(requirements=("a<2", "b"), system_packages=("ffmpeg", "git"), lock="# x\n")
    mine = with_extra_packages(with_variant(spec, "dev", VARIANTS), own)
    assert (mine.identifier, mine.runtime) == ("2.15.1-cpu-py3.11-dev-own", spec.identifier)
    assert mine.system_packages == ("git", "ffmpeg")
    assert read_extra_labels(make_extra_labels(own)) == own
    assert read_extra_labels({}) is None


@pytest.mark.parametrize(
    ("package", "tensorflow", "releases"),
    [
        ("tensorflow-addons", "2.15.1", ""),
        ("tensorflow-addons", "2.16.1", "<0"),
        ("tensorflow-io", "2.11.1", "<0.32.0"),
        ("tensorflow-io", "2.15.0.post1", ">=0.36.0,<0.37.0"),
        ("tensorflow-io", "2.16.2", ">=0.37.0"),
        ("tensorflow-io", "2.18.1", "<0"),
        ("tensorflow-probability", "2.10.1", "<0.19.0"),
        ("tensorflow-probability", "2.17.1", "<0.25.0"),
        ("tensorflow-probability", "2.21.0", ""),
    ],
)
def test_the_releases_of_a_companion_that_work_with_a_tensorflow(package: str, tensorflow: str, releases: str) -> None:
    assert Project().matrix.companions[package].find_releases(tensorflow) == releases


def test_what_a_release_of_a_companion_needs_is_what_the_last_one_before_it_needs() -> None:
    found = Project().matrix.companions["tensorflow-io"]
    assert [found.find_need(Version(one)) for one in ("0.31.0", "0.34.0", "0.37.1")] == [
        *("<2.12", ">=2.13,<2.14", ">=2.16,<2.17"),
    ]
    assert Project().matrix.companions["tensorflow-probability"].find_need(Version("0.18.0")) == ""

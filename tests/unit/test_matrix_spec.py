"""The images that a matrix offers, and their identifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from itertools import product

from support.matrix_edits import GOOD
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import PLATFORMS, Matrix
from tfimg.matrix.spec import ImageSpec, expand_matrix, find_gaps

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


def test_releases_are_ordered_as_versions_and_not_as_text() -> None:
    assert expand_matrix(small_matrix(GOOD.replace('"2.15.0"', '"2.9.0"')))[0].tensorflow == "2.9.0"


def test_each_release_has_one_default_image_per_device_and_platform(specs: Sequence[ImageSpec]) -> None:
    defaults = [(spec.tensorflow, spec.device, spec.platform) for spec in specs if spec.is_default_python]
    assert sorted(defaults) == sorted({(spec.tensorflow, spec.device, spec.platform) for spec in specs})


def test_2_10_to_2_21_are_offered_for_cpu(specs: Sequence[ImageSpec]) -> None:
    minors = {spec.minor for spec in specs if spec.device == "cpu"}
    assert {f"2.{minor}" for minor in range(10, 22)} <= minors


def test_a_post_release_belongs_to_its_minor(named: Named) -> None:
    assert named("2.15.0.post1-cpu-py3.11").minor == "2.15"

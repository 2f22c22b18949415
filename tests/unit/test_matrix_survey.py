"""Facts of a matrix beside what an index has: each can be disproved, and says so at its own path."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from support.matrix_edits import GOOD, MatrixEdit, read_edits
from support.surveys import matching_survey
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Matrix
from tfimg.matrix.survey import (
    FactCheck,
    IndexSurvey,
    TensorFlowWheel,
    check_rows,
    find_installable_pythons,
    is_missing,
)


def parse_text(text: str) -> Matrix:
    return parse_matrix(text, source="base.yaml", today=date.max)


@pytest.fixture(scope="module")
def small() -> Matrix:
    return parse_text(GOOD)


@pytest.fixture(scope="module")
def survey(small: Matrix) -> IndexSurvey:
    return matching_survey(small)


def find_differences(matrix: Matrix, survey: IndexSurvey) -> list[FactCheck]:
    """What does not agree."""
    rows = check_rows(matrix, survey, releases_of(matrix))
    return [finding for row in rows for finding in row.findings if finding.verdict != "agrees"]


def releases_of(matrix: Matrix) -> set[Version]:
    return {Version(release.version) for row in matrix.rows for release in row.tensorflow}


def difference(path: str, field: str, message: str, verdict: str = "disagrees") -> FactCheck:
    return FactCheck(path=path, field=field, verdict=verdict, message=message)  # type: ignore[arg-type]


not_stated = partial(difference, verdict="not stated")


Change = Callable[[TensorFlowWheel], TensorFlowWheel | None]
"""What becomes of a wheel of a survey; None takes it away."""


def change_survey(survey: IndexSurvey, change: Change) -> IndexSurvey:
    return replace(survey, wheels=tuple(new for wheel in survey.wheels if (new := change(wheel)) is not None))


def has(wheel: TensorFlowWheel, facts: dict[str, Any]) -> bool:
    return all(getattr(wheel, name) == value for name, value in facts.items())


def other(facts: dict[str, Any], **fields: Any) -> Change:
    """Wheels that have all these facts get other fields."""
    return lambda wheel: replace(wheel, **fields) if has(wheel, facts) else wheel


def without(**facts: Any) -> Change:
    return lambda wheel: None if has(wheel, facts) else wheel


def built(**fields: Any) -> Change:
    """GPU wheels with other build information; None takes a field away."""

    def change(wheel: TensorFlowWheel) -> TensorFlowWheel:
        if not wheel.build or not wheel.build["is_cuda_build"]:
            return wheel
        build = {**wheel.build, **fields}
        return replace(wheel, build={name: value for name, value in build.items() if value is not None})

    return change


def requiring(old: str, new: str, **facts: Any) -> Change:
    """Wheels that have all these facts, with another text in their requirements."""

    def change(wheel: TensorFlowWheel) -> TensorFlowWheel:
        requires = tuple(one.replace(old, new) for one in wheel.requires)
        return replace(wheel, requires=requires) if has(wheel, facts) else wheel

    return change


def asking_also_for(requirement: str) -> Change:
    """Wheels with build information, with one more requirement."""
    return lambda wheel: replace(wheel, requires=(*wheel.requires, requirement)) if wheel.build else wheel


def test_a_survey_made_from_the_matrix_agrees_with_it(small: Matrix, matrix: Matrix) -> None:
    for facts in (small, matrix):
        assert find_differences(facts, matching_survey(facts)) == []
        assert not any(is_missing(facts, version) for version in matching_survey(facts).releases)


@pytest.mark.parametrize("slip", list(read_edits("disagreements.txt")), ids=lambda slip: slip.name)
def test_a_mistake_in_the_matrix_is_reported_at_its_path(slip: MatrixEdit, survey: IndexSurvey) -> None:
    """Made in its text, as people make it; what the wheels say stays the same."""
    found = find_differences(parse_text(slip.text()), survey)
    assert [f"{one.path} ({one.field} {one.verdict}): {one.message}" for one in found] == slip.reported


def test_a_release_that_is_taken_off_the_index_is_reported(small: Matrix, survey: IndexSurvey) -> None:
    gone = replace(survey, releases=survey.releases - {Version("2.16.1")})
    gone = change_survey(gone, without(version=Version("2.16.1")))
    found = {finding.path: finding.message for finding in find_differences(small, gone)}
    assert found["rows[1].tensorflow[0].version"] == "the matrix has 2.16.1, the index none"
    assert found["rows[1].numpy"] == "the matrix has >=1.23.5, the index none"


OLDEST = Version("2.15.0")
AARCH64 = "rows[0].wheels.linux/arm64.pythons (tensorflow-cpu-aws 2.15.0)"
RANGES = "the matrix has >=1.23.5,<2.0.0, the index <2.0.0,>=1.23.5; >=1.26"
NVSHMEM = "toolkits.12.2.wheels.nvidia-nvshmem-cu12"
NO_INFORMATION = "the wheels hold no such build information"

OF_WHEELS: dict[str, tuple[Change, list[FactCheck]]] = {
    "a day that the index does not tell is not stated": (
        other({"version": OLDEST}, uploaded=None),
        [not_stated("rows[0].tensorflow[0].released", "released", "the index does not state the day of 2.15.0")],
    ),
    "the day of a release is that of its first wheel": (other({"python": "3.9"}, uploaded=date(2030, 1, 1)), []),
    "a Python without a wheel is told by package and release": (
        without(package="tensorflow-cpu-aws", python="3.9", version=OLDEST),
        [difference(AARCH64, "pythons", "the matrix has 3.9, 3.11, the index 3.11")],
    ),
    "where Pythons differ the loosest range is compared": (requiring("1.23.5,<2", "1.24,<2", python="3.11"), []),
    "ranges of which none holds the others are all told": (
        requiring("numpy>=1.23.5,<2.0.0", "numpy>=1.26", package="tensorflow"),
        [difference("rows[0].numpy", "numpy", RANGES)],
    ),
    "another cuDNN": (
        built(cudnn_version="9"),
        [difference("rows[0].gpu.cudnn", "cudnn", "the matrix has 8, the index 9")],
    ),
    "build information of other types": (
        built(cuda_version=12, cudnn_version=True, cuda_compute_capabilities="sm_80"),
        [
            difference("rows[0].gpu.cuda", "cuda", "the matrix has 12.2, the index 12"),
            difference("rows[0].gpu.cudnn", "cudnn", "the matrix has 8, the index True"),
            difference(
                "rows[0].gpu.architectures", "architectures", "the matrix has sm_80, compute_90, the index sm_80"
            ),
        ],
    ),
    # 2.22.0rc0 tells only that it is a build for CUDA.
    "no CUDA": (built(cuda_version=None), [not_stated("rows[0].gpu.cuda", "cuda", NO_INFORMATION)]),
    "no cuDNN": (built(cudnn_version=None), [not_stated("rows[0].gpu.cudnn", "cudnn", NO_INFORMATION)]),
    "no architectures": (
        built(cuda_compute_capabilities=None),
        [not_stated("rows[0].gpu.architectures", "architectures", NO_INFORMATION)],
    ),
    "an NVIDIA wheel that the matrix does not know": (
        asking_also_for('nvidia-nvshmem-cu12>=3.2.5; extra == "and-cuda"'),
        [difference(NVSHMEM, "libraries", "the matrix has none, the index nvidia-nvshmem-cu12 >=3.2.5")],
    ),
    "what is left out on purpose is not required": (asking_also_for('tensorrt==8.6.1; extra == "and-cuda"'), []),
    "no libtpu": (
        requiring("libtpu==0.1", "six", package="tensorflow-tpu"),
        [difference("rows[0].tensorflow[1].tpu.libtpu", "tpu", "the matrix has 0.1, the index none")],
    ),
}


@pytest.mark.parametrize("case", OF_WHEELS)
def test_what_wheels_say_is_compared(case: str, small: Matrix, survey: IndexSurvey) -> None:
    change, findings = OF_WHEELS[case]
    assert find_differences(small, change_survey(survey, change)) == findings


def test_a_platform_that_is_not_missing_is_reported(small: Matrix, survey: IndexSurvey) -> None:
    arm = [
        replace(wheel, version=Version("2.15.1"), uploaded=date(2030, 1, 1))
        for wheel in survey.wheels
        if wheel.platform == "linux/arm64"
    ]
    path = "rows[0].tensorflow[1].missing.linux/arm64"
    assert find_differences(small, replace(survey, wheels=(*survey.wheels, *arm))) == [
        difference(path, "pythons", "the matrix has none, the index 3.9, 3.11")
    ]


@pytest.mark.parametrize("package", ["tensorflow", "tensorflow-cpu-aws"])
def test_up_to_2_15_an_aarch64_wheel_and_the_one_it_stands_for_are_both_needed(
    package: str, survey: IndexSurvey
) -> None:
    release = [wheel for wheel in survey.wheels if wheel.version == Version("2.15.0")]
    less = [w for w in release if (w.package, w.platform, w.python) != (package, "linux/arm64", "3.9")]
    assert find_installable_pythons(release, "tensorflow-cpu-aws", "linux/arm64") == ("3.9", "3.11")
    assert find_installable_pythons(less, "tensorflow-cpu-aws", "linux/arm64") == ("3.11",)
    assert find_installable_pythons(less, None, "linux/arm64") == ("3.11",)
    assert find_installable_pythons(release, "tensorflow", "linux/arm64") == (), "it holds no TensorFlow"


def test_from_2_16_an_aarch64_wheel_stands_for_itself(matrix: Matrix) -> None:
    release = [wheel for wheel in matching_survey(matrix).wheels if wheel.version == Version("2.16.2")]
    pythons = ("3.9", "3.10", "3.11", "3.12")
    assert find_installable_pythons(release, "tensorflow", "linux/arm64") == pythons
    assert find_installable_pythons(release, None, "linux/arm64") == pythons
    assert find_installable_pythons(release, "tensorflow-cpu-aws", "linux/arm64") == ()


def test_a_libtpu_that_came_to_the_index_or_left_it_is_reported(small: Matrix, survey: IndexSurvey) -> None:
    swapped = replace(survey, libraries={**survey.libraries, "libtpu": frozenset({Version("0.2")})})
    paths = ("rows[0].tensorflow[1].tpu.unavailable", "rows[1].tensorflow[0].tpu.unavailable")
    there, absent = "on the index", "not on the index"
    assert find_differences(small, swapped) == [
        difference(paths[0], "tpu", f"the matrix has {there}, the index {absent}"),
        difference(paths[1], "tpu", f"the matrix has {absent}, the index {there}"),
    ]


def test_a_tpu_wheel_that_the_matrix_does_not_know_is_reported(small: Matrix, survey: IndexSurvey) -> None:
    tpu = [
        replace(wheel, version=Version("2.15.0"))
        for wheel in survey.wheels
        if wheel.package == "tensorflow-tpu" and wheel.version == Version("2.15.1")
    ]
    reported = "the matrix has none, the index tensorflow-tpu 2.15.0"
    assert find_differences(small, replace(survey, wheels=(*survey.wheels, *tpu))) == [
        difference("rows[0].tensorflow[0].tpu", "tpu", reported)
    ]


def test_rows_without_a_selected_release_are_not_compared(small: Matrix, survey: IndexSurvey) -> None:
    assert [row.row for row in check_rows(small, survey, {Version("2.16.1")})] == [1]


def test_missing_releases_begin_after_the_matrixs_oldest(small: Matrix) -> None:
    versions = ["2.14.1", "2.15.0", "2.15.0.post1", "2.17.0"]
    assert [version for version in versions if is_missing(small, Version(version))] == ["2.15.0.post1", "2.17.0"]


def test_requirements_are_those_of_the_wheels_own_python_and_platform(survey: IndexSurvey) -> None:
    wheel = replace(
        survey.wheels[0],
        python="3.9",
        platform="linux/arm64",
        requires=(
            'Absl_Py>=1; python_version < "3.10"',
            'six; python_version >= "3.10"',
            'intel; platform_machine == "x86_64"',
            'arm; platform_machine == "aarch64"',
            'windows; sys_platform == "win32"',
            "numpy>=1.23",
            'numpy<2; python_version < "3.12"',
            'numpy==1.24; extra == "and-cuda"',
            'nvidia-cublas-cu12==12; extra == "and-cuda"',
        ),
    )
    assert wheel.requirements() == {
        "absl-py": SpecifierSet(">=1"),
        "arm": SpecifierSet(),
        "numpy": SpecifierSet(">=1.23,<2"),
    }
    assert wheel.and_cuda_requirements() == {"nvidia-cublas-cu12": SpecifierSet("==12")}

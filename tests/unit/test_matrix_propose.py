"""Releases that the matrix lacks → an edit of its text that a person reviews."""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import count
from typing import Any

import pytest
from packaging.version import Version

from support.paths import DATA
from support.surveys import matching_survey
from tfimg.core.errors import MatrixMismatch
from tfimg.core.paths import Workspace
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.propose import propose_rows as propose_until
from tfimg.matrix.schema import Matrix, Release
from tfimg.matrix.survey import IndexSurvey, TensorFlowWheel, check_rows, is_missing


@pytest.fixture(scope="session")
def text(workspace: Workspace) -> str:
    return workspace.matrix.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def survey(matrix: Matrix) -> IndexSurvey:
    return matching_survey(matrix)


def parse_text(text: str) -> Matrix:
    return parse_matrix(text, source="matrix.yaml", today=date.max)


def without(text: str, version: str) -> str:
    """The text without a release; without its row where the row has no other."""
    head, *rows = re.split(r"\n(?=  - tensorflow:\n)", text)
    kept = [head]
    for row in rows:
        begin, *releases, rest = re.split(r"(?m)^(?=      - |    wheels:)", row)
        others = [release for release in releases if f'version: "{version}"' not in release]
        if others:
            kept.append("".join((begin, *others, rest)))
    return "\n".join(kept)


def added(before: str, after: str) -> list[str]:
    """The lines that an edit adds; fails where it takes one away."""
    difference = [*difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")][2:]
    assert [line for line in difference if line.startswith("-")] == []
    return [line[1:] for line in difference if line.startswith("+")]


Change = Callable[[TensorFlowWheel], TensorFlowWheel | None]
"""What becomes of a wheel of a survey; None takes it away."""


def later(
    survey: IndexSurvey, version: str, *, like: str = "2.21.0", change: Change = lambda wheel: wheel
) -> IndexSurvey:
    """The survey, and a release whose wheels are those of another but for a change."""
    wheels = [replace(wheel, version=Version(version)) for wheel in survey.wheels if wheel.version == Version(like)]
    return replace(
        survey,
        releases=survey.releases | {Version(version)},
        wheels=(*survey.wheels, *(new for wheel in wheels if (new := change(wheel)) is not None)),
    )


def with_requirements(wheel: TensorFlowWheel, old: str, new: str) -> TensorFlowWheel:
    return replace(wheel, requires=tuple(one.replace(old, new) for one in wheel.requires))


def propose(text: str, survey: IndexSurvey, *versions: str) -> str:
    """An edit made long after the releases."""
    return propose_until(text, survey, [Version(version) for version in versions], today=date.max)


def comments(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if line.strip().startswith("#")}


def said_by_wheels(matrix: Matrix, version: str) -> dict[str, Any]:
    """All facts of a release that a survey can hold."""
    row, release = next(
        (row, release) for row in matrix.rows for release in row.tensorflow if release.version == version
    )
    wheels = {
        platform: (offered.pythons, {d: p for d, p in offered.packages.items() if d != "tpu" or release.tpu})
        for platform, offered in row.wheels.items()
        if platform not in release.missing
    }
    gpu = row.gpu and (row.gpu.cuda, row.gpu.architectures, row.gpu.libraries, row.gpu.ptx_driver)
    tpu = release.tpu and (release.tpu.libtpu, release.tpu.unavailable is None)
    return {
        "days": (release.released, release.cutoff), "wheels": wheels, "numpy": row.numpy, "keras": row.keras,
        "gpu": gpu, "tpu": tpu,
    }  # fmt: skip


def releases(matrix: Matrix) -> Sequence[Release]:
    return [release for row in matrix.rows for release in row.tensorflow]


VERSIONS = ["2.10.1", "2.11.1", "2.12.1", "2.14.0", "2.15.0.post1", "2.16.1", "2.19.0", "2.21.0"]
"""Of each kind one: joins a row, stands alone, lacks a platform, is the newest, begins a row."""


def test_where_nothing_is_missing_the_text_stays_as_it_is(text: str, survey: IndexSurvey) -> None:
    assert propose(text, survey) == text


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_that_is_taken_out_comes_back_with_what_its_wheels_say(
    version: str, text: str, matrix: Matrix, survey: IndexSurvey
) -> None:
    less = without(text, version)
    proposed = propose(less, survey, version)
    anew = parse_text(proposed)
    assert [release.version for release in releases(anew)] == [r.version for r in releases(matrix)]
    assert said_by_wheels(anew, version) == said_by_wheels(matrix, version)
    assert comments(less) <= comments(proposed)
    added(less, proposed)
    rows = check_rows(anew, survey, survey.releases)
    assert [finding for row in rows for finding in row.findings if finding.verdict != "agrees"] == []
    assert not any(is_missing(anew, version) for version in survey.releases)


def test_several_releases_are_added_at_once_whatever_their_order(
    text: str, matrix: Matrix, survey: IndexSurvey
) -> None:
    versions = ["2.21.0", "2.11.1", "2.15.1", "2.16.1"]
    less = text
    for version in versions:
        less = without(less, version)
    anew = parse_text(propose(less, survey, *versions))
    for version in versions:
        assert said_by_wheels(anew, version) == said_by_wheels(matrix, version)
    assert [release.version for release in releases(anew)] == [r.version for r in releases(matrix)]


def test_a_new_patch_release_is_one_more_line_of_its_minors_row(text: str, survey: IndexSurvey) -> None:
    found = later(survey, "2.21.1", change=lambda wheel: replace(wheel, uploaded=date(2026, 5, 1)))
    assert added(text, propose(text, found, "2.21.1")) == [
        '      - {version: "2.21.1", released: 2026-05-01, cutoff: 2026-05-15}'
    ]


def test_a_pin_above_the_wheels_floor_is_kept_for_a_new_patch_release(text: str, survey: IndexSurvey) -> None:
    """cuDNN of 2.21 is newer than what its wheels ask for at least, as people decided."""

    def loose(wheel: TensorFlowWheel) -> TensorFlowWheel:
        floor = 'nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"'
        return replace(wheel, requires=tuple(floor if "cudnn" in one else one for one in wheel.requires))

    assert len(added(text, propose(text, later(survey, "2.21.1", change=loose), "2.21.1"))) == 1


def test_a_patch_release_without_aarch64_wheels_joins_and_lacks_the_platform(text: str, survey: IndexSurvey) -> None:
    found = later(survey, "2.21.1", change=lambda wheel: wheel if wheel.platform == "linux/amd64" else None)
    assert added(text, propose(text, found, "2.21.1")) == [
        '      - version: "2.21.1"',
        "        released: 2026-03-06",
        "        cutoff: 2026-03-20",
        "        missing: {linux/arm64: no wheel of it can be installed}",
    ]


def test_a_release_for_a_tpu_gets_a_row_where_the_earlier_ones_have_no_package(text: str, survey: IndexSurvey) -> None:
    tpu = [
        replace(wheel, version=Version("2.21.1"))
        for wheel in survey.wheels
        if wheel.package == "tensorflow-tpu" and wheel.version == Version("2.20.0")
    ]
    found = later(survey, "2.21.1")
    newest = parse_text(propose(text, replace(found, wheels=(*found.wheels, *tpu)), "2.21.1")).rows[-1]
    assert newest.wheels["linux/amd64"].packages["tpu"] == "tensorflow-tpu"
    assert [(one.version, one.tpu and one.tpu.libtpu) for one in newest.tensorflow] == [("2.21.1", "0.0.14")]


def test_a_patch_release_with_facts_of_its_own_gets_a_row_before_the_next_minor(text: str, survey: IndexSurvey) -> None:
    found = later(survey, "2.15.2", like="2.15.1", change=lambda wheel: with_requirements(wheel, "<2.0.0", "<1.27"))
    proposed = propose(text, found, "2.15.2")
    rows = parse_text(proposed).rows
    found_versions = [[release.version for release in row.tensorflow] for row in rows[8:11]]
    assert found_versions == [["2.15.0", "2.15.0.post1", "2.15.1"], ["2.15.2"], ["2.16.1", "2.16.2"]]
    assert rows[9].numpy == ">=1.23.5,<1.27"
    assert added(text, proposed).count("") == 1, "rows are apart by an empty line"


def unknown_cuda(wheel: TensorFlowWheel) -> TensorFlowWheel:
    """As 2.22 has it: no CUDA in the build information, one NVIDIA wheel more, Keras by another name, a Python more."""
    wheel = with_requirements(wheel, "keras>", "keras-nightly>")
    if wheel.build and wheel.build["is_cuda_build"]:
        requires = (*wheel.requires, 'nvidia-nvshmem-cu12>=3.2.5; extra == "and-cuda"')
        return replace(wheel, requires=requires, build={"is_cuda_build": True})
    return wheel


def test_what_wheels_do_not_say_is_taken_from_the_row_before_and_marked(text: str, survey: IndexSurvey) -> None:
    proposed = propose(text, later(survey, "2.22.0", change=unknown_cuda), "2.22.0")
    assert parse_text(proposed).rows[-1].tensorflow[0].version == "2.22.0"
    assert added(text, proposed) == (DATA / "matrix/added-2.22.0.txt").read_text().splitlines()


def test_a_python_without_a_base_gets_one_to_confirm(text: str, survey: IndexSurvey) -> None:
    found = later(survey, "2.22.0")
    newer = [replace(wheel, python="3.14") for wheel in found.wheels if wheel.version == Version("2.22.0")]
    proposed = propose(text, replace(found, wheels=(*found.wheels, *newer)), "2.22.0")
    anew = parse_text(proposed)
    assert anew.rows[-1].wheels["linux/amd64"].pythons == ("3.10", "3.11", "3.12", "3.13", "3.14")
    (line,) = [line for line in added(text, proposed) if "slim" in line]
    image = anew.bases["3.13"].image.replace(":3.13-", ":3.14-")
    assert line == f'  "3.14": {{image: "{image}"}} # confirm: named like the one before'


def test_where_cuda_is_of_a_new_major_the_toolkit_stays_and_what_it_lacks_is_named(
    text: str, survey: IndexSurvey
) -> None:
    found = later(survey, "2.22.0", change=lambda wheel: with_requirements(wheel, "-cu12", "-cu13"))
    (line,) = [line for line in added(text, propose(text, found, "2.22.0")) if "libraries:" in line]
    known, _, marked = line.partition(" # confirm: ")
    assert known == '      libraries: {toolkit: "12.5", cudnn: "9.10.2.21", nccl: "2.27.7"}'
    assert marked.startswith("the matrix has none, the index nvidia-cublas-cu13 >=12.5.3.2; ")


def test_without_upload_days_those_of_the_previous_row_are_marked_for_confirmation(
    text: str, survey: IndexSurvey
) -> None:
    found = later(survey, "2.22.0", change=lambda wheel: replace(wheel, uploaded=None))
    proposed = propose(text, found, "2.22.0")
    assert parse_text(proposed).rows[-1].tensorflow[0].released == date(2026, 3, 6)
    assert added(text, proposed)[1:3] == [
        "  - tensorflow: # confirm: the index does not state the day of 2.22.0",
        '      - {version: "2.22.0", released: 2026-03-06, cutoff: 2026-03-20}',
    ]
    joining = later(survey, "2.21.1", change=lambda wheel: replace(wheel, uploaded=None))
    assert added(text, propose(text, joining, "2.21.1")) == [
        '      - {version: "2.21.1", released: 2026-03-06, cutoff: 2026-03-20} '
        "# confirm: the index does not state the day of 2.21.1"
    ]


def test_a_release_that_is_still_being_uploaded_gets_what_is_there(text: str, survey: IndexSurvey) -> None:
    """`tensorflow` comes first, `tensorflow-cpu` an hour later."""
    found = later(survey, "2.22.0", change=lambda wheel: wheel if wheel.package != "tensorflow-cpu" else None)
    amd64 = parse_text(propose(text, found, "2.22.0")).rows[-1].wheels["linux/amd64"]
    assert (amd64.packages, amd64.pythons) == ({"gpu": "tensorflow"}, ("3.10", "3.11", "3.12", "3.13"))


def test_wheels_that_no_row_can_state_are_refused(text: str, survey: IndexSurvey) -> None:
    def evil(wheel: TensorFlowWheel) -> TensorFlowWheel:
        return replace(wheel, build=wheel.build and {**wheel.build, "cuda_version": "12.5]\nevil: [1"})

    for change, problem in (
        (lambda _: None, "wheels: dictionary should have at least 1 item"),
        (evil, "gpu.cuda: string should match pattern"),
    ):
        with pytest.raises(MatrixMismatch) as caught:
            propose(text, later(survey, "2.22.0", change=change), "2.22.0")
        assert caught.value.what.startswith(
            f"The wheels of TensorFlow 2.22.0 state what no row of a matrix can have:\n  {problem}"
        )


def test_what_an_index_says_stays_in_its_comment(text: str, survey: IndexSurvey) -> None:
    def evil(wheel: TensorFlowWheel) -> TensorFlowWheel:
        builds = {"3.10": wheel.build, "3.11": {**(wheel.build or {}), "cuda_version": "1\n\x1b\nevil: 1\n"}}
        wheel = with_requirements(wheel, "numpy>=1.26.0", 'numpy===1"x')
        return replace(wheel, build=builds.get(wheel.python, wheel.build) if wheel.build else None)

    proposed = propose(text, later(survey, "2.22.0", change=evil), "2.22.0")
    assert parse_text(proposed).rows[-1].numpy == ">=1.26.0", "of the row before"
    (line,) = [line for line in added(text, proposed) if "cuda:" in line]
    assert line == '      cuda: "12.5" # confirm: the matrix has 12.5, the index 1 \\x1b evil: 1 , 12.5'


def test_the_cutoff_is_two_weeks_after_the_first_wheel(text: str, survey: IndexSurvey) -> None:
    days = (date(2026, 5, 1) + timedelta(days=number) for number in count())
    found = later(survey, "2.22.0", change=lambda wheel: replace(wheel, uploaded=next(days)))
    release = parse_text(propose(text, found, "2.22.0")).rows[-1].tensorflow[0]
    assert (release.released, release.cutoff) == (date(2026, 5, 1), date(2026, 5, 15))


def test_libtpu_is_what_the_tpu_wheel_requires_and_its_absence_is_reported(text: str, survey: IndexSurvey) -> None:
    """2.20 has a TPU wheel, whose libtpu then is taken off the index."""
    found = later(survey, "2.20.1", like="2.20.0")
    lines = ['      - version: "2.20.1"', "        released: 2025-08-13", "        cutoff: 2025-08-27"]
    assert added(text, propose(text, found, "2.20.1")) == [*lines, '        tpu: {libtpu: "0.0.14"}']
    gone = replace(found, libraries={**found.libraries, "libtpu": frozenset()})
    last = '        tpu: {libtpu: "0.0.14", unavailable: not on the package index}'
    assert added(text, propose(text, gone, "2.20.1")) == [*lines, last]


def test_a_release_of_these_days_is_cut_off_today(text: str, survey: IndexSurvey) -> None:
    """Its lock would change with every day of the two weeks otherwise."""
    found = later(survey, "2.21.1")
    day = min(wheel.uploaded for wheel in found.wheels if wheel.uploaded and str(wheel.version) == "2.21.1")
    proposed = propose_until(text, found, [Version("2.21.1")], today=day + timedelta(days=3))
    *_, newest = parse_text(proposed).rows[-1].tensorflow
    assert (newest.version, newest.cutoff) == ("2.21.1", day + timedelta(days=3))

"""The exact boundaries of the rules between the parts of a matrix."""

from datetime import date, timedelta

import pytest

from support.matrix_edits import GOOD
from tfimg.core.errors import MatrixError
from tfimg.matrix.load import parse_matrix

TODAY = date(2024, 6, 1)


def problems(*changes: tuple[str, str], today: date = TODAY) -> list[str]:
    """What the rules say of the good matrix with some of its text replaced."""
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is not in the text once"
        text = text.replace(old, new)
    try:
        parse_matrix(text, source="base.yaml", today=today)
    except MatrixError as error:
        return list(error.problems)
    return []


def test_a_release_is_compared_with_the_newest_before_it() -> None:
    changes = [('version: "2.15.0"', 'version: "2.18"'), ('version: "2.15.1"', 'version: "2.14"')]
    found = [problem.partition(":")[2] for problem in problems(*changes)]
    assert [problem.split(" comes after ")[1].split(" ")[0] for problem in found] == ["2.18", "2.18"]
    assert problems(('version: "2.15.0"', 'version: "0a1"')) == [], "a version below 0"


RELEASE = "released: 2023-11-14, cutoff: 2023-11-28"


def test_a_cutoff_may_be_the_day_of_the_release_and_not_the_day_before() -> None:
    for cutoff in ("2023-11-14", "2023-11-15"):
        assert problems((RELEASE, f"released: 2023-11-14, cutoff: {cutoff}")) == []
    (problem,) = problems((RELEASE, "released: 2023-11-14, cutoff: 2023-11-13"))
    assert problem.endswith(".cutoff: 2023-11-13 is before the release itself (2023-11-14)")


def test_a_release_and_its_cutoff_may_be_of_today_and_not_of_tomorrow() -> None:
    last = "released: 2024-03-09\n        cutoff: 2024-03-23"
    today = (last, f"released: {TODAY}\n        cutoff: {TODAY}")
    assert problems(today) == []
    assert problems(today, today=TODAY - timedelta(days=1)) == [
        f"rows[1].tensorflow[0].released: {TODAY} is in the future",
        f"rows[1].tensorflow[0].cutoff: {TODAY} is in the future: what a lock resolves to could change until then",
    ]
    assert problems((last, f"released: {TODAY}\n        cutoff: 2024-06-02")) == [
        "rows[1].tensorflow[0].cutoff: 2024-06-02 is in the future: what a lock resolves to could change until then"
    ]


@pytest.mark.parametrize(
    ("toolkit", "fits"), [("12.1", False), ("12.2", True), ("12.3", True), ("11.8", False), ("13.0", False)]
)
def test_a_toolkit_is_of_the_cuda_major_and_at_least_as_new(toolkit: str, fits: bool) -> None:
    suffix = f"-cu{toolkit.partition('.')[0]}"
    found = problems(
        ('  "12.2":\n', f'  "{toolkit}":\n'), ('toolkit: "12.2"', f'toolkit: "{toolkit}"'),
        ("nvidia-cublas-cu12", f"nvidia-cublas{suffix}"),
        ("nvidia-cuda-runtime-cu12", f"nvidia-cuda-runtime{suffix}"),
    )  # fmt: skip
    expected = f"rows[0].gpu.libraries.toolkit: {toolkit} is not a toolkit for CUDA 12.2"
    assert found == ([] if fits else [expected])


@pytest.mark.parametrize(
    ("accepted", "chosen", "expected"),
    [
        (">=8.9.4,<9", "8.9.4", None),
        (">=8.9.4,<9", "8.9.3", "libraries.cudnn: 8.9.3 is not in"),
        (">=8,<9", "8.9.4.25", None),
        (">=8.9.4,<9.0", "8.9.4.25", None),
        (">=8.9.4,<=9", "8.9.4.25", "cudnn: '>=8.9.4,<=9' is not a range with a floor within cuDNN 8"),
        (">=7.9,<9", "8.9.4.25", "cudnn: '>=7.9,<9' is not a range with a floor within cuDNN 8"),
        (">8.9.4,<9", "8.9.4", "libraries.cudnn: 8.9.4 is not in"),
    ],
)  # fmt: skip
def test_a_cudnn_range_lies_within_one_major_and_holds_the_chosen_version(
    accepted: str, chosen: str, expected: str | None
) -> None:
    found = problems(('">=8.9.4,<9"', f'"{accepted}"'), ('"8.9.4.25"', f'"{chosen}"'))
    assert len(found) == (1 if expected else 0)
    assert all(problem.startswith(f"rows[0].gpu.{expected}") for problem in found)


def test_a_range_holds_at_least_one_version() -> None:
    def of_keras(text: str) -> list[str]:
        return problems(('keras: ">=2.15.0,<2.16"', f'keras: "{text}"'))

    assert of_keras(">=2.15.0,<2.15.0") == ["rows[0].keras: no version is in '>=2.15.0,<2.15.0'"]
    assert of_keras(">=2.15.0,<=2.15.0") == of_keras("==2.15.0") == []


@pytest.mark.parametrize(
    ("requirement", "left"),
    [
        ("numpy<1.23.5", False), ("numpy<=1.23.5", True), ("numpy>=2.0.0", False), ("NumPy<1.20", False),
        ("scipy<1", True),
    ],
)  # fmt: skip
def test_a_constraint_leaves_a_version_of_the_rows_range(requirement: str, left: bool) -> None:
    found = problems(("requirement: numpy<2\n", f"requirement: {requirement}\n"))
    name = requirement.partition("<")[0].partition(">")[0]
    expected = f"rows[0].constraints[1]: {requirement} excludes every {name} in >=1.23.5,<2.0.0"
    assert found == ([] if left else [expected])


ARCHITECTURES = "architectures: [sm_80, compute_90]"
REPORT = "reports: {%s: {runs: unproven, reason: reports differ}}"


@pytest.mark.parametrize(
    ("capability", "architectures", "expected"),
    [
        ("sm_100", "[sm_80, compute_90]", []),
        ("sm_90", "[sm_80, compute_90]", ["rows[0].gpu.reports.sm_90: it is below ptx.below (sm_100)"]),
        ("sm_100", "[sm_80, sm_90]", ["rows[0].gpu.reports.sm_100: the wheel has no PTX that a report could be about"]),
    ],
)
def test_a_report_is_of_ptx_on_a_gpu_that_nothing_else_decides(
    capability: str, architectures: str, expected: list[str]
) -> None:
    change = (ARCHITECTURES, f"architectures: {architectures}\n      {REPORT % capability}")
    assert problems(change) == expected


LIBRARIES = 'libraries: {toolkit: "12.2", cudnn: "8.9.4.25", nccl: "2.16.5"}'


@pytest.mark.parametrize(
    ("toolkits", "expected"),
    [
        (("12.2",), ["0].libraries.toolkit: the row already has images of CUDA 12.2"]),
        (("12.9", "12.9"), ["1].libraries.toolkit: the row already has images of CUDA 12.9"]),
        (("12.9",), []),
        (("12.8",), ["0].libraries.toolkit: 12.8 has no entry under toolkits"]),
        (
            ("12.1",),
            [
                "0].libraries.toolkit: 12.1 has no entry under toolkits",
                "0].libraries.toolkit: 12.1 is not a toolkit for CUDA 12.2",
            ],
        ),
    ],
)  # fmt: skip
def test_another_toolkit_is_known_newer_and_there_once(toolkits: tuple[str, ...], expected: list[str]) -> None:
    others = ", ".join(f'{{reason: r, libraries: {{toolkit: "{one}", cudnn: "8.9.7"}}}}' for one in toolkits)
    known = '\ntoolkits:\n  "12.9": {driver: "525.60.13", wheels: {nvidia-cublas-cu12: "12.9.1.4"}}\n'
    found = problems((LIBRARIES, f"{LIBRARIES}\n      other_toolkits: [{others}]"), ("\ntoolkits:\n", known))
    assert [one.removeprefix("rows[0].gpu.other_toolkits[") for one in found] == expected


def test_a_report_of_a_user_is_of_a_known_gpu_and_of_the_past() -> None:
    report = '{tensorflow: "2.15", gpu: G, capability: %s, result: fails, saw: s, reported: %s, issue: a/b#1}'
    for sm, day, expected in (
        ("sm_80", "2024-06-01", []),
        ("sm_80", "2024-06-02", ["gpu_reports[0].reported: 2024-06-02 is in the future"]),
        ("sm_99", "2024-06-01", ["gpu_reports[0].capability: sm_99 is not under gpus"]),
    ):
        assert problems(("\ntoolkits:\n", f"\ngpu_reports: [{report % (sm, day)}]\ntoolkits:\n")) == expected

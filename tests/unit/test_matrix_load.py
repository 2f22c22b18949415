"""Bad matrices, each a file named after what is wrong with it, and everything that is said about them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tfimg.errors import MatrixError
from tfimg.matrix.load import parse_matrix, path

FOLDER = Path(__file__).parents[1] / "data" / "matrix"
TODAY = date(2024, 6, 1)

PROBLEMS = {
    "alias": [
        "line 8, column 14: 'reason' is an anchor or alias: write the value out",
    ],
    "alias-bomb": [
        "line 2, column 4: 'a' is an anchor or alias: write the value out",
    ],
    "anchor": [
        "line 2, column 13: 'name' is an anchor or alias: write the value out",
    ],
    "bad-architecture": [
        "rows[0].gpu.architectures[1]: string should match pattern '^(sm|compute)_[0-9]{2,3}$'",
        "rows[0].gpu.architectures[2]: input should be a valid string",
        "rows[0].gpu.architectures[3]: string should match pattern '^(sm|compute)_[0-9]{2,3}$'",
        "rows[0].gpu.architectures[4]: string should match pattern '^(sm|compute)_[0-9]{2,3}$'",
    ],
    "bad-base": [
        "bases.3.9.image: string should match pattern '^[a-z0-9-]+([.:][a-z0-9-]+)+/\\S+:\\S+$'",
    ],
    "bad-capability": [
        "gpus.compute_80.[key]: string should match pattern '^sm_[0-9]{2,3}$'",
        "ptx.below: string should match pattern '^sm_[0-9]{2,3}$'",
    ],
    "bad-date": [
        "newer.as_of: input should be a valid date or datetime, month value is outside expected "
        "range of 1-12",
        "rows[0].tensorflow[0].released: input should be a valid date or datetime, day value is "
        "outside expected range",
        "rows[0].tensorflow[0].cutoff: 'soon' is not a day such as 2024-05-01",
        "rows[0].gpu.cuda: 12.2 is a number to YAML; write the version in quotes",
    ],
    "bad-issue": [
        "constraints.pkg-resources.issue: string should match pattern '^[\\w.-]+/[\\w.-]+#[0-9]+$'",
        "left_out[0].issue: string should match pattern '^[\\w.-]+/[\\w.-]+#[0-9]+$'",
    ],
    "bad-package": [
        "newer.packages.Certifi>=2024.[key]: string should match pattern '^[a-z0-9]+(-[a-z0-9]+)*$'",
        "left_out[0].packages[0]: string should match pattern '^[a-z0-9]+(-[a-z0-9]+)*$'",
        "left_out[0].packages[1]: string should match pattern '^[a-z0-9]+(-[a-z0-9]+)*$'",
    ],
    "bad-python": [
        "rows[0].wheels.linux/amd64.pythons[1]: string should match pattern '^[0-9]{1,3}\\.[0-9]{1,3}$'",
    ],
    "bad-range": [
        "rows[0].numpy: '1.23.5' is not a version range such as '>=9.3,<10'",
        "rows[0].gpu.cudnn: '8.9 to 9' is not a version range such as '>=9.3,<10'",
    ],
    "bad-repository": [
        "repository: 'example/tensorflow:latest' is not the name of a repository",
    ],
    "bad-requirement": [
        "constraints.pkg-resources.requirement: 'setuptools below 82' is not a requirement such as "
        "'setuptools<82'",
    ],
    "bad-version": [
        "toolkits.12.2.driver: '525.60.13 or newer' is not a version (PEP 440)",
        "rows[0].tensorflow[1].tpu.libtpu: 'nightly' is not a version (PEP 440)",
        "rows[1].tensorflow[0].version: '2.16.1+tpu' cannot be part of a tag: leave the epoch and "
        "what follows + out",
    ],
    "binary-junk": [
        "the text: unacceptable character #x0089: special characters are not allowed",
    ],
    "constraint-leaves-no-numpy": [
        "rows[0].constraints[1]: numpy<2 leaves nothing of numpy >=2.0.0",
    ],
    "control-character": [
        "the text: unacceptable character #x0007: special characters are not allowed",
    ],
    "control-character-in-a-key": [
        "newer.packages.'certifi\\x1b[2J'.[key]: string should match pattern '^[a-z0-9]+(-[a-z0-9]+)*$'",
    ],
    "cudnn-not-in-range": [
        "rows[0].gpu.libraries.cudnn: 8.9.2.26 is not in '>=8.9.4,<9'",
    ],
    "cudnn-of-another-major": [
        "rows[0].gpu.cudnn: '>=8.9.4,<9' is not a range with a floor within cuDNN 9",
    ],
    "cudnn-range-empty": [
        "rows[0].gpu.cudnn: '>=8.9.4,<8.9' is not a range with a floor within cuDNN 8",
    ],
    "cudnn-range-over-two-majors": [
        "rows[0].gpu.cudnn: '>=8.9.4' is not a range with a floor within cuDNN 8",
    ],
    "cudnn-range-without-floor": [
        "rows[0].gpu.cudnn: '<9' is not a range with a floor within cuDNN 8",
    ],
    "cutoff-before-release": [
        "rows[0].tensorflow[1].cutoff: 2024-03-07 is before the release itself (2024-03-08)",
    ],
    "date-of-the-last-day": [
        "newer.as_of: '9999-12-31' is not a day such as 2024-05-01",
        "rows[0].tensorflow[0].cutoff: '9999-12-31' is not a day such as 2024-05-01",
    ],
    "default-python-blocked": [
        "rows[1].default_python: 3.9 is not among the images of linux/amd64",
    ],
    "default-python-not-offered": [
        "rows[0].default_python: 3.10 is not among the images of linux/amd64",
        "rows[0].default_python: 3.10 is not among the images of linux/arm64",
    ],
    "default-python-on-one-platform-only": [
        "rows[0].default_python: 3.11 is not among the images of linux/arm64",
    ],
    "digits-of-another-script": [
        "rows[0].wheels.linux/amd64.pythons[0]: string should match pattern '^[0-9]{1,3}\\.[0-9]{1,3}$'",
        "rows[0].gpu.libraries.toolkit: string should match pattern '^[0-9]{1,3}\\.[0-9]{1,3}$'",
    ],
    "duplicate-key": [
        'line 3, column 1: found duplicate key "repository" with value "example/other" (original '
        'value: "example/tensorflow")',
    ],
    "empty": [
        "the document: input should be a valid dictionary",
    ],
    "empty-keras-range": [
        "rows[0].keras: no version is in '>=2.16,<2.15.0'",
    ],
    "empty-numpy-range": [
        "rows[0].numpy: no version is in '>=2.0.0,<1.23.5'",
        "rows[0].constraints[1]: numpy<2 leaves nothing of numpy >=2.0.0,<1.23.5",
    ],
    "empty-rows": [
        "rows: tuple should have at least 1 item after validation, not 0",
    ],
    "gpu-facts-without-package": [
        "rows[0].wheels: no package is for gpu, and the row has facts about it",
    ],
    "gpu-package-without-facts": [
        "rows[1].wheels: there is a package for gpu, and the row has no facts about it",
    ],
    "gpu-twice": [
        "gpus.sm_90[1]: A30 already stands under sm_80",
    ],
    "list-for-mapping": [
        "newer: input should be a valid dictionary",
        "rows[0].tensorflow[1].tpu: input should be a valid dictionary",
    ],
    "mapping-for-list": [
        "gpus.sm_90: input should be a valid tuple",
        "rows[0].constraints: input should be a valid tuple",
    ],
    "merge-key": [
        "line 25, column 5: '<<' is a merge key: write the values out",
    ],
    "missing-rows": [
        "rows: field required",
    ],
    "nested-too-deep": [
        "line 37, column 28: nested more than 20 deep",
    ],
    "nested-too-deep-in-blocks": [
        "line 25, column 23: nested more than 20 deep",
    ],
    "newer-format": [
        "version: input should be 2",
    ],
    "not-a-mapping": [
        "the document: input should be a valid dictionary",
    ],
    "nothing-for-everything": [
        "version: input should be 2",
        "repository: input should be a valid string",
        "installer: input should be a valid string",
        "newer: input should be a valid dictionary",
        "bases: input should be a valid dictionary",
        "constraints: input should be a valid dictionary",
        "left_out: input should be a valid tuple",
        "toolkits: input should be a valid dictionary",
        "gpus: input should be a valid dictionary",
        "ptx: input should be a valid dictionary",
        "rows: input should be a valid tuple",
    ],
    "number-for-date": [
        "newer.as_of: 1714521600 is not a day such as 2024-05-01",
        "rows[0].tensorflow[0].released: 20231114 is not a day such as 2024-05-01",
    ],
    "number-for-text": [
        "repository: input should be a valid string",
        "newer.packages.certifi: input should be a valid string",
        "bases.3.11.suite: input should be a valid string",
    ],
    "numbers-without-end": [
        "installer: the number is a number to YAML; write the version in quotes",
        "newer.as_of: the number is not a day such as 2024-05-01",
        "rows[0].numpy: "
        "'>=99999999999999999999999999999999999999999999999999999999999999999999999999... is not a "
        "version range such as '>=9.3,<10'",
    ],
    "older-format": [
        "version: input should be 2",
    ],
    "only-a-comment": [
        "the document: input should be a valid dictionary",
    ],
    "only-a-word": [
        "the document: input should be a valid dictionary",
    ],
    "python-object-tag": [
        "line 3, column 12: 'tag:yaml.org,2002:python/object/apply:os.getcwd' is a tag: write the "
        "plain value",
    ],
    "python-twice": [
        "rows[0].wheels.linux/amd64.pythons[2]: 3.9 stands there twice",
    ],
    "python-without-base": [
        "rows[0].wheels.linux/amd64.pythons[0]: 3.9 has no entry under bases",
        "rows[0].wheels.linux/arm64.pythons[0]: 3.9 has no entry under bases",
        "rows[1].wheels.linux/amd64.pythons[0]: 3.9 has no entry under bases",
    ],
    "range-without-order": [
        "constraints.numpy-1.requirement: 'numpy===1.26' is not a requirement such as 'setuptools<82'",
        "rows[0].numpy: '===1.26' is not a version range such as '>=9.3,<10'",
    ],
    "reason-empty": [
        "constraints.pkg-resources.reason: string should have at least 1 character",
        "rows[0].tensorflow[1].missing.linux/arm64: input should be a valid string",
    ],
    "reason-missing": [
        "constraints.pkg-resources.reason: field required",
    ],
    "release-in-the-future": [
        "rows[1].tensorflow[0].released: 2025-03-09 is in the future",
        "rows[1].tensorflow[0].cutoff: 2025-03-23 is in the future: what a lock sees would change until then",
        "newer.as_of: 2025-05-01 is in the future",
    ],
    "release-in-two-rows": [
        "rows[1].tensorflow[0].version: 2.15.1 already stands at rows[0].tensorflow[1]",
    ],
    "release-twice": [
        "rows[0].tensorflow[1].version: 2.15 already stands at rows[0].tensorflow[0]",
    ],
    "release-without-wheels": [
        "rows[0].wheels.linux/amd64.pythons: tuple should have at least 1 item after validation, not 0",
        "rows[0].wheels.linux/arm64.packages: dictionary should have at least 1 item after validation, not 0",
    ],
    "releases-out-of-order": [
        "rows[0].tensorflow[1].version: 2.15.1 comes after 2.15.2 (rows[0].tensorflow[0]): oldest "
        "first, and rows do not overlap",
    ],
    "row-without-wheels": [
        "rows[0].wheels: dictionary should have at least 1 item after validation, not 0",
    ],
    "rows-out-of-order": [
        "rows[1].tensorflow[0].version: 2.14.1 comes after 2.15.1 (rows[0].tensorflow[1]): oldest "
        "first, and rows do not overlap",
    ],
    "rows-overlap": [
        "rows[1].tensorflow[0].version: 2.15.0.post1 comes after 2.15.1 (rows[0].tensorflow[1]): "
        "oldest first, and rows do not overlap",
    ],
    "several-contradictions": [
        "rows[1].tensorflow[0].version: 2.15.0 already stands at rows[0].tensorflow[0]",
        "rows[1].tensorflow[0].version: 2.15.0 comes after 2.15.1 (rows[0].tensorflow[1]): oldest "
        "first, and rows do not overlap",
        "rows[1].tensorflow[0].released: 2025-03-08 is in the future",
        "rows[1].tensorflow[0].cutoff: 2024-03-23 is before the release itself (2025-03-08)",
        "rows[0].wheels.linux/amd64.pythons[1]: 3.12 has no entry under bases",
        "rows[0].default_python: 3.12 is not among the images of linux/arm64",
        "rows[0].gpu.libraries.toolkit: 12.5 has no entry under toolkits",
        "gpus.sm_90[1]: A100 already stands under sm_80",
    ],
    "several-shape-problems": [
        "repository: 'Example Org' is not the name of a repository",
        "installer: 'newest' is not a version (PEP 440)",
        "rows[0].tensorflow[0].cutoff: field required",
        "rows[0].tensorflow[0].cut_off: extra inputs are not permitted",
        "rows[0].gpu.cuda: 12.2 is a number to YAML; write the version in quotes",
        "rows[0].gpu.cudnn: '~8' is not a version range such as '>=9.3,<10'",
    ],
    "tab-for-indentation": [
        "line 6, column 1: found character '\\t' that cannot start any token",
    ],
    "text-for-list": [
        "left_out[0].packages: input should be a valid tuple",
    ],
    "time-for-date": [
        "newer.as_of: '2024-05-01T12:00:00Z' is not a day such as 2024-05-01",
    ],
    "toolkit-of-another-major": [
        "rows[0].gpu.libraries.toolkit: 11.8 cannot stand for CUDA 12.2",
    ],
    "toolkit-older-than-cuda": [
        "rows[0].gpu.libraries.toolkit: 12.2 cannot stand for CUDA 12.3",
    ],
    "toolkit-without-wheels": [
        "toolkits.12.2.wheels: dictionary should have at least 1 item after validation, not 0",
    ],
    "tpu-facts-without-package": [
        "rows[1].wheels: no package is for tpu, and the row has facts about it",
    ],
    "tpu-package-without-facts": [
        "rows[0].wheels: there is a package for tpu, and the row has no facts about it",
    ],
    "truth-for-text": [
        "newer.as_of: false is not a day such as 2024-05-01",
        "newer.packages.certifi: input should be a valid string",
        "rows[0].gpu.cuda: input should be a valid string",
    ],
    "two-documents": [
        "line 28, column 1: but found another document",
    ],
    "unclosed-bracket": [
        "line 57, column 9: expected ',' or ']', but got '<scalar>'",
    ],
    "unclosed-quote": [
        "line 11, column 4: expected <block end>, but found '<scalar>'",
    ],
    "unknown-constraint": [
        "rows[0].constraints[1]: 'numpy-2' is not among constraints",
    ],
    "unknown-device": [
        "rows[0].wheels.linux/amd64.packages.npu.[key]: input should be 'cpu', 'gpu' or 'tpu'",
    ],
    "unknown-key": [
        "bases.3.9.distro: extra inputs are not permitted",
        "rows[0].default_python: field required",
        "rows[0].defualt_python: extra inputs are not permitted",
    ],
    "unknown-platform": [
        "rows[0].tensorflow[1].missing.windows/amd64.[key]: input should be 'linux/amd64' or 'linux/arm64'",
        "rows[0].wheels.linux/aarch64.[key]: input should be 'linux/amd64' or 'linux/arm64'",
    ],
    "unknown-tag": [
        "line 3, column 12: '!version' is a tag: write the plain value",
    ],
    "unknown-toolkit": [
        "rows[0].gpu.libraries.toolkit: 12.3 has no entry under toolkits",
    ],
    "unquoted-key": [
        "bases.3.9.[key]: 3.9 is a number to YAML; write the version in quotes",
    ],
    "unquoted-version": [
        "installer: 1 is a number to YAML; write the version in quotes",
        "rows[0].wheels.linux/amd64.pythons[1]: 3.1 is a number to YAML; write the version in quotes",
        "rows[0].gpu.cuda: 12.1 is a number to YAML; write the version in quotes",
    ],
    "version-with-spaces": [
        "rows[0].tensorflow[1].tpu.libtpu: 'v0.1' cannot be part of a tag: at most 40 digits, small "
        "letters and dots",
        "rows[1].tensorflow[0].version: ' 2.16.1' cannot be part of a tag: at most 40 digits, small "
        "letters and dots",
    ],
    "wheel-of-another-cuda": [
        "toolkits.12.2.wheels.nvidia-cublas-cu11: its name does not end in -cu12",
        "toolkits.12.2.wheels.nvidia-cuda-runtime: its name does not end in -cu12",
    ],
}


def problems(name: str, *, today: date = TODAY) -> list[str]:
    text = (FOLDER / f"{name}.yaml").read_text()
    with pytest.raises(MatrixError) as caught:
        parse_matrix(text, source=f"{name}.yaml", today=today)
    return list(caught.value.problems)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_is_told_by_its_path_and_all_at_once(name: str) -> None:
    assert problems(name) == PROBLEMS[name]


def test_every_file_beside_the_good_one_is_bad() -> None:
    assert {file.stem for file in FOLDER.glob("*.yaml")} == {"base", *PROBLEMS}


def test_the_message_names_the_file_lists_the_problems_and_says_what_to_do() -> None:
    error = MatrixError(["rows: field required", "version: input should be 1"], source="matrix.yaml")
    head, first, second, advice = str(error).splitlines()
    assert head == "matrix.yaml has 2 problems:"
    assert [first, second] == ["  rows: field required", "  version: input should be 1"]
    assert advice == "Correct each path named above."


def test_one_problem_is_not_told_in_the_plural() -> None:
    assert str(MatrixError(["rows: field required"], source="m.yaml")).startswith("m.yaml has 1 problem:\n")


def test_the_good_matrix_is_understood() -> None:
    matrix = parse_matrix((FOLDER / "base.yaml").read_text(), source="base.yaml", today=TODAY)
    row = matrix.rows[0]
    assert [release.version for release in row.tensorflow] == ["2.15.0", "2.15.1"]
    assert [release.tpu.libtpu if release.tpu else None for release in row.tensorflow] == [None, "0.1"]
    assert list(row.wheels) == ["linux/amd64", "linux/arm64"]
    assert row.wheels["linux/arm64"].packages == {"cpu": "tensorflow-cpu-aws"}
    assert row.gpu is not None
    assert row.gpu.cudnn == ">=8.9.4,<9"
    assert matrix.toolkits[row.gpu.libraries.toolkit].driver == "525.60.13"
    assert matrix.gpus["sm_80"] == ("A100", "A30")
    assert matrix.newer.packages == {"certifi": "pure data"}


def test_a_release_of_today_is_not_in_the_future() -> None:
    text = (FOLDER / "release-in-the-future.yaml").read_text()
    assert parse_matrix(text, source="base.yaml", today=date(2025, 5, 1)).newer.as_of == date(2025, 5, 1)
    assert problems("release-in-the-future", today=date(2025, 4, 30)) == [
        "newer.as_of: 2025-05-01 is in the future"
    ]


def test_a_matrix_never_changes() -> None:
    matrix = parse_matrix((FOLDER / "base.yaml").read_text(), source="base.yaml", today=TODAY)
    with pytest.raises(ValueError, match="frozen"):
        matrix.repository = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (("rows", 2, "gpu", "cuda"), "rows[2].gpu.cuda"),
        (("version",), "version"),
        ((0, "a"), "[0].a"),
        ((), ""),
        (("wheels", "linux/amd64", "pythons", 1), "wheels.linux/amd64.pythons[1]"),
        (("bases", "3.9\x1b[2J", "image"), "bases.'3.9\\x1b[2J'.image"),
        (("newer", "a: b"), "newer.'a: b'"),
    ],
)
def test_a_path_reads_like_an_expression(steps: tuple[int | str, ...], text: str) -> None:
    assert path(steps) == text

"""Requests that no image meets, or that cannot be read → the whole message.

What holds for all refusals is in test_matrix_resolve.py."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from support.cases import cases
from support.cli_options import parse_request
from tfimg.core import errors
from tfimg.core.errors import ResolutionError, UnavailableCuda, UsageError
from tfimg.matrix.conditions import Request
from tfimg.matrix.refusal import format_values
from tfimg.matrix.resolve import resolve
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

REFUSALS = Path(__file__).parents[1] / "data" / "refusals.txt"


class Refusal(NamedTuple):
    """One paragraph of the file: what is typed, and what is answered."""

    options: str
    kind: str
    code: int
    message: str


def refusals() -> Iterator[Refusal]:
    for paragraph in REFUSALS.read_text().strip().split("\n\n"):
        command, kind, *message = paragraph.split("\n")
        name, code = kind.split()
        yield Refusal(command.removeprefix("$ tfimg resolve "), name, int(code), "\n".join(message))


@pytest.mark.parametrize("refusal", list(refusals()), ids=lambda refusal: refusal.options)
def test_a_refusal_says_what_clashes_and_where_that_stands_and_what_would_work(
    refusal: Refusal, matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    with pytest.raises(ResolutionError) as caught:
        resolve(matrix, specs, parse_request(refusal.options))
    assert str(caught.value) == refusal.message
    assert (type(caught.value), caught.value.exit_code) == (getattr(errors, refusal.kind), refusal.code)


def test_a_program_gets_a_refusal_in_parts(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    with pytest.raises(ResolutionError) as caught:
        resolve(matrix, specs, parse_request("--tf 2.15 --python 3.12 --gpu T4"))
    assert caught.value.details == {
        "clash": ["--tf 2.15", "--python 3.12"],
        "reasons": [
            "no wheel of TensorFlow 2.15 for Python 3.12 was published",
            "with Python 3.12: TensorFlow 2.16.1 to 2.21.0",
            "with TensorFlow 2.15: Python 3.9, 3.10, 3.11",
        ],
        "sources": [
            "rows[9 to 14].tensorflow (releases on the package index)",
            "rows[8].wheels.linux/amd64.pythons (file names of the wheels)",
        ],
        "nearest": [
            {"request": "--tf 2.15 --gpu T4 --python 3.11", "identifier": "2.15.1-cuda12.2-py3.11"},
            {"request": "--tf 2.16 --gpu T4 --python 3.12", "identifier": "2.16.2-cuda12.3-py3.12"},
        ],
    }


def test_a_matrix_without_gpu_images_says_so(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    without = [spec for spec in specs if spec.minor == "2.16" and spec.device == "cpu"]
    with pytest.raises(UnavailableCuda) as caught:
        resolve(matrix, without, parse_request("--tf 2.16 --cuda 12"))
    assert str(caught.value) == (
        "No image meets --cuda 12: no wheel of TensorFlow was built with CUDA 12.\n"
        "  in the matrix: no image for a GPU\n"
        "What would work:\n  --tf 2.16 --device cpu  (2.16.2-cpu-py3.11)\n"
        "  --tf 2.16 --device cpu --platform linux/arm64  (2.16.2-cpu-py3.11-arm64)\n"
        "From matrix.yaml: rows[9].wheels.linux/amd64.packages, rows[9].wheels.linux/arm64.packages (packages on the "
        "package index)"
    )


@cases("matrix_refusal", "what_cannot_be_read_is_refused_with_an_example")
def test_what_cannot_be_read_is_refused_with_an_example(
    option: str, message: str, texts: list[str], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    for text in (text.replace("{digits}", "9" * 5000) for text in texts):
        for others in ({}, {"tensorflow": "2.9"}):
            with pytest.raises(UsageError) as caught:
                resolve(matrix, specs, Request(**{**others, option: text}))
            assert (str(caught.value), caught.value.exit_code) == (message.format(text), 2)


@pytest.mark.parametrize(
    ("patch", "minor"),
    [("3.11.4", "3.11"), (">=3.9.2,<3.12", "'>=3.9,<3.12'"), ("==3.11.4", "'==3.11'"), ("3.13rc1", "3.13"),
     (">=3.10.1, <=3.11.99", "'>=3.10, <=3.11'")],
)  # fmt: skip
def test_a_patch_version_of_python_cannot_be_chosen(
    patch: str, minor: str, matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(matrix, specs, Request(tensorflow="2.15", python=patch))
    assert str(caught.value) == (
        f"--python {patch}: the patch version of Python cannot be chosen, as an image has that of its base. Name the "
        f"minor version: --python {minor}."
    )
    resolve(matrix, specs, parse_request(f"--python {minor}"))


def test_the_pythons_of_the_matrix_are_one_range(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    for python in ("2.7", "3.6", "3.99", "'>=3.14'", "'>3.11,<3.12'", "'<3.7'"):
        with pytest.raises(ResolutionError, match=r"in the matrix: Python 3\.7 to 3\.13\n"):
            resolve(matrix, specs, parse_request(f"--python {python}"))


def test_a_long_run_of_values_is_a_range_unless_one_is_missing() -> None:
    there = ["3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]
    assert format_values(["3.9", "3.10", "3.8"], there) == "3.8, 3.9, 3.10"
    assert format_values(there, there) == "3.7 to 3.13"
    assert format_values([one for one in there if one != "3.9"], there) == "3.7, 3.8, 3.10, 3.11, 3.12, 3.13"
    assert format_values(["2 or newer", "1 or newer", "2 or newer"]) == "1 or newer; 2 or newer"

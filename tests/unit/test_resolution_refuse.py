"""Requests that no image meets, or that cannot be read → the whole message, and what holds for all of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.cli_options import OPTIONS, asked
from tfimg import errors
from tfimg.errors import ResolutionError, UnavailableCuda, UsageError
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.resolution.refuse import listed
from tfimg.resolution.request import Request, conditions
from tfimg.resolution.resolve import Resolution, resolve

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
        resolve(matrix, specs, asked(refusal.options))
    assert str(caught.value) == refusal.message
    assert (type(caught.value), caught.value.exit_code) == (getattr(errors, refusal.kind), refusal.code)


def test_a_program_gets_a_refusal_in_parts(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    with pytest.raises(ResolutionError) as caught:
        resolve(matrix, specs, asked("--tf 2.15 --python 3.12 --gpu T4"))
    assert caught.value.details == {
        "clash": ["--tf 2.15", "--python 3.12"],
        "reasons": [
            "with Python 3.12: TensorFlow 2.16.1 to 2.21.0 (matrix.yaml: rows[9 to 14].tensorflow, "
            "from releases on the package index)",
            "with TensorFlow 2.15: Python 3.9, 3.10, 3.11 (matrix.yaml: rows[8].wheels.linux/amd64.pythons, "
            "from file names of the wheels)",
        ],
        "nearest": [
            {"request": "--tf 2.15 --gpu T4 --python 3.11", "identifier": "2.15.1-cuda12.2-py3.11"},
            {"request": "--tf 2.16 --gpu T4 --python 3.12", "identifier": "2.16.2-cuda12.3-py3.12"},
        ],
    }


def test_a_matrix_without_gpu_images_says_so(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    without = [spec for spec in specs if spec.minor == "2.16" and spec.device == "cpu"]
    with pytest.raises(UnavailableCuda) as caught:
        resolve(matrix, without, asked("--tf 2.16 --cuda 12"))
    assert str(caught.value) == "\n".join(
        (
            "No image meets --cuda 12:",
            "  in the matrix: no image for a GPU (matrix.yaml: rows[9].wheels.linux/amd64.packages, "
            "rows[9].wheels.linux/arm64.packages, from packages on the package index)",
            "What would work:",
            "  --tf 2.16 --device cpu  (2.16.2-cpu-py3.11)",
            "  --tf 2.16 --device cpu --platform linux/arm64  (2.16.2-cpu-py3.11-arm64)",
        )
    )


TF = "Write for example 2.15, 2.15.1, '>=2.15,<2.17' or latest."
CUDA = "Write for example 12, 12.2 or '>=12.3'."
CUDNN = "Write for example 9, 8.9 or '>=8.9.4'."
PYTHON = "Write for example 3.11 or '>=3.10'."
DRIVER = "is not the version of a driver. Write what nvidia-smi shows, for example 535.104.05."
PLATFORM = "is none that TensorFlow has wheels for. Write linux/amd64 or linux/arm64."
NO_VERSION = "is neither a version nor a range of versions."
AMBIGUOUS = (
    "may be older or newer than 525.60.13, which decides what runs. Write the whole version, "
    "as nvidia-smi shows it."
)

MALFORMED = [
    *(
        (Request(tensorflow=text), f"--tf {text!r} {NO_VERSION} {TF}")
        for text in (
            "", " ", ",", "two", "v2.15", "Latest", "2.15-cpu", "2.15.*", "2.15.x", "=>2.15", ">2.15<2.17", ">=",
            "2.15 2.16", "2.15,2.16", "2..15", "2.15\n", "²", "٢", "9" * 5000, ">=" + "9" * 5000,
        )
    ),
    *((Request(cuda=text), f"--cuda {text!r} {NO_VERSION} {CUDA}") for text in ("", "twelve", "cu12", "12.x")),
    *((Request(cudnn=text), f"--cudnn {text!r} {NO_VERSION} {CUDNN}") for text in ("", "eight", "8.9.*", "9+")),
    *((Request(python=text), f"--python {text!r} {NO_VERSION} {PYTHON}") for text in ("", "3.x", "py3.11", "cp311")),
    *(
        (Request(driver=text), f"--driver {text!r} {DRIVER}")
        for text in ("", "latest", "535.x", "abc", ">=535", "v535", "535.", "1!535", " 535", "٥٣٥", "9" * 5000)
    ),
    *(
        (Request(platform=text), f"--platform {text!r} {PLATFORM}")
        for text in ("", "linux", "linux/", "windows/amd64", "linux/riscv64", "arm", "linux/linux/amd64", "amd64 ")
    ),
    *((Request(driver=text), f"--driver {text} {AMBIGUOUS}") for text in ("525", "525.60")),
    (Request(tensorflow="2.9", python="3.x"), f"--python '3.x' {NO_VERSION} {PYTHON}"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "message"), MALFORMED)
def test_what_cannot_be_read_is_refused_with_an_example(
    request_: Request, message: str, matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(matrix, specs, request_)
    assert (str(caught.value), caught.value.exit_code) == (message, 2)


VALUES: dict[str, tuple[str | None, ...]] = {
    "tensorflow": (
        None, "latest", "2.9", "2.11.1", "2.12", "2.15", "2.15.0.post1", "<2.13", ">=2.16,<2.20", "2.21",
        "x",
    ),
    "cuda": (None, "11", "12.2", "12.4", ">=12.3"),
    "cudnn": (None, "8.9", "9", "8.8"),
    "python": (None, "3.8", "3.12", "3.14", ">=3.10"),
    "platform": (None, "aarch64", "amd64"),
    "driver": (None, "400", "450.80.02", "525.60.13", "535.104"),
    "gpu": (None, "T4", "K80", "M40", "H100", "B200"),
    "device": (None, "cpu", "gpu", "tpu"),
}  # fmt: skip


def many() -> Iterator[Request]:
    """Every pair of values, and of all combinations as many as there is time for."""
    for one, other in combinations(OPTIONS, 2):
        for values in product(VALUES[one], VALUES[other]):
            yield Request(**dict(zip((one, other), values, strict=True)))  # type: ignore[arg-type]
    everything = list(product(*(VALUES[option] for option in OPTIONS)))
    for values in random.Random(215).sample(everything, 150):  # noqa: S311
        yield Request(**dict(zip(OPTIONS, values, strict=True)))  # type: ignore[arg-type]


Answer = Resolution | ResolutionError | UsageError


@pytest.fixture(scope="module")
def answers(matrix: Matrix, specs: Sequence[ImageSpec]) -> dict[Request, Answer]:
    """Every request is answered by an image or by one of two kinds of error, never by another exception."""

    def answer(request: Request) -> Answer:
        try:
            return resolve(matrix, specs, request)
        except (ResolutionError, UsageError) as error:
            return error

    return {request: answer(request) for request in many()}


@pytest.fixture(scope="module")
def refused(answers: dict[Request, Answer]) -> dict[Request, Any]:
    """What is said of the requests that no image meets."""
    return {request: one.details for request, one in answers.items() if isinstance(one, ResolutionError)}


def test_requests_are_met_and_refused_and_misread_in_great_number(answers: dict[Request, Answer]) -> None:
    kinds = [isinstance(answer, Resolution) for answer in answers.values()]
    usage = [isinstance(answer, UsageError) for answer in answers.values()]
    assert min(sum(kinds), len(kinds) - sum(kinds) - sum(usage), sum(usage)) > 30


def test_an_answer_is_the_newest_image_that_meets_every_condition(
    answers: dict[Request, Answer], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    position = {spec.identifier: number for number, spec in enumerate(specs)}  # oldest release first
    for request, answer in answers.items():
        if isinstance(answer, Resolution):
            wanted = conditions(matrix, request)
            met = [spec for spec in specs if all(condition.meets(spec) for condition in wanted)]
            assert answer.spec in met
            assert answer.spec.tensorflow == max(met, key=lambda spec: position[spec.identifier]).tensorflow


def test_a_refusal_is_given_only_where_no_image_meets_every_condition(
    refused: dict[Request, Any], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    for request in refused:
        wanted = conditions(matrix, request)
        assert not any(all(condition.meets(spec) for condition in wanted) for spec in specs), request


def test_every_request_that_a_refusal_names_means_the_image_that_it_names(
    refused: dict[Request, Any], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    named = {one["request"]: one["identifier"] for details in refused.values() for one in details["nearest"]}
    assert {text: resolve(matrix, specs, asked(text)).spec.identifier for text in named} == named


def test_a_refusal_names_two_or_three_requests_for_different_images(refused: dict[Request, Any]) -> None:
    for request, details in refused.items():
        for part in ("request", "identifier"):
            different = {one[part] for one in details["nearest"]}
            assert len(different) == len(details["nearest"]) in (2, 3), request


def meetable(options: Sequence[str], matrix: Matrix, specs: Sequence[ImageSpec]) -> bool:
    """Does an image meet these options, without what else they would imply?"""
    wanted = [one for one in conditions(matrix, asked(" ".join(options))) if one.asked in options]
    return any(all(condition.meets(spec) for condition in wanted) for spec in specs)


def test_what_clashes_clashes_and_no_part_of_it_does(
    refused: dict[Request, Any], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    for clash in {tuple(details["clash"]) for details in refused.values()}:
        assert not meetable(clash, matrix, specs), clash
        for left_out in clash:
            assert meetable([option for option in clash if option != left_out], matrix, specs), clash


def test_sentences_have_words_and_lists_have_values(answers: dict[Request, Answer]) -> None:
    for answer in answers.values():
        told = answer.explanation + answer.notes if isinstance(answer, Resolution) else (str(answer),)
        for sentence in told:
            assert len(sentence) > 15
            assert not re.search(r"None|\bnone\b(?! that)|  \(matrix| ,|: \)|\(\)", sentence), sentence


def test_a_long_run_of_values_is_told_by_its_ends_unless_one_between_them_is_left_out() -> None:
    there = ["3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]
    assert listed(["3.9", "3.10", "3.8"], there) == "3.8, 3.9, 3.10"
    assert listed(there, there) == "3.7 to 3.13"
    assert listed([one for one in there if one != "3.9"], there) == "3.7, 3.8, 3.10, 3.11, 3.12, 3.13"
    assert listed(["2 or newer", "1 or newer", "2 or newer"]) == "1 or newer; 2 or newer"

"""Requests → the image they mean, or the whole sentence that says why there is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tfimg.errors import (
    ResolutionError,
    TfimgError,
    UnavailableCuda,
    UnavailableDevice,
    UnavailablePython,
    UnknownTensorFlow,
    UsageError,
)
from tfimg.matrix.resolve import Request, resolve, select, version_matcher
from tfimg.matrix.spec import ImageSpec

MEANT = [
    (Request(), "2.21.0-cpu-py3.11"),
    (Request(tensorflow="latest"), "2.21.0-cpu-py3.11"),
    (Request(tensorflow="2"), "2.21.0-cpu-py3.11"),
    (Request(tensorflow="2.15"), "2.15.1-cpu-py3.11"),
    (Request(tensorflow="2.15.0"), "2.15.0-cpu-py3.11"),
    (Request(tensorflow="2.15.0.post1"), "2.15.0.post1-cpu-py3.11"),
    (Request(tensorflow="2.15.post1"), "2.15.0.post1-cpu-py3.11"),
    (Request(tensorflow="2.15.1"), "2.15.1-cpu-py3.11"),
    (Request(tensorflow=">=2.15,<2.17"), "2.16.2-cpu-py3.11"),
    (Request(tensorflow="<2.16"), "2.15.1-cpu-py3.11"),
    (Request(tensorflow="~=2.18.0"), "2.18.1-cpu-py3.11"),
    (Request(tensorflow="==2.15.*"), "2.15.1-cpu-py3.11"),
    (Request(tensorflow="!=2.21.0"), "2.20.0-cpu-py3.11"),
    (Request(tensorflow="2.15", python="3.9"), "2.15.1-cpu-py3.9"),
    (Request(tensorflow="2.15", python="latest"), "2.15.1-cpu-py3.11"),
    (Request(python="3.9"), "2.20.0-cpu-py3.9"),
    (Request(python=">=3.12"), "2.21.0-cpu-py3.13"),
    (Request(tensorflow="2.15", device="gpu"), "2.15.1-cuda12.2-py3.11"),
    (Request(tensorflow="2.15", cuda="12"), "2.15.1-cuda12.2-py3.11"),
    (Request(tensorflow="2.15", cuda="12.2", python="3.9"), "2.15.1-cuda12.2-py3.9"),
    (Request(tensorflow="2.15", cuda="12", device="gpu"), "2.15.1-cuda12.2-py3.11"),
    (Request(cuda="12.3"), "2.17.1-cuda12.3-py3.11"),
    (Request(cuda="<12.3"), "2.15.1-cuda12.2-py3.11"),
    (Request(cuda="latest"), "2.21.0-cuda12.5-py3.11"),
    (Request(device="tpu"), "2.20.0-tpu-py3.11"),
    (Request(tensorflow="2.19", device="tpu", python="3.12"), "2.19.1-tpu-py3.12"),
]

RELEASES = (
    "2.15.0, 2.15.0.post1, 2.15.1, 2.16.1, 2.16.2, 2.17.0, 2.17.1, "
    "2.18.0, 2.18.1, 2.19.0, 2.19.1, 2.20.0, 2.21.0"
)


def unknown(release: str) -> str:
    return (
        f"The matrix has no image with TensorFlow {release}: it has {RELEASES}. Ask for one of these; "
        "`tfimg list` shows all images, for example 2.21.0-cuda12.5-py3.13."
    )


def clash(sentence: str, example: str) -> str:
    return f"{sentence} Ask for one of these; `tfimg list` shows all images, for example {example}."


def no_version(option: str) -> str:
    return f"{option} is not a version. Write for example 2.15, 2.15.1, '>=2.15,<2.17' or latest."


REFUSED = [
    (Request(tensorflow="2.14"), UnknownTensorFlow, unknown("2.14")),
    (Request(tensorflow="3"), UnknownTensorFlow, unknown("3")),
    (Request(tensorflow="2.15.9"), UnknownTensorFlow, unknown("2.15.9")),
    (Request(tensorflow="2.15.0.post2"), UnknownTensorFlow, unknown("2.15.0.post2")),
    (Request(tensorflow="2.15rc1"), UnknownTensorFlow, unknown("2.15rc1")),
    (Request(tensorflow="1!2.15"), UnknownTensorFlow, unknown("1!2.15")),
    (Request(tensorflow="2.15+cpu"), UnknownTensorFlow, unknown("2.15+cpu")),
    (Request(tensorflow="2.15.dev1"), UnknownTensorFlow, unknown("2.15.dev1")),
    (Request(tensorflow="2.15.post2"), UnknownTensorFlow, unknown("2.15.post2")),
    (Request(tensorflow=">=3"), UnknownTensorFlow, unknown(">=3")),
    (
        Request(tensorflow="2.15", python="3.12"),
        UnavailablePython,
        clash(
            "TensorFlow 2.15 with device cpu has no image with Python 3.12: it has 3.9, 3.10, 3.11.",
            "2.15.1-cpu-py3.11",
        ),
    ),
    (
        Request(tensorflow="2.21", python="3.9"),
        UnavailablePython,
        clash(
            "TensorFlow 2.21 with device cpu has no image with Python 3.9: it has 3.10, 3.11, 3.12, 3.13.",
            "2.21.0-cpu-py3.13",
        ),
    ),
    (
        Request(tensorflow="2.15", cuda="11"),
        UnavailableCuda,
        clash(
            "TensorFlow 2.15 with device gpu has no image with CUDA 11: it has 12.2.",
            "2.15.1-cuda12.2-py3.11",
        ),
    ),
    (
        Request(tensorflow="2.15", cuda="12", python="3.12"),
        UnavailablePython,
        clash(
            "TensorFlow 2.15 with device gpu with CUDA 12 has no image with Python 3.12: "
            "it has 3.9, 3.10, 3.11.",
            "2.15.1-cuda12.2-py3.11",
        ),
    ),
    (
        Request(tensorflow="2.15", device="tpu"),
        UnavailableDevice,
        clash("TensorFlow 2.15 has no image with device tpu: it has cpu, gpu.", "2.15.1-cuda12.2-py3.11"),
    ),
    (
        Request(cuda="12", device="cpu"),
        UsageError,
        "--cuda 12 asks for a GPU image and --device cpu for another. Drop one of the two.",
    ),
    (
        Request(tensorflow="2.20", cuda="12", device="tpu"),
        UsageError,
        "--cuda 12 asks for a GPU image and --device tpu for another. Drop one of the two.",
    ),
    (Request(tensorflow="two"), UsageError, no_version("--tf 'two'")),
    (Request(tensorflow="2.15-cpu"), UsageError, no_version("--tf '2.15-cpu'")),
    (Request(tensorflow="2.15.*"), UsageError, no_version("--tf '2.15.*'")),
    (Request(tensorflow="=>2.15"), UsageError, no_version("--tf '=>2.15'")),
    (Request(cuda="twelve"), UsageError, no_version("--cuda 'twelve'")),
    (Request(python="3.x"), UsageError, no_version("--python '3.x'")),
]


@pytest.mark.parametrize(("request_", "identifier"), MEANT, ids=[str(meant[1]) for meant in MEANT])
def test_a_request_means_one_image(request_: Request, identifier: str, specs: Sequence[ImageSpec]) -> None:
    assert resolve(specs, request_).identifier == identifier


@pytest.mark.parametrize(("request_", "kind", "sentence"), REFUSED)
def test_a_refusal_says_what_clashes_and_what_there_is(
    request_: Request, kind: type[TfimgError], sentence: str, specs: Sequence[ImageSpec]
) -> None:
    with pytest.raises(TfimgError) as caught:
        resolve(specs, request_)
    assert (type(caught.value), str(caught.value)) == (kind, sentence)


def test_cuda_of_a_release_without_a_gpu_image_is_refused(specs: Sequence[ImageSpec]) -> None:
    without = [spec for spec in specs if spec.minor == "2.16" and spec.device == "cpu"]
    with pytest.raises(UnavailableDevice) as caught:
        resolve(without, Request(tensorflow="2.16", cuda="12"))
    assert str(caught.value) == clash(
        "TensorFlow 2.16 has no image with device gpu: it has cpu.", "2.16.2-cpu-py3.12"
    )


def test_the_order_of_the_matrix_does_not_matter(specs: Sequence[ImageSpec]) -> None:
    assert resolve(specs[::-1], Request(tensorflow="2.15")).identifier == "2.15.1-cpu-py3.11"


def test_the_newest_python_is_taken_where_the_default_is_ruled_out(specs: Sequence[ImageSpec]) -> None:
    assert resolve(specs, Request(tensorflow="2.15", python="!=3.11")).python == "3.10"


def test_every_identifier_is_reached_by_asking_for_its_parts(specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        cuda = spec.gpu.cuda if spec.gpu else None
        request = Request(tensorflow=spec.tensorflow, python=spec.python, device=spec.device, cuda=cuda)
        assert resolve(specs, request) == spec


@pytest.mark.parametrize(
    ("text", "takes", "leaves"),
    [
        ("2.15", ["2.15.0", "2.15.0.post1", "2.15.12"], ["2.1.5", "2.150.0", "2.16.0"]),
        ("2.15.0", ["2.15.0"], ["2.15.0.post1", "2.15.1"]),
        ("2", ["2.15.0", "2.21.0"], ["3.0.0"]),
        ("1!2.15", ["1!2.15", "1!2.15.0"], ["2.15", "2.15.0", "1!2.15.1"]),
        ("2.15+cpu", ["2.15+cpu", "2.15.0+cpu"], ["2.15", "2.15.0", "2.15.1+cpu", "2.15+gpu"]),
        ("2.15rc1", ["2.15rc1", "2.15.0rc1"], ["2.15.0", "2.15.1"]),
        ("12", ["12.2", "12.8"], ["11.8", "1.2"]),
        (">=9.3,<10", ["9.3", "9.10"], ["9.2", "10.0"]),
        ("latest", ["0", "99"], []),
    ],
)
def test_a_version_is_matched_by_its_parts(text: str, takes: list[str], leaves: list[str]) -> None:
    matches = version_matcher(text, option="--tf")
    assert [version for version in takes + leaves if matches(version)] == takes


PATTERNS = [
    (
        ["2.20.0-cpu"],
        [f"2.20.0-cpu-py3.{minor}" for minor in (9, 10, 11, 12, 13)],
    ),
    (["*-tpu-py3.12"], ["2.19.1-tpu-py3.12", "2.20.0-tpu-py3.12"]),
    (["2.2[01].0-cpu-py3.1?"], [f"2.2{m}.0-cpu-py3.1{p}" for m in (0, 1) for p in (0, 1, 2, 3)]),
    (
        ["2.21.0-cpu-py3.11", "2.15.1-cpu-py3.9", "2.21.0-cpu-py3.11"],
        ["2.15.1-cpu-py3.9", "2.21.0-cpu-py3.11"],
    ),
]


@pytest.mark.parametrize(("patterns", "identifiers"), PATTERNS)
def test_patterns_select_in_the_order_of_the_matrix_and_each_image_once(
    patterns: list[str], identifiers: list[str], specs: Sequence[ImageSpec]
) -> None:
    assert [spec.identifier for spec in select(specs, patterns)] == identifiers


def test_no_pattern_selects_everything(specs: Sequence[ImageSpec]) -> None:
    assert select(specs, []) == tuple(specs)


def test_a_pattern_without_signs_is_a_beginning(specs: Sequence[ImageSpec]) -> None:
    assert select(specs, ["2.15.1"]) == select(specs, ["2.15.1*"])


@pytest.mark.parametrize("patterns", [["2.14"], ["2.20.0", "2.14"]])
def test_a_pattern_that_matches_nothing_is_an_error(patterns: list[str], specs: Sequence[ImageSpec]) -> None:
    with pytest.raises(ResolutionError) as caught:
        select(specs, patterns)
    assert str(caught.value) == (
        "No image matches '2.14': identifiers look like 2.21.0-cuda12.5-py3.13. "
        "`tfimg list` shows all of them."
    )

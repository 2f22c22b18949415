"""The images that a matrix offers, and their identifiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import pytest

from tfimg.matrix.load import parse_matrix
from tfimg.matrix.spec import ImageSpec, expand

BASE = Path(__file__).parents[1] / "data" / "matrix" / "base.yaml"
Named = Callable[[str], ImageSpec]


def test_a_matrix_expands_by_release_then_device_then_python() -> None:
    matrix = parse_matrix(BASE.read_text(), source="base.yaml", today=date(2024, 6, 1))
    assert [spec.identifier for spec in expand(matrix)] == [
        "2.15.0-cpu-py3.9",
        "2.15.0-cpu-py3.11",
        "2.15.0-cuda12.2-py3.9",
        "2.15.0-cuda12.2-py3.11",
        "2.15.1-cpu-py3.9",
        "2.15.1-cpu-py3.11",
        "2.15.1-cuda12.2-py3.9",
        "2.15.1-cuda12.2-py3.11",
        "2.15.1-tpu-py3.9",
        "2.15.1-tpu-py3.11",
    ]


def test_releases_are_ordered_as_versions_and_not_as_text() -> None:
    text = BASE.read_text().replace('"2.15.0"', '"2.9.0"')
    matrix = parse_matrix(text, source="base.yaml", today=date(2024, 6, 1))
    assert expand(matrix)[0].tensorflow == "2.9.0"


def test_each_identifier_stands_once(specs: Sequence[ImageSpec]) -> None:
    assert len({spec.identifier for spec in specs}) == len(specs)


def test_each_release_has_one_default_image_per_device(specs: Sequence[ImageSpec]) -> None:
    defaults = [(spec.tensorflow, spec.device) for spec in specs if spec.default_python]
    assert sorted(defaults) == sorted({(spec.tensorflow, spec.device) for spec in specs})


def test_2_15_to_2_21_are_offered_for_cpu(specs: Sequence[ImageSpec]) -> None:
    minors = {spec.minor for spec in specs if spec.device == "cpu"}
    assert {"2.15", "2.16", "2.17", "2.18", "2.19", "2.20", "2.21"} <= minors


@pytest.mark.parametrize(
    ("identifier", "package", "cuda", "libtpu"),
    [
        ("2.20.0-cpu-py3.11", "tensorflow-cpu", None, None),
        ("2.20.0-cuda12.5-py3.11", "tensorflow", "12.5", None),
        ("2.20.0-tpu-py3.11", "tensorflow-tpu", None, "0.0.14"),
    ],
)
def test_an_image_has_what_its_device_needs_and_nothing_of_the_others(
    identifier: str, package: str, cuda: str | None, libtpu: str | None, named: Named
) -> None:
    spec = named(identifier)
    assert (spec.package, spec.gpu.cuda if spec.gpu else None, spec.libtpu) == (package, cuda, libtpu)


def test_a_post_release_belongs_to_its_minor(named: Named) -> None:
    assert named("2.15.0.post1-cpu-py3.11").minor == "2.15"

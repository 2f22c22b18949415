"""The JSON object of an image, and the level that record proves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from support.paths import DATA
from tfimg.core.levels import Level
from tfimg.matrix.conditions import select_specs
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DECLARED, Status, describe_image, select_platforms

Named = Callable[[str], ImageSpec]


def test_a_gpu_image_is_described_in_full(named: Named) -> None:
    expected = json.loads((DATA / "descriptions/2.15.1-cuda12.2-py3.11.json").read_text())
    linked = Status(level=Level.LINKED, date="2026-01-02")
    found = describe_image(named(expected["identifier"]), repository="tf", status=linked)
    libraries = found.pop("libraries")
    assert found == expected
    pins = {"nvidia-cudnn-cu12": "8.9.4.25", "nvidia-nccl-cu12": "2.16.5"}
    assert libraries.items() >= pins.items()


def test_a_cpu_image_has_null_for_what_it_lacks(named: Named) -> None:
    found = describe_image(
        named("2.15.1-cpu-py3.11"), repository="tf", status=Status(level=Level.BUILT, date="2026-01-02")
    )
    lacking = {key for key, value in found.items() if value is None}
    gpu = {"cuda", "cudnn", "driver_floor", "architectures", "libraries"}
    assert lacking == {*gpu, "libtpu", "gpu", "driver", "host_machines", "base_kind"}
    assert (found["package"], found["level"], found["date"]) == ("tensorflow-cpu", "built", "2026-01-02")
    assert found["tags"] == ["tf:2.15.1-cpu-py3.11", "tf:2.15.1", "tf:2.15", "tf:2.15-py3.11"]


def test_a_tpu_image_has_its_libtpu_and_no_cuda(named: Named) -> None:
    found = describe_image(named("2.20.0-tpu-py3.11"), repository="tf", status=DECLARED)
    assert (found["libtpu"], found["cuda"], found["cudnn"]) == ("0.0.14", None, None)


def test_every_description_is_json(specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        described = describe_image(spec, repository="tf", status=DECLARED)
        assert json.loads(json.dumps(described)) == described


@pytest.mark.parametrize(
    ("patterns", "platforms"),
    [
        ((), {"linux/amd64"}),
        (("2.15.1-cpu-*",), {"linux/amd64"}),
        (("2.15.1-cpu-py3.11-arm64",), {"linux/arm64"}),
        (("2.15.1-*", "*-arm64"), {"linux/amd64", "linux/arm64"}),
    ],
)
def test_images_for_other_platforms_are_meant_where_a_pattern_names_them(
    patterns: tuple[str, ...], platforms: set[str], specs: tuple[ImageSpec, ...]
) -> None:
    matching = select_specs(specs, patterns)
    assert {spec.platform for spec in select_platforms(matching, patterns)} == platforms

"""Labels and the JSON object: what an image says of itself, and the level that its record proves."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from support.cases import cases
from support.paths import DATA
from tfimg.core.levels import Level
from tfimg.matrix.conditions import select_specs
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.recipe.labels import (
    DECLARED,
    Status,
    describe_image,
    format_title,
    make_build_labels,
    make_recipe_labels,
    select_platforms,
)


@cases("recipe_labels", "a_title_is_one_line_for_people")
def test_a_title_is_one_line_for_people(identifier: str, line: str, named: Callable[[str], ImageSpec]) -> None:
    assert format_title(named(identifier)) == line


def test_labels_of_the_recipe(named: Callable[[str], ImageSpec]) -> None:
    assert make_recipe_labels(named("2.15.1-cpu-py3.11"), lock_digest="sha256:abc", layers=["tensorflow", "home"]) == {
        "org.opencontainers.image.title": "TensorFlow 2.15.1 for CPU on Python 3.11",
        "org.opencontainers.image.version": "2.15.1-cpu-py3.11",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "tfimg.identifier": "2.15.1-cpu-py3.11",
        "tfimg.tensorflow": "2.15.1",
        "tfimg.python": "3.11",
        "tfimg.device": "cpu",
        "tfimg.lock": "sha256:abc",
        "tfimg.layers": "tensorflow home",
    }


def test_an_image_with_programs_is_a_development_container(named: Callable[[str], ImageSpec], matrix: Matrix) -> None:
    dev, slim = (with_variant(named("2.15.1-cpu-py3.11"), variant, matrix.variants) for variant in ("dev", "slim"))
    labels = make_recipe_labels(dev, lock_digest="sha256:a", layers=[])
    assert labels["tfimg.variant"] == "dev"
    (metadata,) = json.loads(labels["devcontainer.metadata"])
    assert (metadata["remoteUser"], metadata["forwardPorts"]) == ("tensorflow", [8888, 2222])
    assert "devcontainer.metadata" not in make_recipe_labels(slim, lock_digest="sha256:a", layers=[])


def test_labels_of_a_build_have_dates_and_in_a_checkout_a_revision(named: Callable[[str], ImageSpec]) -> None:
    spec = named("2.15.1-cpu-py3.11")

    def labels(revision: str | None, spec: ImageSpec = spec) -> dict[str, str]:
        return make_build_labels(
            spec, base="python:3.11", base_digest="sha256:b", base_kind="look-alike", base_made="by hand",
            recipe="sha256:r", revision=revision, version="0.1",
        )  # fmt: skip

    everywhere = {
        "org.opencontainers.image.base.name": "python:3.11",
        "org.opencontainers.image.base.digest": "sha256:b",
        "tfimg.base.kind": "look-alike",
        "tfimg.base.made": "by hand",
        "tfimg.recipe": "sha256:r",
        "tfimg.version": "0.1",
        "tfimg.released": "2024-03-08",
        "tfimg.supported_until": "2027-10-31",
    }
    assert labels(None) == everywhere
    assert labels("c0ffee") == {**everywhere, "org.opencontainers.image.revision": "c0ffee"}
    assert "tfimg.supported_until" not in labels(None, replace(spec, support_ends=()))


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


def test_every_description_is_json_with_libtpu_or_cuda_or_none_of_them(
    specs: Sequence[ImageSpec], named: Named
) -> None:
    tpu = describe_image(named("2.20.0-tpu-py3.11"), repository="tf", status=DECLARED)
    assert tpu["libtpu"] == "0.0.14"
    for spec in specs:
        described = describe_image(spec, repository="tf", status=DECLARED)
        assert json.loads(json.dumps(described)) == described
        assert (described["libtpu"] is not None, described["cuda"] is not None, described["cudnn"] is not None) == (
            spec.device == "tpu", spec.device == "gpu", spec.device == "gpu",
        )  # fmt: skip


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

"""The names of images: one of its own for each, aliases for the default ones."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from support.cases import cases
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.tags import KNOWN_VARIANTS, find_contradiction, list_aliases, list_tags, make_build_tag

Named = Callable[[str], ImageSpec]


@cases("recipe_tags", "only_a_default_image_is_its_release_and_only_the_newest_patch_is_its_minor")
def test_only_a_default_image_is_its_release_and_only_the_newest_patch_is_its_minor(
    identifier: str, expected: list[str], named: Named
) -> None:
    assert list_tags(named(identifier), repository="tf") == tuple(f"tf:{tag}" for tag in expected)


def test_no_two_images_share_a_name(specs: Sequence[ImageSpec]) -> None:
    owners = Counter(tag for spec in specs for tag in list_tags(spec, repository="tf"))
    assert [tag for tag, count in owners.items() if count > 1] == []


def test_each_minor_has_its_alias_on_each_device_and_platform_that_it_is_offered_for(
    specs: Sequence[ImageSpec],
) -> None:
    aliases = {tag for spec in specs for tag in list_tags(spec, repository="tf")}
    suffix = {"cpu": "", "gpu": "-gpu", "tpu": "-tpu"}
    processor = {"linux/amd64": "", "linux/arm64": "-arm64"}
    assert {f"tf:{spec.minor}{suffix[spec.device]}{processor[spec.platform]}" for spec in specs} <= aliases


def test_latest_is_one_image_of_each_device_and_platform(specs: Sequence[ImageSpec]) -> None:
    latest = Counter(tag for spec in specs for tag in list_aliases(spec) if tag.startswith("latest"))
    offered = {(spec.device, spec.platform, spec.is_usual_toolkit or spec.cuda) for spec in specs}
    assert set(latest.values()) == {1}
    assert len(latest) == len(offered)


def test_another_toolkit_has_tags_of_its_own_and_moves_none_of_the_usual_one(
    specs: Sequence[ImageSpec], named: Named
) -> None:
    assert list_aliases(named("2.21.0-cuda12.9-py3.11")) == (
        "2.21.0-cuda12.9", "2.21-cuda12.9", "2.21-cuda12.9-py3.11", "latest-cuda12.9",
    )  # fmt: skip
    assert list_aliases(named("2.21.0-cuda12.5-py3.11")) == (
        "2.21.0-gpu", "2.21-gpu", "2.21-gpu-py3.11", "latest-gpu",
    )  # fmt: skip
    others = [tag for spec in specs if not spec.is_usual_toolkit for tag in list_aliases(spec)]
    assert others
    assert [tag for tag in others if "cuda12.9" not in tag] == []


def test_a_build_tag_differs_from_every_tag_of_an_image(specs: Sequence[ImageSpec]) -> None:
    tag = make_build_tag("2.15.1-cpu-py3.11", f"sha256:{'0123456789abcdef' * 4}")
    assert tag == "2.15.1-cpu-py3.11-0123456789ab"
    assert tag not in {name for spec in specs for name in (spec.identifier, *list_aliases(spec))}
    assert all(len(make_build_tag(spec.identifier, "f" * 64)) <= 128 for spec in specs)


DIGEST = "sha256:" + "0" * 64


def test_tags_are_read_with_all_variants_of_the_matrix(matrix: Matrix) -> None:
    assert sorted(KNOWN_VARIANTS) == sorted(matrix.variants)


@pytest.mark.parametrize(
    ("tag", "identifier", "stated"),
    [
        ("2.15-jupyter", "2.15.1-cpu-py3.11", "variant jupyter"),
        ("2.15-jupyter", "2.15.1-cpu-py3.11-dev", "variant jupyter"),
        ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.11-jupyter", "variant runtime"),
        ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.11-own", "no extra packages"),
        ("2.15-own", "2.15.1-cpu-py3.11", "extra packages"),
        ("2.15-jupyter", "2.15.1-cpu-py3.11-jupyter", None),
        ("2.15", "2.15.1-cpu-py3.11-jupyter", None),
        ("2.15.1-cpu-py3.11-jupyter-own", "2.15.1-cpu-py3.11-jupyter-own", None),
        ("2.15-serve", "2.15.1-cpu-py3.11", "variant serve"),
        ("2.15-stable", "2.15.1-cpu-py3.11", None),
    ],
)
def test_a_tag_that_states_a_variant_fits_only_that_one(tag: str, identifier: str, stated: str | None) -> None:
    assert find_contradiction(tag, identifier=identifier, digest=DIGEST) == stated

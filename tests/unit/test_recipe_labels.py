"""Labels: what an image says of itself."""

from __future__ import annotations

import json
from collections.abc import Callable

from support.cases import cases
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.recipe.labels import format_title, make_build_labels, make_recipe_labels


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
    labels = make_recipe_labels(
        with_variant(named("2.15.1-cpu-py3.11"), "dev", matrix.variants), lock_digest="sha256:a", layers=[]
    )
    assert labels["tfimg.variant"] == "dev"
    (metadata,) = json.loads(labels["devcontainer.metadata"])
    assert (metadata["remoteUser"], metadata["forwardPorts"]) == ("tensorflow", [8888, 2222])
    slim = with_variant(named("2.15.1-cpu-py3.11"), "slim", matrix.variants)
    assert "devcontainer.metadata" not in make_recipe_labels(slim, lock_digest="sha256:a", layers=[])


def test_labels_of_a_build_have_a_revision_in_a_checkout_only() -> None:
    def labels(revision: str | None) -> dict[str, str]:
        return make_build_labels(
            base="python:3.11",
            base_digest="sha256:b",
            base_kind="look-alike",
            base_made="by hand",
            recipe="sha256:r",
            revision=revision,
            version="0.1",
        )

    everywhere = {
        "org.opencontainers.image.base.name": "python:3.11",
        "org.opencontainers.image.base.digest": "sha256:b",
        "tfimg.base.kind": "look-alike",
        "tfimg.base.made": "by hand",
        "tfimg.recipe": "sha256:r",
        "tfimg.version": "0.1",
    }
    assert labels(None) == everywhere
    assert labels("c0ffee") == {**everywhere, "org.opencontainers.image.revision": "c0ffee"}

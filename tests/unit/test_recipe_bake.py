"""Bake files: whole documents, with names that bake takes and texts that it does not interpret."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.bake import BakeTarget, make_bake_file
from tfimg.recipe.plan import Plan

Named = Callable[[str], ImageSpec]


@pytest.fixture
def target(named: Named) -> Callable[..., BakeTarget]:
    def make(identifier: str, dockerfile: str = "FROM scratch\n", committed: str | None = None) -> BakeTarget:
        plan = Plan(spec=named(identifier), lock={}, dockerfile=dockerfile, tags=(f"a/b:{identifier}", "a/b:${x}"))
        return BakeTarget(plan=plan, base="a/base:1", labels={"some.label": "100 %{ off"}, committed=committed)

    return make


def bake_document(source: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "context": "images", **source, "args": {"BASE": "a/base:1"}, "labels": {"some.label": "100 %%{ off"},
        "platforms": ["linux/amd64"], **more,
    }  # fmt: skip


def test_a_whole_document(target: Callable[..., BakeTarget]) -> None:
    targets = [
        target("2.15.1-cpu-py3.11", committed="rendered/2.15.1-cpu-py3.11/Dockerfile"),
        target("2.15.1-cuda12.2-py3.9", "ARG BASE\nFROM ${BASE}\nRUN echo $BASE %{x} 100%\n"),
        target("2.20.0-tpu-py3.11", committed="rendered/2.20.0-tpu-py3.11/Dockerfile"),
    ]
    names = ["2_15_1-cpu-py3_11", "2_15_1-cuda12_2-py3_9", "2_20_0-tpu-py3_11"]
    assert make_bake_file(targets) == {
        "group": {
            "default": {"targets": names},
            "cpu": {"targets": names[:1]},
            "gpu": {"targets": names[1:2]},
            "tpu": {"targets": names[2:]},
            "2_15": {"targets": names[:2]},
            "2_20": {"targets": names[2:]},
        },
        "target": {
            names[0]: bake_document(
                {"dockerfile": "rendered/2.15.1-cpu-py3.11/Dockerfile"},
                tags=["a/b:2.15.1-cpu-py3.11", "a/b:$${x}"],
            ),
            names[1]: bake_document(
                {"dockerfile-inline": "ARG BASE\nFROM $${BASE}\nRUN echo $BASE %%{x} 100%\n"},
                tags=["a/b:2.15.1-cuda12.2-py3.9", "a/b:$${x}"],
            ),
            names[2]: bake_document(
                {"dockerfile": "rendered/2.20.0-tpu-py3.11/Dockerfile"},
                tags=["a/b:2.20.0-tpu-py3.11", "a/b:$${x}"],
            ),
        },
    }


def test_a_snapshot_is_an_argument_of_the_images_that_have_one(target: Callable[..., BakeTarget]) -> None:
    dated = replace(target("2.15.1-cpu-py3.11"), package_mirrors="http://m/debian/20261101T000000Z")
    targets = make_bake_file([dated, target("2.15.1-cpu-py3.9")])["target"]
    assert [one["args"] for one in targets.values()] == [
        {"BASE": "a/base:1", "SNAPSHOT": "http://m/debian/20261101T000000Z"},
        {"BASE": "a/base:1"},
    ]


def test_secrets_are_named_in_every_target(target: Callable[..., BakeTarget]) -> None:
    document = make_bake_file(
        [target("2.15.1-cpu-py3.11"), target("2.15.1-cpu-py3.9")], secrets=["id=ca,src=/ca.pem", "id=n,env=N"]
    )
    assert [one["secret"] for one in document["target"].values()] == [["id=ca,src=/ca.pem", "id=n,env=N"]] * 2


def test_names_are_such_as_bake_takes_and_no_two_are_alike(
    specs: tuple[ImageSpec, ...], target: Callable[..., BakeTarget]
) -> None:
    """Of buildx's bake reference: a name has letters, digits, `_` and `-`."""
    document = make_bake_file([target(spec.identifier) for spec in specs])
    names = [*document["group"], *document["target"]]
    assert [name for name in names if not re.fullmatch(r"[A-Za-z0-9_-]+", name)] == []
    assert len(set(names)) == len(names)
    assert len(document["target"]) == len(specs)
    assert json.loads(json.dumps(document)) == document

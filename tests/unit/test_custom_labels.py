"""The labels of custom images: they tell the image without its wheel, and are hostile input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from support.tensorflow_wheels import write_tiny_wheel
from tfimg.core.errors import ResolutionError, TfimgError, UnavailableCuda, UnavailablePython, UnlabelledImage
from tfimg.core.paths import Workspace
from tfimg.custom.image import (
    FACTS_LABEL,
    LOCK_LABEL,
    GivenFacts,
    make_custom_labels,
    make_custom_spec,
    read_custom_labels,
)
from tfimg.custom.source import read_facts
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.facts import collect_facts
from tfimg.recipe.labels import IDENTIFIER_LABEL, WHEEL_LABEL, make_recipe_labels
from tfimg.recipe.lock import HEADER, hash_lock

OTHER = f"numpy==1.26.4 --hash=sha256:{'ab' * 32}  # 2024-02-05\n"


@pytest.fixture(params=[False, True], ids=["cpu", "cuda"])
def spec(request: pytest.FixtureRequest, matrix: Matrix, tmp_path: Path) -> ImageSpec:
    facts = read_facts(write_tiny_wheel(tmp_path, cuda=request.param))
    return make_custom_spec(matrix, facts, GivenFacts(), date(2025, 3, 26))


def make_lock(spec: ImageSpec) -> dict[str, str]:
    assert spec.wheel
    line = f"{spec.package}=={spec.tensorflow} --hash=sha256:{spec.wheel.sha256}\n"
    return {"tensorflow": HEADER + line, "packages": HEADER + OTHER}


def make_labels(spec: ImageSpec) -> dict[str, str]:
    lock = make_lock(spec)
    return {**make_recipe_labels(spec, lock_digest=hash_lock(lock)), **make_custom_labels(spec, lock)}


def edit(labels: Mapping[str, str], label: str, **changes: object) -> dict[str, str]:
    return {**labels, label: json.dumps({**json.loads(labels[label]), **changes})}


@pytest.fixture
def project(workspace: Workspace) -> Project:
    return Project(services=Services(environ={"TFIMG_WORKSPACE": str(workspace.root)}))


def test_labels_tell_the_image_and_its_lock_without_the_wheel(matrix: Matrix, spec: ImageSpec) -> None:
    found = read_custom_labels(matrix, make_labels(spec))
    assert found is not None
    assert found.wheel is not None
    assert replace(found, wheel=spec.wheel) == spec
    assert dict(found.wheel.lock) == make_lock(spec)
    assert collect_facts(found, dict(found.wheel.lock)) == collect_facts(spec, make_lock(spec))


def test_the_image_is_planned_from_its_labels_also_with_a_variant(spec: ImageSpec, project: Project) -> None:
    plan = project.plan(project.spec_of_labels(make_labels(spec)) or spec)
    assert (plan.spec.identifier, plan.wheels, hash_lock(plan.lock)) == (
        spec.identifier, (), make_labels(spec)["tfimg.lock"],
    )  # fmt: skip
    jupyter = with_variant(spec, "jupyter", project.matrix.variants)
    lock = {**make_lock(spec), "variant": HEADER + OTHER.replace("numpy", "jupyterlab")}
    labels = {**make_recipe_labels(jupyter, lock_digest=hash_lock(lock)), **make_custom_labels(jupyter, lock)}
    found = project.spec_of_labels(labels)
    assert found is not None
    assert (found.identifier, found.variant, project.lock(found)) == (f"{spec.identifier}-jupyter", "jupyter", lock)


def test_the_lock_of_extra_packages_is_not_there_twice(spec: ImageSpec) -> None:
    labels = make_custom_labels(spec, {**make_lock(spec), "own": HEADER + OTHER})
    assert json.loads(labels[LOCK_LABEL]).keys() == {"tensorflow", "packages"}


def test_labels_of_another_image_do_not_tell_a_named_one(spec: ImageSpec, project: Project) -> None:
    found = project.spec_of_labels(make_labels(spec), "custom-2.17.0-cpu-py3.11")
    assert found is not None
    assert (found.tensorflow, found.wheel and found.wheel.lock) == ("2.17.0", ())
    assert project.spec_of_labels(make_labels(spec), "2.15.1-cpu-py3.11") == project.spec("2.15.1-cpu-py3.11")


def test_an_image_without_the_labels_is_none(matrix: Matrix, spec: ImageSpec) -> None:
    labels = make_labels(spec)
    del labels[FACTS_LABEL]
    assert read_custom_labels(matrix, labels) is None


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (FACTS_LABEL, ""), (FACTS_LABEL, "{}"), (FACTS_LABEL, "[" * 100_000), (FACTS_LABEL, "\udcff"),
        (FACTS_LABEL, "x" * (1 << 18)), (LOCK_LABEL, ""), (LOCK_LABEL, '{"tensorflow": 1}'),
        (LOCK_LABEL, '{"tensorflow": "RUN rm -rf /"}'), (LOCK_LABEL, '{"../../etc": ""}'), (LOCK_LABEL, "{}"),
        (WHEEL_LABEL, "sha256:0"), (WHEEL_LABEL, f"sha256:{'0' * 64}"),
    ],
)  # fmt: skip
def test_labels_that_tfimg_never_writes_are_refused(label: str, text: str, matrix: Matrix, spec: ImageSpec) -> None:
    with pytest.raises(UnlabelledImage) as raised:
        read_custom_labels(matrix, {**make_labels(spec), label: text})
    assert raised.value.what.startswith("The labels of the image do not say which wheel it was made of: ")
    assert len(raised.value.what) < 500
    assert raised.value.next_step == "Build the image again with `tfimg build --wheel`."


@pytest.mark.parametrize("part", ["../../etc", "own", "unknown"])
def test_a_part_that_the_lock_of_no_image_has_is_refused(part: str, matrix: Matrix, spec: ImageSpec) -> None:
    with pytest.raises(UnlabelledImage, match=f"has the part '{part}'"):
        read_custom_labels(matrix, edit(make_labels(spec), LOCK_LABEL, **{part: HEADER}))


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("tensorflow", "2.18.1; rm", UnlabelledImage), ("tensorflow", "2.17.1", UnlabelledImage),
        ("tensorflow", "9" * 100, UnlabelledImage), ("package", "tensorflow\n", UnlabelledImage),
        ("python", "3.11 ", UnlabelledImage), ("python", "3.99", UnavailablePython),
        ("platform", "windows/amd64", UnlabelledImage), ("as_of", 20250326, UnlabelledImage),
        ("numpy", "<2; import os", UnlabelledImage), ("gpu", {"cuda": "12.5"}, UnlabelledImage),
        ("libraries", {"nvidia": "-r /etc/passwd"}, UnlabelledImage),
        ("libraries", {f"a{number}": "1" for number in range(101)}, UnlabelledImage),
    ],
)  # fmt: skip
def test_facts_that_no_image_has_are_refused(
    field: str, value: object, error: type[TfimgError], matrix: Matrix, spec: ImageSpec
) -> None:
    with pytest.raises(error) as raised:
        read_custom_labels(matrix, edit(make_labels(spec), FACTS_LABEL, **{field: value}))
    assert raised.value.what.isprintable()


def test_a_toolkit_that_the_matrix_lacks_is_named(matrix: Matrix, spec: ImageSpec) -> None:
    labels = make_labels(spec)
    facts = json.loads(labels[FACTS_LABEL])
    if facts["gpu"] is None:
        return
    facts["gpu"]["libraries"]["toolkit"] = "13.0"
    with pytest.raises(UnavailableCuda, match=r"has NVIDIA's libraries of CUDA 13\.0, and the matrix has toolkits"):
        read_custom_labels(matrix, {**labels, FACTS_LABEL: json.dumps(facts)})


def test_no_label_waives_a_check(matrix: Matrix, spec: ImageSpec) -> None:
    labels = edit(make_labels(spec), FACTS_LABEL, waived={"numerics.matmul": "because"}, constraints=["x"], row=0)
    found = read_custom_labels(matrix, labels)
    assert found is not None
    assert (found.waived, found.constraints) == (spec.waived, spec.constraints)


def test_the_label_of_the_identifier_decides_what_an_image_is(spec: ImageSpec, project: Project) -> None:
    with pytest.raises(ResolutionError, match="has no image 'custom-nonsense'"):
        project.spec_of_labels({**make_labels(spec), IDENTIFIER_LABEL: "custom-nonsense"})

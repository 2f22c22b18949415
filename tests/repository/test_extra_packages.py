"""Ten requests for extra packages of an image, against the package index of today: five that fit, five that do not."""

import os

import pytest

from tfimg.core.errors import RequirementConflict
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.lock import read_packages
from tfimg.recipe.packages import find_moved

pytestmark = pytest.mark.facts

IMAGES = ("2.15.1-cpu-py3.11", "2.18.1-cpu-py3.11", "2.21.0-cpu-py3.11")


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(services=Services(environ=dict(os.environ)))


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(
    "requirements",
    [
        ("tensorflow-text",),
        ("keras-nlp",),
        ("tensorflow-probability", "tf-keras"),
        ("pandas", "scikit-learn"),
        ("transformers", "matplotlib"),
    ],
    ids="+".join,
)
def test_companions_of_a_release_fit(requirements: tuple[str, ...], image: str, project: Project) -> None:
    """TensorFlow Text for 2.21 appeared after the release's time, so the request is as of today."""
    as_of = project.services.today if requirements == ("tensorflow-text",) else None
    spec = project.locks.add_packages(project.spec(image), requirements, as_of=as_of)
    assert spec.extra
    found = {package.name: package.version for package in read_packages({"own": spec.extra.lock})}
    print(f"{image}: {' '.join(requirements)} → {' '.join(f'{name}=={version}' for name, version in found.items())}")
    assert set(requirements) <= set(found)
    plain = project.spec(image)
    assert not [one for one in find_moved(project.lock(plain), spec.extra.lock) if plain.is_fixed(one.name)]
    if requirements == ("tensorflow-text",):
        assert found["tensorflow-text"].startswith(project.spec(image).minor)


@pytest.mark.parametrize(
    ("image", "requirement", "named"),
    [
        (IMAGES[0], "numpy>=2", ("needs numpy<2.0.0,>=1.23.5", "use the image 2.18.1-cpu-py3.11")),
        (IMAGES[0], "protobuf>=6", ("the image has 4.25.8", "use the image 2.20.0-cpu-py3.11")),
        (IMAGES[0], "tensorflow>=2.18", ("tensorflow 2.15.1", "Use the image 2.18.1-cpu-py3.11")),
        (IMAGES[0], "jax>=0.5", ("needs ml-dtypes>=0.5", "TensorFlow 2.15.1 needs ml-dtypes")),
        (IMAGES[1], "docopt", ("docopt has no wheel", "--find-links wheels")),
        (IMAGES[0], "keras-cv", ("keras-cv needs promise, which has no wheel", "--find-links wheels")),
        (IMAGES[0], "pywin32==306", ("for Windows only", "Leave out pywin32==306")),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    image: str, requirement: str, named: tuple[str, str], project: Project
) -> None:
    with pytest.raises(RequirementConflict) as refused:
        project.locks.add_packages(project.spec(image), [requirement])
    print(f"{image}: {refused.value}")
    for text in named:
        assert text in str(refused.value)

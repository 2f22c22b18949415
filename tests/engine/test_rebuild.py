"""An image that is built twice from nothing is the same bytes."""

from pathlib import Path

import pytest

from support.cli import run_tfimg
from tfimg.engine.docker import DockerEngine

pytestmark = [pytest.mark.full, pytest.mark.group("rebuild and faults")]


@pytest.mark.usefixtures("base")
def test_an_image_is_built_twice_to_the_same_bytes(own_workspace: Path, engine: DockerEngine, tmp_path: Path) -> None:
    """The second time on another machine, as far as the state folder is one: without the layers of the first."""
    layers = []
    for number in "12":
        environ = {"TFIMG_WORKSPACE": str(own_workspace), "TFIMG_STATE": str(tmp_path / number)}
        environ["DOCKER_HOST"] = engine.host  # a private engine is found by the state folder
        line = ("build", "--tf", "2.15", "--base", "bootstrap", "--repository", "tfimg-test/twice", "--no-cache")
        ended = run_tfimg(*line, "--json", env=environ).succeeded()
        layers.append([layer["digest"] for layer in ended.documents[-1]["layers"]])
        for tag in ended.documents[-1]["tags"]:
            engine.remove(tag)
    assert len(layers[0]) == 10, "each is a transfer of its own"
    assert layers[0] == layers[1]
